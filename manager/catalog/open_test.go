package catalog

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, u := range []string{"memory:", "memory:?delay=1ms", "pebble:" + dir, "pebble:" + dir + "%2Fb?delay=0"} {
		s, err := Open(u, Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(u, err)
		}
		if err := lead(t, s).Commit(t.Context(), []Change{{"a", []byte("1"), 0}}); err != nil {
			t.Error(u, err)
		}
		if err := s.Close(); err != nil {
			t.Error(u, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, u := range []string{
		"", "state", "memory:x", "pebble:", "pebble:?delay=1ms", "pebble:%zz", "zookeeper://secret", "memory:?delay=soon",
		"memory:?delay=1ms&delay=2ms", "memory:?deelay=1ms", "memory:?%zz=secret", "memory:?delay=-1s",
	} {
		s, err := Open(u, Options{})
		if s != nil || !errors.Is(err, ErrURL) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", u, s, err)
		}
	}
}
