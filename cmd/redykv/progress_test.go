package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redykv/redykv/kv"
)

// saidProgress notes what is drawn.
type saidProgress struct{ said []string }

func (p *saidProgress) Begin(stage string, total int64) {
	p.said = append(p.said, fmt.Sprint(stage, " ", total))
}
func (p *saidProgress) Add(n int64) { p.said = append(p.said, fmt.Sprint(n)) }
func (p *saidProgress) End()        { p.said = append(p.said, "end") }

// Each part of an opening has a bar, also one that is read again. An opening that fails leaves none.
func TestDrawOpening(t *testing.T) {
	if recovering, end := drawOpening(nil); recovering != nil {
		t.Error("something is drawn without a terminal")
	} else {
		end()
	}
	var p saidProgress
	recovering, end := drawOpening(&p)
	for _, i := range []kv.RecoveringInfo{
		{What: "index", Read: 4, Bytes: 10}, {What: "index", Read: 10, Bytes: 10}, {What: "log", Read: 5, Bytes: 9}, {What: "log", Read: 3, Bytes: 9},
	} {
		recovering(i)
	}
	end()
	end()
	want := []string{"reading the index 10", "4", "6", "end", "reading the log 9", "5", "end", "reading the log 9", "3", "end"}
	if !slices.Equal(p.said, want) {
		t.Errorf("%q, want %q", p.said, want)
	}
}

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
