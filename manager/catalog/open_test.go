package catalog

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
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
		"memory:?delay=1ms&delay=2ms", "memory:?deelay=1ms", "memory:?%zz=secret", "memory:?delay=-1s", "memory:?lease=5s",
		"etcd:host:2379", "etcd://", "etcd://host", "etcd:///prefix", "etcd://a:1,b", "etcd://a:1,,b:1", "etcd://user@a:1",
		"etcd://%zz:secret@a:1", "etcd://a:1/%zz", "etcd://a:1?lease=1s", "etcd://a:1?lease=2500ms", "etcd://a:1?ca=/none.pem",
		"etcd+tls://a:1?cert=/none.pem", "etcd://u:secret@a:1/p?x=1",
	} {
		s, err := Open(u, Options{})
		if s != nil || !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", u, s, err)
		}
		if check := Check(u, Options{}); check == nil || err == nil || check.Error() != err.Error() {
			t.Errorf("%s: Check: %v", u, check)
		}
	}
}

func TestParseEtcd(t *testing.T) {
	l, err := parse("etcd+tls://us%40er:p:a%2Fss@a:1,[::1]:2/x/y/?lease=7s&delay=5ms", Options{User: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if e := l.etcd; !slices.Equal(e.Endpoints, []string{"a:1", "[::1]:2"}) || e.Prefix != "/x/y/" || e.User != "us@er" || e.Password != "p:a/ss" ||
		e.LeaseTTL != 7*time.Second || e.TLS == nil || l.delay != 5*time.Millisecond {
		t.Errorf("%+v", l)
	}
	if l, err = parse("etcd://a:1", Options{User: "u", Password: "p"}); err != nil {
		t.Fatal(err)
	}
	if e := l.etcd; e.Prefix != "/redykv/" || e.User != "u" || e.Password != "p" || e.LeaseTTL != defaultLeaseTTL || e.TLS != nil {
		t.Errorf("%+v", l)
	}
}

func FuzzParse(f *testing.F) {
	for _, u := range []string{"memory:", "pebble:/a?delay=5ms", "etcd://u:p@a:1,b:2/p?lease=5s", "etcd+tls://[::1]:1"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u string) {
		if l, err := parse(u, Options{}); err == nil && strings.HasPrefix(l.scheme, "etcd") && len(l.etcd.Endpoints) == 0 {
			t.Errorf("%q has no host", u)
		}
	})
}

// TestPasswordNewline checks that a password from a file of a secret, which ends with a newline, is
// the password.
func TestPasswordNewline(t *testing.T) {
	t.Setenv(PasswordEnv, "secret\n")
	if got := FromEnv().Password; got != "secret" {
		t.Errorf("%q", got)
	}
}
