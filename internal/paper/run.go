package paper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/ycsb"
)

// Files in the directory of a run.
const (
	HeadFile         = "run.json"
	MeasurementsFile = "measurements.jsonl"
	CSVFile          = "measurements.csv"
	ClaimsFile       = "claims.jsonl"
	ReportFile       = "report.html"
)

// Head describes the circumstances of a run. Its JSON form is the file run.json.
type Head struct {
	Machine   string    `json:"machine"`
	Kernel    string    `json:"kernel"`
	Revision  string    `json:"revision"`
	Scale     Scale     `json:"scale"`
	Transport string    `json:"transport"`
	Net       string    `json:"net"`
	Started   time.Time `json:"started"`
	Trace     string    `json:"trace,omitempty"` // file of the trace of VMs; empty if it is synthetic
	LeftOut   []LeftOut `json:"left_out,omitempty"`
}

// Revisions names the revision that measured the run, and this program's, which judges it, if it
// is another.
func (h Head) Revisions() string {
	if judge := machine.Revision(); judge != h.Revision {
		return fmt.Sprintf("measured by %s, judged by %s", h.Revision, judge)
	}
	return h.Revision
}

// ErrNoRoom means that the machine is large enough for a trial, but too little of it is free.
// Nothing was measured.
var ErrNoRoom = errors.New("no room")

// ErrOtherRun means that the directory holds a run with other circumstances, which this run
// cannot continue.
var ErrOtherRun = errors.New("another run")

// Workspace is the directory of a run.
type Workspace struct {
	Head
	Dir     string
	Journal *Journal
}

// OpenWorkspace starts a run in dir, or continues the one in it. A continued run needs the
// same scale, transport, network, trace, machine and revision; otherwise the error is
// ErrOtherRun. It keeps the sizes of its scale, even if the machine has less free now.
func OpenWorkspace(dir string, head Head) (*Workspace, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory of the report: %w", err)
	}
	head.Machine, head.Kernel, head.Revision = machine.Describe(), machine.Kernel(), machine.Revision()
	old, err := ReadHead(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		head.Started = time.Now().Truncate(time.Second)
	case err != nil:
		return nil, err
	default:
		for _, same := range []struct{ what, was, is string }{
			{"scale", old.Scale.Name, head.Scale.Name}, {"transport", old.Transport, head.Transport}, {"network", old.Net, head.Net},
			{"trace", old.Trace, head.Trace}, {"machine", old.Machine, head.Machine}, {"revision", old.Revision, head.Revision},
		} {
			if same.was != same.is {
				return nil, fmt.Errorf("%s has %w, of %s %q, and this one is of %q", dir, ErrOtherRun, same.what, same.was, same.is)
			}
		}
		head = old
	}
	w := &Workspace{Head: head, Dir: dir}
	if w.Journal, err = OpenJournal(filepath.Join(dir, MeasurementsFile)); err != nil {
		return nil, err
	}
	return w, w.saveHead()
}

// ReadHead reads the circumstances of the run in dir.
func ReadHead(dir string) (Head, error) {
	var h Head
	path := filepath.Join(dir, HeadFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return h, fmt.Errorf("no run: %w", err)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// ReadRun reads the circumstances and the measurements of the run in dir.
func ReadRun(dir string) (Head, *Data, error) {
	h, err := ReadHead(dir)
	if err != nil {
		return h, nil, err
	}
	path := filepath.Join(dir, MeasurementsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return h, nil, fmt.Errorf("no measurements: %w", err)
	}
	all, err := ReadMeasurements(bytes.NewReader(wholeLines(text)))
	if err != nil {
		return h, nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, NewData(all), nil
}

func (w *Workspace) saveHead() error {
	return writeFile(filepath.Join(w.Dir, HeadFile), func(out io.Writer) error {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(w.Head)
	})
}

// Standing is the progress of a run.
type Standing struct {
	Trial, Turn string        // the turn that begins now
	Done, Turns int           // numbers of turns in all trials
	Left        time.Duration // estimate for the remaining turns
}

// Watcher receives the progress of a run.
type Watcher struct {
	// Turn, if set, is called at the beginning of every turn.
	Turn func(Standing)
	// Trial, if set, is called for every trial that is complete, with the number of turns that
	// were measured now and their time.
	Trial func(name string, turns int, took time.Duration)
	// Progress, if set, receives progress within a turn.
	Progress ycsb.Progress
}

// Run measures the missing turns of the figures' trials; with again, all of them. Measurements
// are stored after every turn, so an error loses only the current turn.
func Run(ctx context.Context, w *Workspace, b *Bench, figures []Figure, again bool, watch Watcher) error {
	watch.Progress = bench.OrQuiet(watch.Progress)
	all, err := prepare(w, b, figures, again)
	if err != nil {
		return err
	}
	pace := newPace(all)
	for _, t := range all {
		began, measured := time.Now(), 0
		for _, turn := range t.turns {
			if turn.done {
				continue
			}
			if watch.Turn != nil {
				watch.Turn(pace.standing(t.name, turn.name))
			}
			start := time.Now()
			some, err := turn.measure(ctx, watch.Progress)
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				for i := range some {
					some[i].Trial, some[i].Turn = t.name, turn.name
				}
				err = w.Journal.Append(some)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", t.name, err), t.close())
			}
			pace.ended(t.name, turn, time.Since(start))
			measured++
		}
		if err := t.close(); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if watch.Trial != nil {
			watch.Trial(t.name, measured, time.Since(began))
		}
	}
	return nil
}

func (p *plan) close() error {
	if p.end == nil {
		return nil
	}
	return p.end()
}

// prepare plans each trial of figures once. Measurements that again replaces are dropped only
// if the whole trial can be measured.
func prepare(w *Workspace, b *Bench, figures []Figure, again bool) ([]*plan, error) {
	b.Scale = w.Scale
	var all []*plan
	var names []string
	for _, f := range figures {
		if slices.Contains(names, f.Trial) {
			continue
		}
		names = append(names, f.Trial)
		t, err := trialOf(f.Trial).plan(b)
		if errors.Is(err, errLeftOut) {
			b.leave(f.Trial, "all", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Trial, err)
		}
		t.name = f.Trial
		for i := range t.turns {
			t.turns[i].done = !again && w.Journal.has(f.Trial, t.turns[i].name, t.turns[i].series)
		}
		if slices.ContainsFunc(t.turns, func(t turn) bool { return !t.done }) {
			switch never, err := b.Stock.check(t.need); {
			case never:
				b.leave(f.Trial, "all", err)
				continue
			case err != nil:
				return nil, fmt.Errorf("%w for %s: %w", ErrNoRoom, f.Trial, err)
			}
		}
		all = append(all, t)
	}
	if again {
		for _, p := range all {
			if err := w.Journal.Drop(p.name); err != nil {
				return nil, err
			}
		}
	}
	// Entries of other trials are kept.
	w.LeftOut = slices.DeleteFunc(w.LeftOut, func(l LeftOut) bool { return slices.Contains(names, l.Trial) })
	w.LeftOut = append(w.LeftOut, b.leftOut...)
	return all, w.saveHead()
}

// pace estimates the remaining time: the planned time of the remaining turns, times the ratio
// of actual to planned time so far. Loading and measuring are estimated separately.
type pace struct {
	done, turns    int
	measures, load span
	loaded         string // trial and load of the previous turn
}

// span compares planned with actual time.
type span struct {
	left        time.Duration // planned time that remains
	meant, took time.Duration // planned and actual time of finished turns
}

// real scales a planned time by the ratio so far.
func (s *span) real(meant time.Duration) time.Duration {
	if s.meant <= 0 || s.took <= 0 {
		return meant
	}
	return time.Duration(float64(meant) * float64(s.took) / float64(s.meant))
}

func (s *span) ended(meant, took time.Duration) {
	s.left -= meant
	s.meant += meant
	s.took += took
}

func newPace(all []*plan) *pace {
	p := new(pace)
	for _, t := range all {
		for _, turn := range t.turns {
			p.turns++
			if turn.done {
				p.done++
				continue
			}
			p.measures.left += turn.lasts
			p.load.left += p.loads(t.name, turn.loads)
		}
	}
	p.loaded = ""
	return p
}

// loads returns the planned load time of a trial's next turn.
func (p *pace) loads(trial string, l load) time.Duration {
	loaded := trial + " " + l.name
	if p.loaded == loaded {
		return 0
	}
	p.loaded = loaded
	return l.lasts
}

func (p *pace) ended(trial string, t turn, took time.Duration) {
	p.done++
	if loads := p.loads(trial, t.loads); loads > 0 {
		measuring := min(p.measures.real(t.lasts), took)
		p.load.ended(loads, took-measuring)
		p.measures.left -= t.lasts
		return
	}
	p.measures.ended(t.lasts, took)
}

func (p *pace) standing(trial, turn string) Standing {
	left := p.measures.real(p.measures.left) + p.load.real(p.load.left)
	return Standing{Trial: trial, Turn: turn, Done: p.done, Turns: p.turns, Left: left}
}
