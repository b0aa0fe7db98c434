package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type options struct {
	name    string
	clients int
	share   float64
	wait    time.Duration
	open    bool
	users   []string
	word    string
	token   string
	config  string
}

func (o *options) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.StringVar(&o.name, "name", "nobody", "whose it is, a `NAME`")
	flags.IntVar(&o.clients, "max-clients", 10, "connections at once")
	flags.Float64Var(&o.share, "share", 0.5, "share of it")
	flags.DurationVar(&o.wait, "wait", time.Second, "how long")
	flags.BoolVar(&o.open, "open", true, "for everybody")
	flags.StringArrayVar(&o.users, "user", nil, "who may")
	flags.StringVar(&o.word, "word", "", "the password")
	flags.StringVar(&o.token, "token", "", "`FILE` with what the variable has itself")
	flags.StringVar(&o.config, "config", "", "the file")
	Own.Set(flags, "token")
	Local.Set(flags, "config")
	Secret.Set(flags, "word", "user")
	return flags
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestPrecedence checks that the command line overrides the environment, and that overrides
// the file. This includes variables of flags marked by Own.
func TestPrecedence(t *testing.T) {
	t.Setenv("T_MAX_CLIENTS", "30")
	t.Setenv("T_NAME", "environment")
	t.Setenv("T_TOKEN", "environment")
	t.Setenv("T_USER", "alice on\nbob, too off\n")
	name := file(t, "name: file\nmax-clients: 40\nshare: 0.25\nopen: false\nword: 0123\ntoken: file\nuser: [carol]\n")
	var o options
	flags := o.flags()
	if err := flags.Parse([]string{"--name", "line"}); err != nil {
		t.Fatal(err)
	}
	if err := FromEnvironment(flags, "T_"); err != nil {
		t.Fatal(err)
	}
	if err := FromFile(flags, name); err != nil {
		t.Fatal(err)
	}
	if o.name != "line" || o.clients != 30 || o.share != 0.25 || o.open || o.wait != time.Second || o.word != "0123" || o.token != "" ||
		strings.Join(o.users, "|") != "alice on|bob, too off" {
		t.Errorf("%+v", o)
	}
}

// TestNewline checks that one newline at the end of a value is cut off, wherever it comes from.
func TestNewline(t *testing.T) {
	t.Setenv("T_WORD", "sesame\n")
	t.Setenv("T_MAX_CLIENTS", "30\n")
	var o options
	if err := FromEnvironment(o.flags(), "T_"); err != nil || o.word != "sesame" || o.clients != 30 {
		t.Errorf("%+v, %v", o, err)
	}
	for text, want := range map[string]string{
		"word: |\n  sesame\n":      "sesame",
		"word: \"sesame\\n\"\n":    "sesame",
		"word: \"sesame\\n\\n\"\n": "sesame\n",
		"word: \" sesame \"\n":     " sesame ",
		"user:\n- |\n  alice on\n": "alice on",
	} {
		var o options
		if err := FromFile(o.flags(), file(t, text)); err != nil || o.word+strings.Join(o.users, "|") != want {
			t.Errorf("%q: %q, %q, %v", text, o.word, o.users, err)
		}
	}
}

// TestPrint checks that the output is a file with the same values, without secrets.
func TestPrint(t *testing.T) {
	var o options
	flags := o.flags()
	args := []string{"--name", "true # no", "--max-clients", "7", "--open=false", "--word", "xyzzy", "--user", "alice on >plugh", "--wait", "90s"}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Print(&b, flags); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, hidden := range []string{"xyzzy", "plugh", "config"} {
		if strings.Contains(text, hidden) {
			t.Errorf("it shows %s:\n%s", hidden, text)
		}
	}
	if strings.Count(text, "# (set, but not shown)") != 2 || !strings.Contains(text, "# whose it is, a NAME\n") {
		t.Error(text)
	}
	var back options
	if err := FromFile(back.flags(), file(t, text)); err != nil {
		t.Fatal(err)
	}
	o.word, o.users = "", nil
	if back.name != o.name || back.clients != o.clients || back.share != o.share || back.wait != o.wait || back.open != o.open ||
		back.word != "" || back.users != nil {
		t.Errorf("%+v became %+v", o, back)
	}
}

// TestErrors checks that errors have the place of the mistake, and no secrets.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nnobody: b\n":    "line 2: nobody: unknown setting",
		"config: other.yaml\n":    "line 1: config: unknown setting",
		"help: true\n":            "line 1: help: unknown setting",
		"name: a\nname: b\n":      "line 2: name: is set twice",
		"max-clients: many\n":     "line 1: max-clients: \"many\": want a value of type int",
		"open: maybe\n":           "line 1: open: \"maybe\": want a value of type bool",
		"name: a\n---\nname: b\n": "line 2: a second document: want only one",
		"name: a\n---\n[\n":       "did not find",
		"max-clients: [1, 2]\n":   "line 1: max-clients: want one value",
		"name: {a: b}\n":          "line 1: name: want one value",
		"user: [[a]]\n":           "line 1: user: line 1: want a list of values",
		"- name\n":                "line 1: want a map",
		"name: [\n":               "yaml: ",
		"name: a\nword: null\n":   "line 2: word: null is no value",
		"word: ~\n":               "line 1: word: null is no value",
		"max-clients: # none\n":   "line 1: max-clients: null is no value",
		"open: null\n":            "line 1: open: null is no value",
		"user: null\n":            "line 1: user: null is no value",
		"user:\n- a\n- ~\n":       "line 1: user: line 3: null is no value",
		"word: \"null\"\n":        "",
		"# nothing\n":             "",
		"":                        "",
	} {
		var o options
		err := FromFile(o.flags(), file(t, text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := FromFile(new(options).flags(), filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Error(err)
	}
	t.Setenv("T_MAX_CLIENTS", "many")
	if err := FromEnvironment(new(options).flags(), "T_"); err == nil || !strings.Contains(err.Error(), "$T_MAX_CLIENTS: ") {
		t.Error(err)
	}
}

// TestTruths checks that booleans are accepted as in YAML and in Redis.
func TestTruths(t *testing.T) {
	for text, want := range map[string]bool{"yes": true, "no": false, "on": true, "off": false, "true": true, "False": false} {
		var o options
		if err := FromFile(o.flags(), file(t, "open: "+text+"\n")); err != nil || o.open != want {
			t.Errorf("%s: %v, %v", text, o.open, err)
		}
	}
}

// TestUnknown checks that variables with the prefix and without a flag are found.
func TestUnknown(t *testing.T) {
	t.Setenv("TT_MAX_CLIENTS", "30")
	t.Setenv("TT_MAX_CLIENT", "30")
	if got := Unknown(new(options).flags(), "TT_"); len(got) != 1 || got[0] != "TT_MAX_CLIENT" {
		t.Error(got)
	}
}
