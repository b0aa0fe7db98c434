package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// serveOn starts the other side on a separate provider.
func serveOn(t *testing.T, name string, memory int) (addr string) {
	p, err := transport.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	addrs, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, p, "", memory, func(addr string) { addrs <- addr }) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, p.Close()); err != nil {
			t.Error(err)
		}
	})
	return <-addrs
}

func open(t *testing.T, name string) fabric.Provider {
	p, err := transport.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestRun measures every operation on every transport that connects two providers in one
// process.
func TestRun(t *testing.T) {
	for _, name := range []string{"mem", "shm", "tcp"} {
		for _, idle := range Idles {
			t.Run(fmt.Sprintf("%s/%s", name, idle), func(t *testing.T) {
				addr := serveOn(t, name, 1<<20)
				spec := Spec{
					Transport: name, Model: fabric.Model{RTT: time.Microsecond}, Ops: Ops, Sizes: []int{1, 64}, Depths: []int{1, 40},
					Idle: idle, Duration: bench.MinDuration,
				}
				report, err := Run(t.Context(), open(t, name), addr, spec, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(report.Rows) != len(Ops)*2*2 {
					t.Fatalf("%d rows", len(report.Rows))
				}
				for i, r := range report.Rows {
					if r.Operations == 0 || r.MeanUs < 1 || r.P99Us < r.P50Us || r.Transport != name || r.Net != "1us,0Gbit" {
						t.Errorf("%+v", r)
					}
					if i > 0 && r.Op == report.Rows[i-1].Op && r.Size == report.Rows[i-1].Size && r.Depth == report.Rows[i-1].Depth {
						t.Errorf("twice %+v", r)
					}
				}
				var out strings.Builder
				if err := report.WriteTable(&out); err != nil || strings.Count(out.String(), "message") != 4 {
					t.Errorf("%v, table:\n%s", err, out.String())
				}
			})
		}
	}
}

// TestRefused: invalid specs fail before anything is sent.
func TestRefused(t *testing.T) {
	addr := serveOn(t, "mem", MinMemory)
	p := open(t, "mem")
	spec := Spec{Transport: "mem", Ops: []Op{Message}, Sizes: []int{1024}, Depths: []int{5}, Idle: Wait, Duration: bench.MinDuration}
	if _, err := Run(t.Context(), p, addr, spec, nil); err == nil || !strings.Contains(err.Error(), "lends 4096") {
		t.Errorf("messages beyond the region: %v", err)
	}
	if _, err := Run(t.Context(), p, "nowhere", spec, nil); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := p.Dial(t.Context(), addr, []byte("what is this?"), 1); !errors.Is(err, fabric.ErrRejected) {
		t.Errorf("a stranger: %v", err)
	}
	for _, change := range []func(*Spec){
		func(s *Spec) { s.Ops = nil }, func(s *Spec) { s.Ops = []Op{"scan"} }, func(s *Spec) { s.Sizes = []int{0} },
		func(s *Spec) { s.Sizes = []int{MaxSize + 1} }, func(s *Spec) { s.Depths = []int{-1} },
		func(s *Spec) { s.Idle = "sleep" }, func(s *Spec) { s.Duration = 1 },
	} {
		bad := spec
		change(&bad)
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestOtherSideEnds ends the other side during a measurement.
func TestOtherSideEnds(t *testing.T) {
	p, err := transport.Open("tcp")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	addrs, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- Serve(ctx, p, "", 1<<20, func(addr string) { addrs <- addr }) }()
	addr := testrun.Receive(t, "the other side serves", addrs)
	go func() {
		time.Sleep(20 * time.Millisecond) // during the measurement or before it: both must end
		cancel()
	}()
	spec := Spec{Transport: "tcp", Ops: []Op{Read}, Sizes: []int{8}, Depths: []int{4}, Idle: Wait, Duration: time.Minute}
	if _, err := Run(t.Context(), open(t, "tcp"), addr, spec, nil); err == nil {
		t.Error("measured without anybody there")
	}
	if err := errors.Join(<-ended, p.Close()); err != nil {
		t.Error(err)
	}
}
