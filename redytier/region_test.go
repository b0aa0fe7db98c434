package redytier

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The script has one region on server a, that moves to server b or is restored there. Each
// command prints the region afterwards.
func TestRegionStates(t *testing.T) {
	datadriven.Walk(t, "testdata/region", func(t *testing.T, path string) {
		var tb *table
		var a, b *endpoint
		var move, former *moving
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			cause := errors.New("gone")
			done := true
			switch d.Cmd {
			case "new":
				a, b = newEndpoint(&grant{vm: "a"}, oneSided), newEndpoint(&grant{vm: "b"}, oneSided)
				tb, move, former = newTable(MinRegionSize, MinRegionSize, oneSided), nil, nil
				tb.regions.resize(1)
				tb.restore(filled{place{endpoint: a}})
			case "begin":
				if m := tb.begin(place{endpoint: b}, holdWrites); m != nil {
					former, move = move, m
				} else {
					done = false
				}
			case "copy":
				tb.copy(move)
			case "stay":
				tb.stay(move)
			case "arrive":
				p := pulled{move}
				switch {
				case d.HasArg("unpulled"):
					p = pulled{}
				case d.HasArg("former"):
					p = pulled{former}
				}
				done = tb.arrive(p, d.HasArg("mirror"))
			case "lose":
				tb.regions.edit(0).lose(&cause)
			case "lose-b":
				b.grant.lost.Store(&cause)
			case "recover":
				tb.recover([]int{0})
			case "give-up":
				tb.giveUp([]int{0})
			case "restore":
				f := filled{place{endpoint: b}}
				if d.HasArg("unfilled") {
					f = filled{}
				}
				done = tb.restore(f)
			default:
				t.Fatalf("no command %s", d.Cmd)
			}
			return describe(tb.regions.at(0), done)
		})
	})
}

func describe(r *region, done bool) string {
	var s strings.Builder
	if !done {
		s.WriteString("refused; ")
	}
	s.WriteString(r.state.String())
	if r.endpoint != nil {
		fmt.Fprintf(&s, " on %s", r.endpoint.grant.vm)
	}
	if r.mirror != nil {
		fmt.Fprintf(&s, ", mirror on %s", r.mirror.grant.vm)
	}
	if r.gate != 0 {
		s.WriteString(", writes wait")
	}
	fmt.Fprintf(&s, ", %d losses\n", r.epoch)
	return s.String()
}
