package phase

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// player plays a script: every line is one call of a machine, and what is printed is what
// became of it and of the calls that waited, and the phases of all tracks.
type player struct {
	m     Machine
	calls map[string]*call
	steps map[string]*call
	order []string
}

// play plays one line.
func (p *player) play(line string) string {
	var out strings.Builder
	words := strings.Fields(line)
	name := words[0]
	switch verb := words[1]; verb {
	case "ends":
		p.m.End(p.calls[name].action)
	case "gives-up":
		fmt.Fprintf(&out, "%s: %v\n", name, p.m.cancel(p.calls[name], context.Canceled))
		delete(p.calls, name)
	case "tries":
		fmt.Fprintf(&out, "%s: %v\n", name, p.m.TryBegin(parse(words[2])))
	default:
		c := &call{parse(verb), p.calls[name] != nil, make(chan error, 1)}
		if p.steps[name] = c; !c.step {
			p.calls[name] = c
			p.order = append(p.order, name)
		}
		p.m.call(c)
		if len(c.begun) == 0 {
			fmt.Fprintf(&out, "%s waits\n", name)
		}
	}
	for _, name := range p.order {
		c := p.steps[name]
		if c == nil || len(c.begun) == 0 {
			continue
		}
		if err := <-c.begun; err != nil {
			fmt.Fprintf(&out, "%s: %v\n", name, err)
			delete(p.calls, name)
		} else {
			fmt.Fprintf(&out, "%s begins to %v\n", name, c.action)
		}
		delete(p.steps, name)
	}
	fmt.Fprintf(&out, "  %v\n", p.m.Phases())
	return out.String()
}

func parse(action string) Action {
	i := slices.Index(actionNames[:], action)
	if i < 0 {
		panic(action)
	}
	return Action(i)
}

// TestScripts plays testdata/scripts, and prints the table.
func TestScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/scripts", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "table" {
			return printTable()
		}
		p := &player{calls: map[string]*call{}, steps: map[string]*call{}}
		var out strings.Builder
		for _, line := range strings.Split(d.Input, "\n") {
			out.WriteString(line + "\n" + p.play(line))
		}
		return out.String()
	})
}

// printTable prints what becomes of each action in each phase.
func printTable() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%10s", "")
	for a := range actions {
		fmt.Fprintf(&out, " %10v", a)
	}
	for p := range phases {
		fmt.Fprintf(&out, "\n%10v", p)
		for a := range actions {
			text := [...]string{begin: ".", join: "join", wait: "wait", refuse: "refuse"}[table[p][a]]
			if slices.Contains(plans[a].from, p) && p != Resting {
				text = "step"
			}
			fmt.Fprintf(&out, " %10s", text)
		}
	}
	return out.String() + "\n"
}

// TestTable checks what must be so of every phase and action.
func TestTable(t *testing.T) {
	trackOf := map[Phase]track{}
	for a := range actions {
		for _, on := range plans[a].on {
			if was, ok := trackOf[plans[a].to]; ok && was != on && plans[a].to != Removing && plans[a].to != Closed {
				t.Errorf("phase %v is on two tracks", plans[a].to)
			}
			trackOf[plans[a].to] = on
		}
	}
	for p := Resting + 1; p < phases; p++ {
		if _, ok := trackOf[p]; !ok {
			t.Errorf("nothing leads to phase %v", p)
		}
		for a := range actions {
			begins := slices.Contains(plans[a].from, Resting)
			if begins && slices.Contains(plans[a].on, trackOf[p]) && table[p][a] == begin {
				t.Errorf("%v begins while its track is %v", a, p)
			}
		}
	}
	for a := range actions {
		if table[Resting][a] != begin {
			t.Errorf("%v does not begin at rest", a)
		}
	}
}

// TestNeverBothWrite has commits, checkpoints, removals and collections go on at once: no
// two write the manifest, and nothing is collected while a checkpoint is made.
func TestNeverBothWrite(t *testing.T) {
	var m Machine
	var manifest, objects atomic.Int32
	only := func(n *atomic.Int32, what string) {
		if n.Add(1) != 1 {
			t.Error(what)
		}
		n.Add(-1)
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(w, 1))
			for range 2000 {
				must := func(err error) {
					if err != nil {
						t.Error(err)
					}
				}
				switch rng.IntN(5) {
				case 0:
					must(m.Begin(ctx, Commit))
					must(m.Advance(ctx, Flush))
					must(m.Advance(ctx, Record))
					only(&manifest, "two write the manifest")
					m.End(Commit)
				case 1:
					must(m.Begin(ctx, Checkpoint))
					objects.Add(1)
					must(m.Advance(ctx, Save))
					must(m.Advance(ctx, Name))
					only(&manifest, "two write the manifest")
					objects.Add(-1)
					must(m.Advance(ctx, Collect))
					m.End(Checkpoint)
				case 2:
					must(m.Begin(ctx, Remove))
					must(m.Advance(ctx, Record)) // has no phase of its own
					only(&manifest, "two write the manifest")
					only(&objects, "files are removed while a checkpoint is made")
					m.End(Remove)
				case 3:
					if m.TryBegin(Collect) {
						only(&objects, "files are removed while a checkpoint is made")
						m.End(Collect)
					}
				default:
					ctx, cancel := context.WithCancel(ctx)
					go cancel()
					if m.Begin(ctx, Checkpoint) == nil {
						m.End(Checkpoint)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := m.Phases(); got != ([tracks]Phase{}) || len(m.waiting) != 0 {
		t.Errorf("%v at the end, %d wait", got, len(m.waiting))
	}
}

// TestGroups joins commits: those that come before the barrier share it.
func TestGroups(t *testing.T) {
	var m Machine
	ctx := context.Background()
	first, leads := m.Join()
	if !leads || m.Begin(ctx, Commit) != nil {
		t.Fatal("the first does not lead")
	}
	if g, leads := m.Join(); leads || g != first || m.Gathered() != 2 {
		t.Errorf("the second leads: %v; %d gathered", leads, m.Gathered())
	}
	if err := m.Advance(ctx, Flush); err != nil {
		t.Fatal(err)
	}
	second, leads := m.Join()
	if !leads || second == first || m.Gathered() != 1 || m.Follow() != first {
		t.Errorf("one that comes after the barrier shares the commit")
	}
	if g, leads := m.Join(); leads || g != second {
		t.Errorf("those that wait do not share a commit")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if ended, again, err := second.Wait(ended); ended || again || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting in vain: %v, %v, %v", ended, again, err)
	}
	failed := errors.New("failed")
	m.End(Commit)
	for n := range 3 { // the two that shared the first one, and the one that followed it
		if m.Follow() != nil || !m.Missing() {
			t.Errorf("%d have come back, and none is missing", n)
		}
		m.Join()
	}
	if m.Missing() {
		t.Error("all have come back, and one is missing")
	}
	m.Finish(first, failed, false)
	if ended, again, err := first.Wait(ctx); !ended || again || !errors.Is(err, failed) {
		t.Errorf("%v, %v, %v", ended, again, err)
	}
	m.Finish(second, context.Canceled, true) // its leader has given up
	if _, again, _ := second.Wait(ctx); !again || m.Gathered() != 0 {
		t.Errorf("the others do not try again; %d gathered", m.Gathered())
	}
}
