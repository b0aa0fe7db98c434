package acl

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/kv/resp"
)

const (
	ask   = resp.CategoryRead | resp.CategoryString | resp.CategoryFast
	store = resp.CategoryWrite | resp.CategoryString | resp.CategorySlow
	admin = resp.CategoryAdmin | resp.CategorySlow | resp.CategoryDangerous
)

// categoriesOf are the categories of some commands.
var categoriesOf = map[string]resp.Category{
	"get": ask, "set": store, "del": resp.CategoryWrite | resp.CategoryKeyspace,
	"config|get": admin, "config|set": admin, "flushall": resp.CategoryWrite | resp.CategoryDangerous,
}

func userOf(t *testing.T, rules string) resp.User {
	t.Helper()
	us := New()
	if err := us.Add("u on nopass " + rules); err != nil {
		t.Fatal(err)
	}
	return us.Authenticate([]byte("u"), nil)
}

func TestCommands(t *testing.T) {
	for rules, want := range map[string]string{
		"":                                      "",
		"+@all":                                 "get set del config|get config|set flushall",
		"allcommands":                           "get set del config|get config|set flushall",
		"+@all -@all":                           "",
		"+@all nocommands +get":                 "get",
		"+@read":                                "get",
		"+@read +@write -flushall":              "get set del",
		"+@all -@dangerous":                     "get set del",
		"+@all -@dangerous +config|get":         "get set del config|get",
		"+@all -config":                         "get set del flushall",
		"+@all -config +config|get":             "get set del config|get flushall",
		"+config -config|set":                   "config|get",
		"-config|set +config":                   "config|get config|set",
		"+GET +@STRING -set":                    "get",
		"+@all -@scripting -@pubsub +@blocking": "get set del config|get config|set flushall",
		"+get reset +set":                       "set",
	} {
		u := userOf(t, rules+" on nopass")
		for command, is := range categoriesOf {
			if got := u.MayRun(command, is); got != strings.Contains(" "+want+" ", " "+command+" ") {
				t.Errorf("%q and %s: %t", rules, command, got)
			}
		}
	}
	if (&commandRule{command: "con"}).fits("config|get", admin) {
		t.Error("a rule fits a command that begins like it")
	}
}

func TestKeys(t *testing.T) {
	const read, write = resp.AccessRead, resp.AccessWrite
	for _, tc := range []struct {
		rules, key string
		access     resp.Access
		want       bool
	}{
		{"", "a", read, false},
		{"~*", "a", read | write, true},
		{"allkeys", "a", read | write, true},
		{"allkeys resetkeys", "a", read, false},
		{"~cache:*", "cache:1", read | write, true},
		{"~cache:*", "other", read, false},
		{"~a ~b", "b", write, true},
		{"%R~a", "a", read, true},
		{"%R~a", "a", write, false},
		{"%W~a", "a", write, true},
		{"%W~a", "a", read, false},
		{"%W~a", "a", 0, true}, // only whether it exists
		{"%W~a", "b", 0, false},
		{"%R~a %W~a", "a", read | write, true},
		{"%R~a %W~a*", "a", read | write, false}, // as in Redis: a single pattern must allow all of the access
		{"%rw~a", "a", read | write, true},
	} {
		if got := userOf(t, tc.rules).MayUse([]byte(tc.key), tc.access); got != tc.want {
			t.Errorf("%q: key %s for %d: %t", tc.rules, tc.key, tc.access, got)
		}
	}
}

func TestChannels(t *testing.T) {
	for _, tc := range []struct {
		rules, channel string
		pattern, want  bool
	}{
		{"", "a", false, false},
		{"allchannels", "a", false, true},
		{"allchannels", "a*", true, true},
		{"&*", "any*", true, true},
		{"&news:*", "news:1", false, true},
		{"&news:*", "other", false, false},
		{"&news:*", "news:*", true, true},
		{"&news:*", "news:1*", true, false}, // as in Redis: a pattern must be allowed literally
		{"&news:*", "news:1", true, false},
		{"&a &b", "b", false, true},
		{"allchannels resetchannels", "a", false, false},
		{"&a resetchannels &b", "a", false, false},
		{"+@all ~*", "a", false, false}, // as with Redis's default of acl-pubsub-default
	} {
		if got := userOf(t, tc.rules).MayJoin([]byte(tc.channel), tc.pattern); got != tc.want {
			t.Errorf("%q: channel %s, pattern %t: %t", tc.rules, tc.channel, tc.pattern, got)
		}
	}
	if !New().Anonymous().MayJoin([]byte("a"), false) {
		t.Error("the default user may not use channels")
	}
}

func TestUnrestricted(t *testing.T) {
	for rules, want := range map[string]bool{
		"+@all ~*": true, "allcommands allkeys": true, "~* -get +@all": true, "+@all %RW~** &*": true,
		"": false, "+@all": false, "~*": false, "+@all ~* -get": false, "+@all %R~*": false, "+@all ~a*": false, "+@all ~": false,
	} {
		if got := userOf(t, rules).Unrestricted(); got != want {
			t.Errorf("%q: %t", rules, got)
		}
	}
}

func TestPasswords(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("hashed")))
	us := New()
	for _, line := range []string{
		"user alice on >one >two #" + sum,
		"bob off >b",
		"carol on nopass",
		"dave on",
		"erin on >one >two <one",
		"frank on nopass >f",
		"grace on #" + sum + " !" + sum,
	} {
		if err := us.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, password string
		want           bool
	}{
		{"alice", "one", true},
		{"alice", "two", true},
		{"alice", "hashed", true},
		{"alice", "three", false},
		{"alice", "", false},
		{"bob", "b", false},
		{"carol", "anything", true},
		{"dave", "", false},
		{"erin", "one", false},
		{"erin", "two", true},
		{"frank", "x", false},
		{"frank", "f", true},
		{"grace", "hashed", false},
		{"nobody", "", false},
		{"default", "anything", true},
	} {
		u := us.Authenticate([]byte(tc.name), []byte(tc.password))
		if (u != nil) != tc.want || u != nil && u.Name() != tc.name {
			t.Errorf("%s with %q: %v", tc.name, tc.password, u)
		}
	}
}

// TestDefaultUser: clients are the default user as long as it has no password.
func TestDefaultUser(t *testing.T) {
	us := New()
	if u := us.Anonymous(); u == nil || u.Name() != resp.DefaultUser || !u.Unrestricted() {
		t.Errorf("%v", u)
	}
	us.Require("secret")
	if us.Anonymous() != nil || us.Authenticate([]byte("default"), []byte("wrong")) != nil {
		t.Error("a password is required, and not needed")
	}
	if u := us.Authenticate([]byte("default"), []byte("secret")); u == nil || !u.Unrestricted() {
		t.Errorf("%v", u)
	}
	if err := us.Add("default off"); err != nil {
		t.Fatal(err)
	}
	if us.Anonymous() != nil || us.Authenticate([]byte("default"), []byte("secret")) != nil {
		t.Error("a user that is off is let in")
	}
}

func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "no user name",
		"  ":                            "no user name",
		"u nonsense":                    "user u: rule 1: want on, off",
		"u on +@nonsense":               `rule 2: unknown category "nonsense"`,
		"u +nonsense":                   `unknown command "nonsense"`,
		"u +config|nothing":             `unknown command "config nothing"`,
		"u #12":                         "want 64 hexadecimal digits",
		"u #" + strings.Repeat("x", 64): "want 64 hexadecimal digits",
		"u #" + strings.Repeat("0", 66): "want 64 hexadecimal digits",
		"u <none":                       "does not have the password to remove",
		"u %~a":                         "want %R~pattern",
		"u %X~a":                        "want %R~pattern",
		"u %R":                          "want %R~pattern",
		"u on (+get ~a":                 "rule 2: no closing parenthesis",
		"u (+get (~a))":                 "rule 1: rule 2 of a selector: want on, off",
		"u (on)":                        "rule 1 of a selector: want on, off",
		"u -select|0":                   "can only be allowed, not forbidden",
		"u +set|x|y":                    "want only the first",
		"u +config|get|x":               `unknown command "config get x"`,
	} {
		us := New()
		err := us.Add(line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
		if us.Authenticate([]byte("u"), nil) != nil {
			t.Errorf("%q adds a user", line)
		}
	}
	err := New().Add("u sesame!secret")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error shows what may be a password: %v", err)
	}
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	for text, want := range map[string]string{
		"# some\n\nuser a on nopass ~* +@all\r\nuser b on >b\n": "",
		"a on\n":                 "line 1: want the word user, a name and rules",
		"user\n":                 "line 1: want the word user, a name and rules",
		"user a on\nuser a on\n": "line 2: user a is defined twice",
		"\nuser a +nothing":      "line 2: acl: user a: rule 1: unknown command",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		us := New()
		err := us.AddFile(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && (us.Authenticate([]byte("a"), nil) == nil || us.Authenticate([]byte("b"), []byte("b")) == nil) {
			t.Errorf("%q: not all users are there", text)
		}
	}
	if err := New().AddFile(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) && err == nil {
		t.Error("no file is read")
	}
}

// FuzzAdd: Add adds the user or returns an error, for any rules.
func FuzzAdd(f *testing.F) {
	for _, seed := range []string{"u on >p ~a* +@all -config|get", "u %RW~[a-", "u #00", "u + - @ > <"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		us := New()
		if us.Add(line) != nil {
			return
		}
		name := strings.Fields(line)[0]
		if name == "user" && len(strings.Fields(line)) > 1 {
			name = strings.Fields(line)[1]
		}
		if us.byName[name] == nil {
			t.Errorf("%q adds no user", line)
		}
	})
}
