package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/redytier"
)

func TestMain(m *testing.M) { testrun.Main(m) }

func TestParseConfig(t *testing.T) {
	want := redytier.Configuration{ClientThreads: 8, ServerThreads: 2, BatchSize: 64, QueueDepth: 4}
	got, err := ParseConfig(ConfigString(want))
	if err != nil || got != want {
		t.Errorf("%+v came back as %+v, %v", want, got, err)
	}
	for _, s := range []string{"", "1,2,3", "1,2,3,4,5", "1,2,3,", "a,b,c,d"} {
		if c, err := ParseConfig(s); err == nil {
			t.Errorf("%q is %+v", s, c)
		}
	}
}

func TestParseTuning(t *testing.T) {
	for _, s := range []string{"on", "locks", "two-sided", "locks+two-sided", "pinned", "locks+unpinned"} {
		tuning, err := ParseTuning(s)
		if err != nil || TuningString(tuning) != s {
			t.Errorf("%q is %+v, %v, which is %q", s, tuning, err, TuningString(tuning))
		}
	}
	for _, s := range []string{"", "off", "locks+", "on+locks"} {
		if tuning, err := ParseTuning(s); err == nil {
			t.Errorf("%q is %+v", s, tuning)
		}
	}
}

// embed starts a manager whose cache servers are in this process.
func embed(t *testing.T) *manager.Embedded {
	m, err := manager.Embed(t.Context(), manager.EmbedOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func spec() Spec {
	return Spec{
		Transport: "mem", Net: "none", Ops: Ops, Modes: Modes, Sizes: []int{8, 5000}, Capacity: MinCapacity,
		Variants: Product([]redytier.Configuration{
			{ClientThreads: 2, BatchSize: 1, QueueDepth: 3},
			{ClientThreads: 1, ServerThreads: 1, BatchSize: 8, QueueDepth: 2},
		}, []redytier.Tuning{{}}), Idle: fabricbench.Wait, Duration: bench.MinDuration,
	}
}

// Every cell is measured, in both modes, and all resources are released.
func TestRun(t *testing.T) {
	report, err := Run(t.Context(), embed(t), nil, spec(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(Modes) * len(Ops) * 2; len(report.Rows) != want {
		t.Errorf("%d rows, want %d", len(report.Rows), want)
	}
	for _, r := range report.Rows {
		if r.Depth != r.C*r.B*r.Q || r.Operations == 0 || r.Mops <= 0 || r.MeanUs <= 0 || r.MeanOverRaw != 0 {
			t.Errorf("%+v", r)
		}
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "2,0,1,3") {
		t.Errorf("%v, table:\n%s", err, table.String())
	}
}

// counted counts the queue pairs that were dialled.
type counted struct {
	fabric.Provider
	dialled int
}

func (c *counted) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	c.dialled++
	return c.Provider.Dial(ctx, addr, private, depth)
}

// The transport alone has a thread and a queue pair for each client thread of the cache, and
// all of them together have the cache's capacity.
func TestRaw(t *testing.T) {
	s := spec()
	s.Capacity, s.Modes, s.Sizes = 4*MinCapacity, []Mode{Session}, []int{8}
	if got := s.RawMemory(); got != 2*MinCapacity {
		t.Errorf("a thread is lent %d bytes", got)
	}
	p, err := transport.Open("mem")
	if err != nil {
		t.Fatal(err)
	}
	addr, stop, err := fabricbench.ServeHere(t.Context(), p, s.RawMemory())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(stop(), p.Close()); err != nil {
			t.Error(err)
		}
	}()
	dials := &counted{Provider: p}
	report, err := Run(t.Context(), embed(t), &Raw{Provider: dials, Addr: addr}, s, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	if dials.dialled != 2 {
		t.Errorf("%d queue pairs", dials.dialled)
	}
	for _, l := range []rawLoad{{1, 1}, {2, 3}, {1, 2}, {1, 16}} {
		if row := report.FindRaw(l.threads, l.depth, Read); row == nil || row.Operations == 0 || row.C != l.threads || row.Depth != l.threads*l.depth {
			t.Errorf("%+v: %+v", l, row)
		}
	}
	for _, r := range report.Rows {
		if !r.Raw() && (r.MopsOverRaw <= 0 || r.MopsOverRawQ <= 0 || r.MopsOverRaw1 <= 0) {
			t.Errorf("%+v", r)
		}
	}
	if _, err := Run(t.Context(), embed(t), &Raw{Provider: p, Addr: "nowhere"}, s, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "the transport alone") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestRunIsCutShort(t *testing.T) {
	s := spec()
	s.Duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, embed(t), nil, s, slog.New(slog.DiscardHandler), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestRelate(t *testing.T) {
	r := Report{Rows: []Row{
		{Path: pathFabric, Op: Read, Size: 8, C: 1, Depth: 1},
		{Path: pathFabric, Op: Read, Size: 8, C: 2, Depth: 16},
		{Path: pathFabric, Op: Read, Size: 8, C: 1, Depth: 16},
		{Path: pathRedy, Op: Read, Size: 8, Depth: 16, C: 2, Q: 2},
		{Path: pathRedy, Op: Write, Size: 8, Depth: 16},
		{Path: pathFabric, Op: Read, Size: 8, C: 2, Depth: 4},
	}}
	var samples [][]bench.Sample
	for i, mops := range [][]float64{{0.1, 0.2, 0.05}, {0.8, 1.6, 0.1}, {99, 99, 99}, {1.6, 3.2, 0.8}, {1.6, 1.6, 1.6}, {0.4, 0.8, 0.1}} {
		var slices []bench.Sample
		for _, m := range mops {
			slices = append(slices, bench.Sample{Mops: m, InFlight: r.Rows[i].Depth, Operations: 1})
		}
		samples = append(samples, slices)
	}
	r.relate(samples)
	if x := r.Rows[3]; x.MeanOverRaw != 0.5 || x.MopsOverRaw != 2 || x.MopsOverRawQ != 4 || x.MopsOverRaw1 != 16 {
		t.Errorf("%+v", x)
	}
	if x := r.Rows[4]; x.MeanOverRaw != 0 || x.MopsOverRaw1 != 0 {
		t.Errorf("nothing to compare with, and %+v", x)
	}
}

// Threads do not poll by default where polling would take processors from others.
func TestDefaultIdle(t *testing.T) {
	two := redytier.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 16, QueueDepth: 1}
	one := redytier.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 1, QueueDepth: 1}
	for _, c := range []struct {
		transport string
		config    redytier.Configuration
		tuning    redytier.Tuning
		mode      Mode
		want      fabricbench.Idle
	}{
		{"shm", one, redytier.Tuning{}, Session, fabricbench.Poll},
		{"shm", one, redytier.Tuning{}, Callback, fabricbench.Poll},
		{"shm", one, redytier.Tuning{TwoSided: true}, Callback, fabricbench.Wait},
		{"shm", two, redytier.Tuning{}, Session, fabricbench.Poll},
		{"shm", two, redytier.Tuning{}, Callback, fabricbench.Wait},
		{"tcp", one, redytier.Tuning{}, Session, fabricbench.Wait},
	} {
		s := Spec{Transport: c.transport, Variants: []Variant{{c.config, c.tuning}}, Modes: []Mode{c.mode}}
		if got := s.DefaultIdle(2); got != c.want {
			t.Errorf("%s %+v %+v %s: %s, want %s", c.transport, c.config, c.tuning, c.mode, got, c.want)
		}
	}
}

// The loop draws writes in the proportion of the mix.
func TestMix(t *testing.T) {
	for op, want := range map[Op]int{Read: 0, Write: 100, Mixed: 50, "mixed:95": 5, "mixed:0": 100, "mixed:100": 0} {
		s := Spec{Sizes: []int{8}}
		l := newLoop(&s, MinCapacity, 1, 1)
		q := &drawing{loop: &l, left: 100_000}
		if _, err := l.run(t.Context(), q, op, 8, time.Hour); !errors.Is(err, errDrawn) {
			t.Fatal(err)
		}
		if got := float64(q.writes) / 1000; got < float64(want)-1 || got > float64(want)+1 || want%100 == 0 && got != float64(want) {
			t.Errorf("%s: %.2f%% writes, want %d", op, got, want)
		}
	}
	for _, op := range []Op{"mixed:", "mixed:101", "mixed:-1", "mixed:x", "mixed95", "read:95", "scan", "message"} {
		s := spec()
		if s.Ops = []Op{op}; s.Check() == nil {
			t.Errorf("%s was taken", op)
		}
	}
}

var errDrawn = errors.New("all is drawn")

// drawing is a queue that counts the reads and writes of a loop.
type drawing struct {
	*loop
	left, writes int
}

func (d *drawing) start(size int) error {
	for ; d.left > 0; d.left-- {
		addr, write := d.draw(size)
		if addr < 0 || addr+int64(size) > d.capacity || addr%int64(size) != 0 {
			return fmt.Errorf("address %d", addr)
		}
		if write {
			d.writes++
		}
	}
	return errDrawn
}

func (d *drawing) finish(context.Context) error { return nil }
