package redytier

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/server"
)

// TestFabricTLS runs one-sided operations and rings over TLS, and refuses clients
// without it.
func TestFabricTLS(t *testing.T) {
	config := fabrictest.TLS(t)
	for _, configuration := range configurations {
		c := newClusterOf(t, 2, server.Options{Memory: 1 << 20, Cores: 2, Transport: "tcp", FabricTLS: config})
		cfg := Config{Capacity: 100_000, RegionSize: 16 << 10, Configuration: configuration, Logger: slog.New(slog.DiscardHandler)}
		if cache, err := Create(t.Context(), c.client, cfg); err == nil {
			t.Error("a client without TLS has a cache")
			_ = cache.Delete(t.Context())
		}
		cfg.FabricTLS = config
		s := newSession(t, c.create(t, cfg), 8)
		want, got := bytes.Repeat([]byte("sealed "), 8000), make([]byte, 56000)
		if err := errors.Join(s.Write(want, 10, 1), s.Read(got, 10, 2)); err != nil {
			t.Fatal(err)
		}
		var done [2]device.Completion
		for seen := 0; seen < 2; {
			if err := s.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			n := s.Poll(done[:])
			for _, d := range done[:n] {
				if d.Err != nil {
					t.Fatal(d.Err)
				}
			}
			seen += n
		}
		if !bytes.Equal(got, want) {
			t.Errorf(testrun.WrongMark+" s=%d: read other bytes than were written", configuration.ServerThreads)
		}
	}
}
