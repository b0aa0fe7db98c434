package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern   string
		yes, noes string // separated by blanks
	}{
		{"a", "a", "b aa"},
		{"*", "a abc", ""},
		{"a*", "a ab abc", "ba"},
		{"*a", "a ba aba", "ab"},
		{"a*b*c", "abc axbxc abbcc", "acb ab"},
		{"*ab*ab*", "abab xabxabx aababb", "ab aba"},
		{"**a**", "a xax", "x"},
		{"h?llo", "hello hallo", "hllo heello"},
		{"h[ae]llo", "hello hallo", "hillo hllo"},
		{"h[^e]llo", "hallo hbllo", "hello"},
		{"h[a-c]llo", "hallo hbllo hcllo", "hdllo h-llo"},
		{"h[c-a]llo", "hbllo", "hdllo"},
		{"[a-]", "a ]", "b -"}, // the range is not closed
		{"[-a]", "a -", "b"},
		{`[\]]`, "]", `\`},
		{`[\a-c]`, "a - c", "b"},
		{`\*`, "*", "a"},
		{`\\`, `\`, "a"},
		{`a\`, `a\`, "a"},
		{"[ab", "a b", "c"},
		{"[^ab", "c", "a"},
		{"[", "", "a ["},
		{"[]", "", "a ]"},
		{"?[a]*", "xa xab", "x xb"},
		{"user:*:name", "user:1:name user::name", "user:1:names user:name"},
	} {
		for _, s := range strings.Fields(tc.yes) {
			if !Match([]byte(tc.pattern), []byte(s)) {
				t.Errorf("%q does not match %q", tc.pattern, s)
			}
		}
		for _, s := range strings.Fields(tc.noes) {
			if Match([]byte(tc.pattern), []byte(s)) {
				t.Errorf("%q matches %q", tc.pattern, s)
			}
		}
	}
	for pattern, want := range map[string]bool{"": true, "*": true, "**": true, "?": false, "a": false, "[^a]": false} {
		if Match([]byte(pattern), nil) != want {
			t.Errorf("%q and nothing: %t", pattern, !want)
		}
	}
}

// TestStars: a pattern of many stars that almost matches is fast.
func TestStars(t *testing.T) {
	pattern := []byte(strings.Repeat("*a", 1000) + "b")
	if Match(pattern, []byte(strings.Repeat("a", 5000))) {
		t.Error("it matches")
	}
}

// FuzzMatch compares Match with the definition.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{{"a*b?[c-e]", "axxbxd"}, {"**", ""}, {`[^\]-`, "-"}, {"*?*", "ab"}} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, pattern, s []byte) {
		if len(pattern) > 12 || len(s) > 12 {
			return
		}
		if got, want := Match(pattern, s), defined(pattern, s); got != want {
			t.Errorf("%q with %q: %t, want %t", pattern, s, got, want)
		}
	})
}

func defined(pattern, s []byte) bool {
	switch {
	case len(pattern) == 0:
		return len(s) == 0
	case pattern[0] == '*':
		return defined(pattern[1:], s) || len(s) > 0 && defined(pattern, s[1:])
	case len(s) == 0:
		return false
	}
	next, ok := one(pattern, 0, s[0])
	return ok && defined(pattern[next:], s[1:])
}
