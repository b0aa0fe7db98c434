package resp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// testUsers has two users: a reader of keys that begin with r, and an admin.
type testUsers struct{ anonymous User }

func (u testUsers) Anonymous() User { return u.anonymous }

func (testUsers) Has(name []byte) bool {
	return string(name) == "reader" || string(name) == DefaultUser
}

func (u testUsers) Authenticate(name, password []byte) User {
	switch string(name) + ":" + string(password) {
	case "reader:pw":
		return reader{}
	case "default:pw":
		return everybody{}
	}
	return nil
}

type reader struct{}

func (reader) Name() string       { return "reader" }
func (reader) Unrestricted() bool { return false }
func (reader) MayRun(command string, is Category) bool {
	return is&(CategoryRead|CategoryTransaction|CategoryConnection) != 0 || command == "copy" || command == "set" || command == "sort"
}
func (reader) MayJoin([]byte, bool) bool { return false }
func (reader) Selectors() []Permissions  { return nil }
func (reader) MayUseAll(Access) bool     { return false }
func (reader) MayUse(key []byte, a Access) bool {
	return strings.HasPrefix(string(key), "r") && a&AccessWrite == 0 || strings.HasPrefix(string(key), "w") && a&AccessRead == 0
}

func TestUsers(t *testing.T) {
	s, addr := start(t, inMemory(), Options{Users: testUsers{}})
	p := dial(t, addr)
	for _, tc := range []struct{ command, want string }{
		{"GET r", "-" + errNoAuth},
		{"NONSENSE", "-ERR unknown command 'NONSENSE', with args beginning with: "},
		{"HELLO 3", "-" + errNoHello},
		{"AUTH bad", "-" + errWrongPassword},
		{"AUTH reader bad", "-" + errWrongPassword},
		{"AUTH a b c", "-" + errSyntax},
		{"AUTH reader pw", "+OK"},
		{"ACL WHOAMI", "-NOPERM this user has no permissions to run the 'acl|whoami' command"},
		{"GET r", "nil"},
		{"GET x", "-" + errNoKeyPermission},
		{"MGET r r1 x", "-" + errNoKeyPermission},
		{"DEL r", "-NOPERM this user has no permissions to run the 'del' command"},
		{"SET w 1", "+OK"},
		{"SET w 1 GET", "-" + errNoKeyPermission},
		{"SET r 1", "-" + errNoKeyPermission},
		{"STRLEN w", ":1"},
		{"EXISTS r", ":0"},
		{"TYPE x", "-" + errNoKeyPermission},
		{"COPY r w2", ":0"},
		{"COPY w r2", "-" + errNoKeyPermission},
		{"SORT r STORE secret BY store ALPHA", "-" + errNoKeyPermission},
		{"SORT r STORE secret GET store LIMIT 0 store", "-" + errNoKeyPermission},
		{"MULTI", "+OK"},
		{"GET x", "-" + errNoKeyPermission},
		{"EXEC", "-" + errExecAborted},
		{"RESET", "+RESET"},
		{"GET r", "-" + errNoAuth},
		{"AUTH pw", "+OK"},
		{"ACL WHOAMI", `"default"`},
		{"GET w", `"1"`},
		{"HELLO 2 AUTH reader bad", "-" + errWrongPassword},
		{"ACL CAT transaction", `["multi" "exec" "discard" "watch" "unwatch"]`},
		{"ACL CAT none", "-ERR Unknown category 'none'"},
	} {
		if got := p.do(strings.Fields(tc.command)...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.command, got, tc.want)
		}
	}
	// Until a client has authenticated, its commands are limited.
	q := dial(t, addr)
	q.send("*11\r\n")
	if got := q.reply(); got != "-ERR Protocol error: unauthenticated multibulk length" {
		t.Error(got)
	}
	q = dial(t, addr)
	q.send("*2\r\n$3\r\nGET\r\n$16385\r\n")
	if got := q.reply(); got != "-ERR Protocol error: unauthenticated bulk length" {
		t.Error(got)
	}
	if got := p.do("MGET", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"); !strings.HasPrefix(got, "[nil") {
		t.Error(got)
	}
	if n := s.stats.deniedLogins.Load(); n != 3 {
		t.Errorf("%d logins were denied, want 3", n)
	}
}

// keyNotes matches Redis's notes in key specifications.
var keyNotes = regexp.MustCompile(`"notes" "[^"]*" `)

// TestCommandsAsRedisDescribesThem compares the arity, flags, keys and categories of all
// commands with Redis's.
func TestCommandsAsRedisDescribesThem(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	for _, cmd := range commandTable().all {
		if cmd.name == "client|setinfo" { // added in a later version
			continue
		}
		want, got := elementsOf(elementsOf(redis.do("COMMAND", "INFO", cmd.name))[0]), elementsOf(elementsOf(ours.do("COMMAND", "INFO", cmd.name))[0])
		if len(want) < 9 {
			t.Errorf("Redis does not know %s", cmd.name)
			continue
		}
		for i, what := range []string{"name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specifications"} {
			if what == "tips" { // about clusters only
				continue
			}
			want[i] = keyNotes.ReplaceAllString(want[i], "")
			if what == "arity" && strings.HasSuffix(cmd.name, "rank") { // a later version added WITHSCORE
				continue
			}
			if sorted(got[i]) != sorted(want[i]) || got[i] != want[i] && sorted(got[i]) == "" {
				t.Errorf("%s of %s: %s, Redis has %s", what, cmd.name, got[i], want[i])
			}
		}
	}
}

// TestSizeAndScan: DBSIZE is exact and immediate, and SCAN returns all keys.
func TestSizeAndScan(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{})
			p := dial(t, addr)
			const n = 3000
			r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
			want := map[string]bool{}
			for i := range n {
				key := fmt.Sprint("key", r.IntN(n/2))
				if i%3 == 2 {
					p.send(encode("DEL", key))
					delete(want, key)
				} else {
					p.send(encode("SET", key, "1"))
					want[key] = true
				}
				if p.reply(); i%500 == 0 {
					if got := p.do("DBSIZE"); got != fmt.Sprint(":", len(want)) {
						t.Fatalf("%s keys, want %d", got, len(want))
					}
				}
			}
			found := map[string]bool{}
			for cursor, steps := "0", 0; cursor != "0" || steps == 0; steps++ {
				parts := elementsOf(p.do("SCAN", cursor, "COUNT", "100", "TYPE", "string"))
				cursor = strings.Trim(parts[0], `"`)
				for _, key := range elementsOf(parts[1]) {
					if key, err := strconv.Unquote(key); err == nil {
						found[key] = true
					}
				}
			}
			if len(found) != len(want) {
				t.Errorf("SCAN finds %d keys, want %d", len(found), len(want))
			}
			all := elementsOf(p.do("KEYS", "*"))
			if slices.Sort(all); len(slices.Compact(all)) != len(want) {
				t.Errorf("KEYS finds %d keys, want %d", len(all), len(want))
			}
			seen := map[string]bool{}
			for range 50 {
				key, err := strconv.Unquote(p.do("RANDOMKEY"))
				if err != nil || !want[key] {
					t.Fatalf("a random key is %q, %v", key, err)
				}
				seen[key] = true
			}
			if len(seen) < 5 {
				t.Errorf("of 50 random keys %d differ", len(seen))
			}
			if got := p.do("FLUSHALL") + p.do("DBSIZE") + p.do("RANDOMKEY") + p.do("KEYS", "*"); got != "+OK:0nil[]" {
				t.Error(got)
			}
		})
	}
}

// TestAdministration checks CLIENT LIST, KILL, SLOWLOG, LATENCY and INFO.
func TestAdministration(t *testing.T) {
	asked := make(chan struct{}, 1)
	_, addr := start(t, inMemory(), Options{
		Shutdown: func() { asked <- struct{}{} },
		Settings: []Setting{{Name: "tender", Get: func() string { return "yes" }, Set: func(string) error { return errors.New("no") }}},
	})
	p, q := dial(t, addr), dial(t, addr)
	if got := q.do("CLIENT", "SETNAME", "q") + q.do("SET", "a", "1") + q.do("CLIENT", "SETINFO", "LIB-NAME", "lib"); got != "+OK+OK+OK" {
		t.Fatal(got)
	}
	list := p.do("CLIENT", "LIST")
	if strings.Count(list, `\n`) != 2 || !strings.Contains(list, "name=q ") || !strings.Contains(list, "lib-name=lib ") {
		t.Error(list)
	}
	id := strings.TrimPrefix(q.do("CLIENT", "ID"), ":")
	if got := p.do("CLIENT", "LIST", "ID", id); strings.Count(got, `\n`) != 1 || !strings.Contains(got, "id="+id+" ") {
		t.Error(got)
	}
	if got := p.do("CLIENT", "KILL", "ID", id) + p.do("CLIENT", "KILL", "1.2.3.4:5"); got != ":1-"+errNoClient {
		t.Error(got)
	}
	q.expectEnd()

	if got := p.do("CONFIG", "SET", "slowlog-log-slower-than", "0") + p.do("SET", "a", strings.Repeat("v", 1000)); got != "+OK+OK" {
		t.Error(got)
	}
	if got := p.do("SLOWLOG", "GET"); !strings.Contains(got, `"SET" "a" "`+strings.Repeat("v", slowBytes)+`... (872 more bytes)"`) {
		t.Error(got)
	}
	if got := p.do("CONFIG", "SET", "slowlog-max-len", "1") + p.do("SLOWLOG", "LEN"); got != "+OK:1" {
		t.Error(got)
	}
	if got := p.do("CONFIG", "SET", "tender", "1") + p.do("CONFIG", "GET", "tender"); got != `-ERR CONFIG SET failed (possibly related to argument 'tender') - no["tender" "yes"]` {
		t.Error(got)
	}
	if got := p.do("LATENCY", "HISTOGRAM", "set"); !strings.HasPrefix(got, `["set" ["calls" :2 "histogram_usec" [:`) {
		t.Error(got)
	}
	if got := p.do("INFO", "commandstats"); !strings.Contains(got, "cmdstat_set:calls=2,") {
		t.Error(got)
	}
	if got := p.do("CONFIG", "RESETSTAT") + p.do("LATENCY", "HISTOGRAM", "set"); got != "+OK[]" {
		t.Error(got)
	}
	before, err := strconv.Atoi(strings.TrimPrefix(p.do("LASTSAVE"), ":"))
	if got := p.do("SAVE"); got != "+OK" || err != nil {
		t.Error(got, err)
	}
	if after, err := strconv.Atoi(strings.TrimPrefix(p.do("LASTSAVE"), ":")); err != nil || after < before {
		t.Error(after, err)
	}
	if got := p.do("BGSAVE"); got != "+Background saving started" {
		t.Error(got)
	}
	if got := p.do("MEMORY", "USAGE", "a"); got != ":1040" {
		t.Error(got)
	}
	if got := p.do("SHUTDOWN", "NONSENSE"); got != "-"+errSyntax {
		t.Error(got)
	}
	p.send(encode("SHUTDOWN"))
	p.expectEnd()
	testrun.Receive(t, "the server is asked to shut down", asked)
}
