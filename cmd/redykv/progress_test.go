package main

import "testing"

func TestOneLine(t *testing.T) {
	for _, tc := range []struct {
		lines []string
		width int
		want  string
	}{
		{[]string{"VM a waits"}, 20, "VM a waits"},
		{[]string{"VM a waits"}, 6, "VM a w"},
		{[]string{"VM a waits", "VM b waits", "VM c waits"}, 20, "VM a wai, and 2 more"},
		{[]string{"VM \u00e9"}, 4, "VM "},
		{[]string{"VM a", "VM b"}, 0, ", and 1 more"},
	} {
		if got := oneLine(tc.lines, tc.width); got != tc.want {
			t.Errorf("%q in %d columns: %q, want %q", tc.lines, tc.width, got, tc.want)
		}
	}
}
