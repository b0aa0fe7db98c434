package acl

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// startRedis starts redis-server and returns a client of it.
func startRedis(t *testing.T) *redis.Client {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("there is no redis-server here to compare with")
	}
	dir, err := os.MkdirTemp("", "redis") // names of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 2, MaxRetries: 1000})
	t.Cleanup(func() { _ = client.Close() })
	info, err := client.Info(t.Context(), "server").Result() // retries until the server is up
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info, "redis_version:7.") {
		t.Skip("want version 7")
	}
	return client
}

// startOurs starts a server with users and returns its address.
func startOurs(t *testing.T, users resp.Users) string {
	t.Helper()
	quietly := slog.New(slog.DiscardHandler)
	st, err := kv.Open(kv.Options{Device: device.NewMemory(), Memory: 16 << 20, Records: 1 << 12, Logger: quietly})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := resp.NewServer(st, resp.Options{Users: users, Logger: quietly})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// rules generates random rules, most of which Redis accepts.
func rules(rng *rand.Rand, most int, selector bool) string {
	var of []string
	words := strings.Fields(`+get +set -get -set +mget +@read +@write -@write +@all -@all +@string +@hash -@hash +config|get -config|get +config
		-config +select|0 +select|1 +select -select +get|k1 +echo|hello -@connection +@connection -eval +eval +@scripting -@scripting +lpush
		-@dangerous +client|list +client|pause +hset +hget|h ~k* ~k1 ~* %R~k1 %W~k* %RW~h allkeys resetkeys allcommands nocommands allchannels
		resetchannels &ch* &ch1 &* +@pubsub -@pubsub +publish +subscribe +psubscribe +copy +rename +GET -@ADMIN +flushall +@keyspace +del`)
	for range 1 + rng.IntN(most) {
		rule := words[rng.IntN(len(words))]
		if selector && rng.IntN(4) == 0 {
			rule = []string{"(" + rules(rng, 4, false) + ")", "clearselectors", "()"}[rng.IntN(3)]
		}
		of = append(of, rule)
	}
	return strings.Join(of, " ")
}

// TestUsersAsRedis compares the permissions of users with the same rules in Redis and here.
// Rules that Redis accepts must be accepted here.
func TestUsersAsRedis(t *testing.T) {
	theirs := startRedis(t)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(29, 1))
	us := New()
	lines := []string{"~k1 +get (~k* +set) (%R~h +hget)", "+@all -select +select|0 allkeys -eval -@scripting", "(+@all ~*) -@all", "+get|k1 ~*", "-eval +@all"}
	for range 300 {
		lines = append(lines, rules(rng, 6, true))
	}
	var taken []string
	for _, line := range lines {
		name := fmt.Sprint("u", len(taken))
		args := []any{"ACL", "SETUSER", name, "on", "nopass"}
		for _, rule := range strings.Fields(line) {
			args = append(args, rule)
		}
		if err := theirs.Do(ctx, args...).Err(); err != nil {
			_ = theirs.Do(ctx, "ACL", "DELUSER", name).Err()
			continue
		}
		if err := us.Add("user " + name + " on nopass " + line); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		taken = append(taken, line)
	}
	if len(taken) < len(lines)/2 {
		t.Fatalf("of %d lines Redis takes %d", len(lines), len(taken))
	}
	// Redis's listing of its users is accepted as well.
	listed, err := theirs.Do(ctx, "ACL", "LIST").StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(strings.Join(listed, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fromFile := New()
	if err := fromFile.AddFile(file); err != nil {
		t.Fatal(err)
	}
	for how, users := range map[string]*Users{"rules": us, "file": fromFile} {
		addr := startOurs(t, users)
		for n, line := range taken {
			name := fmt.Sprint("u", n)
			ours := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, Username: name, Password: "any"})
			for _, command := range []string{
				"GET k1", "GET k2", "GET h", "SET k1 v", "SET k2 v", "MGET k1 k2", "MGET k1 h", "COPY k1 k2", "RENAME k1 k2", "DEL k1", "HGET h f", "HGET k1 f", "HSET h f v",
				"CONFIG GET maxmemory", "SELECT 0", "SELECT 1", "ECHO hello", "ECHO HELLO", "ECHO other", "CLIENT LIST", "CLIENT ID", "PING", "FLUSHALL", "DBSIZE",
				"PUBLISH ch1 m", "PUBLISH other m", "SPUBLISH ch1 m", "SUBSCRIBE ch1", "UNSUBSCRIBE ch1", "SUBSCRIBE other", "UNSUBSCRIBE other",
				"PSUBSCRIBE ch*", "PUNSUBSCRIBE ch*", "PSUBSCRIBE ch1*", "PUNSUBSCRIBE ch1*", "SSUBSCRIBE ch1", "SUNSUBSCRIBE ch1",
			} {
				var args []any
				for _, word := range strings.Fields(command) {
					args = append(args, word)
				}
				reply, err := theirs.Do(ctx, append([]any{"ACL", "DRYRUN", name}, args...)...).Text()
				if err != nil {
					t.Fatal(err)
				}
				err = ours.Do(ctx, args...).Err()
				refused := err != nil && strings.HasPrefix(err.Error(), "NOPERM")
				if refused != (reply != "OK") {
					t.Errorf("%s %q, %s: %v; Redis says %s", how, line, command, err, reply)
				} else if refused && (strings.Contains(err.Error(), "keys") != strings.Contains(reply, "key") ||
					strings.Contains(err.Error(), "channels") != strings.Contains(reply, "channel")) {
					t.Errorf("%s %q, %s: %v; Redis says %s", how, line, command, err, reply)
				}
			}
			_ = ours.Close()
		}
	}
}

// TestSortOfOtherKeysAsRedis: BY and GET of SORT are for users who may read all keys.
func TestSortOfOtherKeysAsRedis(t *testing.T) {
	theirs := startRedis(t)
	us := New()
	addr := startOurs(t, us)
	for _, c := range []redis.Cmdable{theirs, redis.NewClient(&redis.Options{Addr: addr})} {
		if err := c.RPush(t.Context(), "l", "2", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for n, rules := range []string{
		"allkeys +sort +sort_ro", "allkeys +@all -get", "%R~* +sort ~l", "%R~* %W~to +sort_ro +sort", "~l +@all", "%W~* %R~l +@all",
		"~l +@all (~* +sort)", "~l +@all (~* +get)", "~l +@all (%R~* +sort)", "~l +sort (%R~* +sort_ro)", "~* -@all", "~* +sort (~* +sort_ro)",
	} {
		name := fmt.Sprint("u", n)
		args := []any{"ACL", "SETUSER", name, "on", "nopass"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		if err := theirs.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%q: %v", rules, err)
		}
		if err := us.Add("user " + name + " on nopass " + rules); err != nil {
			t.Fatalf("%q: %v", rules, err)
		}
		options := []*redis.Options{theirs.Options(), {Addr: addr, DisableIdentity: true}}
		var clients []*redis.Client
		for _, o := range options {
			o.Username, o.Password, o.Protocol = name, "any", 2
			c := redis.NewClient(o)
			defer func() { _ = c.Close() }()
			clients = append(clients, c)
		}
		for _, command := range []string{
			"SORT l BY w*", "SORT l BY nosort", "SORT l GET w*", "SORT l GET #", "SORT_RO l BY w* GET #", "SORT_RO l GET w*", "SORT l BY w* STORE to", "SORT l BY w* STORE other",
		} {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			want, got := clients[0].Do(t.Context(), args...), clients[1].Do(t.Context(), args...)
			if fmt.Sprint(want.Val(), want.Err()) != fmt.Sprint(got.Val(), got.Err()) {
				t.Errorf("%q, %s: %v; Redis says %v", rules, command, got, want)
			}
		}
	}
}
