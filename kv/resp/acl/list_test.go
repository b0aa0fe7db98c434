package acl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redykv/redykv/kv/resp"
)

// dialOurs returns a client of a server with users.
func dialOurs(t *testing.T, addr, user, password string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, Username: user, Password: password})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func words(line string) (args []any) {
	for _, word := range strings.Fields(line) {
		args = append(args, word)
	}
	return args
}

// TestChangesAsRedis compares changes of users, and what is listed of them then, with Redis.
func TestChangesAsRedis(t *testing.T) {
	theirs := startRedis(t)
	ours := dialOurs(t, startOurs(t, New()), "", "")
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(29, 2))
	more := strings.Fields(`on off nopass >p1 >p2 <p1 <p2 resetpass reset nonsense +nonsense +@nonsense -select|0 #12 ~k2 &c2 %X~a (+get (~a) (+get) +config|get|x +select| ` +
		`#0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef !0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef ~a%R~b %RW~k3`)
	for n := range 600 {
		line := fmt.Sprintf("ACL SETUSER u%d ", n%20) + rules(rng, 4, true)
		for range rng.IntN(3) {
			line += " " + more[rng.IntN(len(more))]
		}
		lines := []string{line, fmt.Sprintf("ACL GETUSER u%d", n%20)}
		if rng.IntN(20) == 0 {
			lines = append(lines, fmt.Sprintf("ACL DELUSER u%d none", n%20), "ACL USERS")
		}
		for _, line := range lines {
			want, wantErr := theirs.Do(ctx, words(line)...).Result()
			got, gotErr := ours.Do(ctx, words(line)...).Result()
			if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
				t.Fatalf("%s: %v; Redis: %v", line, gotErr, wantErr)
			}
			if strings.HasPrefix(line, "ACL GETUSER") {
				want, got = withoutCommands(want), withoutCommands(got)
			}
			if !reflect.DeepEqual(want, got) {
				t.Fatalf("%s: %v; Redis: %v", line, got, want)
			}
		}
	}
	for _, line := range []string{
		"ACL GETUSER none", "ACL DELUSER default", "ACL DELUSER u3 default u4", "ACL USERS", "ACL GENPASS 0", "ACL GENPASS 5000", "ACL GENPASS x", "ACL GENPASS 1 2", "ACL LOAD", "ACL SAVE", "ACL WHOAMI", "ACL LOG -1",
		"ACL LOG x", "ACL LOG reset", "ACL DRYRUN none get a", "ACL DRYRUN default nothing", "ACL DRYRUN default get", "ACL DRYRUN default get a", "ACL NOTHING", "ACL SETUSER",
		"ACL SETUSER dry on nopass ~k* %R~r &c* +get +set +publish +psubscribe +mget +config|get", "ACL DRYRUN dry get k", "ACL DRYRUN dry get x", "ACL DRYRUN dry set r v", "ACL DRYRUN dry mget r k x",
		"ACL DRYRUN dry del k", "ACL DRYRUN dry publish c m", "ACL DRYRUN dry publish x m", "ACL DRYRUN dry psubscribe c*", "ACL DRYRUN dry psubscribe x*", "ACL DRYRUN dry config get a", "ACL DRYRUN dry config set a b",
		"ACL SETUSER dry +bitfield", "ACL DRYRUN dry bitfield r get u8 0", "ACL DRYRUN dry bitfield r OVERFLOW sat GET u8 #1 get i5 3", "ACL DRYRUN dry bitfield r", "ACL DRYRUN dry bitfield x get u8 0",
		"ACL DRYRUN dry bitfield r set u8 0 1", "ACL DRYRUN dry bitfield r get u8 0 set u8 0 1", "ACL DRYRUN dry bitfield r incrby u8 0 1", "ACL DRYRUN dry bitfield r get u8", "ACL DRYRUN dry bitfield r get u8 0 nonsense",
		"COMMAND GETKEYSANDFLAGS bitfield r get u8 0", "COMMAND GETKEYSANDFLAGS bitfield r get u8 0 incrby u8 0 1",
	} {
		want, wantErr := theirs.Do(ctx, words(line)...).Result()
		got, gotErr := ours.Do(ctx, words(line)...).Result()
		if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, %v; Redis: %v, %v", line, got, gotErr, want, wantErr)
		}
	}
}

// withoutCommands removes the rules on commands from ACL GETUSER's reply: Redis 7.0 simplifies them
// more than later versions.
func withoutCommands(reply any) any {
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		switch list[i] {
		case "commands":
			list[i+1] = ""
		case "selectors":
			for _, s := range list[i+1].([]any) {
				withoutCommands(s)
			}
		}
	}
	return list
}

// TestChangesTakeEffect: connected clients have the permissions that their user has at the time of
// the command.
func TestChangesTakeEffect(t *testing.T) {
	ctx := t.Context()
	us := New()
	if err := us.Add("a on >p ~* &* +@all"); err != nil {
		t.Fatal(err)
	}
	addr := startOurs(t, us)
	admin, a := dialOurs(t, addr, "", ""), dialOurs(t, addr, "a", "p")
	if err := a.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ change, command, refused string }{
		{"ACL SETUSER a -set", "SET k w", "run the 'set'"},
		{"ACL SETUSER a +set", "SET k w", ""},
		{"ACL SETUSER a resetkeys ~x", "GET k", "access one of the keys"},
		{"ACL SETUSER a (~k +get)", "GET k", ""},
		{"ACL SETUSER a clearselectors", "GET k", "access one of the keys"},
		{"ACL SETUSER a resetkeys %R~k", "BITFIELD k OVERFLOW FAIL GET u8 0", ""},
		{"ACL SETUSER a +bitfield", "BITFIELD k GET u8 0 SET u8 0 1", "access one of the keys"},
		{"ACL SETUSER a resetchannels", "PUBLISH c m", "access one of the channels"},
	} {
		if err := admin.Do(ctx, words(step.change)...).Err(); err != nil {
			t.Fatal(err)
		}
		err := a.Do(ctx, words(step.command)...).Err()
		if (err == nil) != (step.refused == "") || err != nil && !strings.Contains(err.Error(), step.refused) {
			t.Errorf("%s after %s: %v", step.command, step.change, err)
		}
	}
	log, err := admin.ACLLog(ctx, 10).Result()
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, e := range log {
		reasons = append(reasons, fmt.Sprintf("%d %s %s %s %s", e.Count, e.Reason, e.Context, e.Object, e.Username))
	}
	if got, want := strings.Join(reasons, " "), "1 channel toplevel c a 3 key toplevel k a 1 command toplevel set a"; got != want {
		t.Errorf("ACL LOG: %s, want %s", got, want)
	}
	if n, err := admin.ACLDelUser(ctx, "a").Result(); err != nil || n != 1 {
		t.Errorf("ACL DELUSER: %d, %v", n, err)
	}
	if err := a.Get(ctx, "k").Err(); err == nil {
		t.Error("a deleted user reads")
	}
}

// TestSubscribersLeave: a client is disconnected if its user may not use its channels any more.
func TestSubscribersLeave(t *testing.T) {
	ctx := t.Context()
	us := New()
	if err := us.Add("a on nopass &* +@all"); err != nil {
		t.Fatal(err)
	}
	addr := startOurs(t, us)
	admin, a := dialOurs(t, addr, "", ""), dialOurs(t, addr, "a", "p")
	sub := a.Subscribe(ctx, "c")
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	for change, left := range map[string]int64{"&c": 1, "resetchannels &d": 0} {
		if change == "&c" {
			change = "resetchannels &c"
		}
		if err := admin.Do(ctx, words("ACL SETUSER a "+change)...).Err(); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			if _, err := sub.Receive(ctx); err == nil {
				t.Error("the subscriber is still connected")
			}
			break
		}
	}
	_ = sub.Close()
}

// TestSaveAndLoad: ACL SAVE writes what ACL LOAD reads.
func TestSaveAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("user a on nopass ~* +@all\nuser b on >b\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	us := New()
	if err := us.AddFile(file); err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{us.Set("c", strings.Fields("on >c ~c* (%R~x +@read)")), us.Set("a", []string{"-flushall"}), us.Save()} {
		if step != nil {
			t.Fatal(step)
		}
	}
	saved := us.Lines()
	us.Delete("c")
	if err := us.Set("d", []string{"on"}); err != nil {
		t.Fatal(err)
	}
	if err := us.Load(); err != nil {
		t.Fatal(err)
	}
	if got := us.Lines(); !reflect.DeepEqual(got, saved) {
		t.Errorf("%q, want %q", got, saved)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(file, []byte("user x +nonsense\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := us.Load(); err == nil || us.Has([]byte("x")) || !us.Has([]byte("a")) {
		t.Errorf("a wrong file: %v", err)
	}
	if err := New().Save(); !errors.Is(err, resp.ErrNoUsersFile) {
		t.Error(err)
	}
}

// FuzzSet: a user whose rules are accepted is listed in a line that makes the same user.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{"on >p ~a* +@all -config|get", "%RW~[a-", "(~k +get) (+@read", "+select|0 -select +@stream -xadd", "reset &c nopass", "(", "+get|"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rules string) {
		us, again := New(), New()
		if us.Set("u", strings.Split(rules, " ")) != nil {
			if us.Has([]byte("u")) {
				t.Error("refused rules make a user")
			}
			return
		}
		for _, line := range us.Lines() {
			if err := again.Add(line); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		if got, want := again.Lines(), us.Lines(); !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
