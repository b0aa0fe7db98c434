package ssdtier

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// testEngine is the engine of devices whose options do not name one. Tests of this package do
// not run in parallel.
var testEngine Engine

// ofEngine returns opts with the engine under test.
func ofEngine(opts Options) Options {
	if opts.Engine == "" {
		opts.Engine = testEngine
	}
	return opts
}

// overEngines runs a test with each available engine.
func overEngines(t *testing.T, test func(t *testing.T)) {
	for _, e := range []Engine{EngineUring, EnginePool} {
		t.Run(string(e), func(t *testing.T) {
			if err := uring.Probe(); e == EngineUring && err != nil {
				t.Skip(err)
			}
			testEngine = e
			defer func() { testEngine = "" }()
			test(t)
		})
	}
}

func TestEngine(t *testing.T) {
	works := uring.Probe() == nil
	for _, tc := range []struct {
		ask, want Engine
	}{{"", EngineUring}, {EngineAuto, EngineUring}, {EngineUring, EngineUring}, {EnginePool, EnginePool}} {
		if !works && tc.want == EngineUring {
			continue // TestForbidden covers this case
		}
		if d := mustOpen(t, t.TempDir(), Options{Engine: tc.ask}); d.Engine() != tc.want {
			t.Errorf("engine %q opens as %q, want %q", tc.ask, d.Engine(), tc.want)
		}
	}
}

// collect waits for n completions, by tag.
func collect(t *testing.T, q device.Queue, n int) map[uint64]device.Completion {
	t.Helper()
	got := make(map[uint64]device.Completion)
	for done := make([]device.Completion, n); len(got) < n; {
		if err := q.Wait(t.Context()); err != nil {
			t.Fatalf("with %d of %d completions: %v", len(got), n, err)
		}
		for _, c := range done[:q.Poll(done)] {
			if _, twice := got[c.Tag]; twice {
				t.Fatalf("second completion of %d", c.Tag)
			}
			got[c.Tag] = c
		}
	}
	return got
}

// TestReadersAndTruncation: segments are created and truncated while many queues read them.
func TestReadersAndTruncation(t *testing.T) { overEngines(t, testReadersAndTruncation) }

func testReadersAndTruncation(t *testing.T) {
	const page, pages, kept = 16 << 10, 200, 12
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := make([]byte, pages*page)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(content) // never fails
	var written atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		defer written.Store(-1)
		p := devicetest.NewPump(t, d, 4)
		defer p.Close()
		for at := 0; at < len(content); at += page {
			src := device.AlignedBuffer(page, d.Alignment())
			copy(src, content[at:])
			p.Write(src, int64(at), nil)
			p.Drain()
			written.Store(int64(at + page))
			if err := d.Truncate(int64(max(0, at-kept*page))); err != nil {
				t.Error(err)
			}
		}
	})
	for id := range 3 {
		wg.Go(func() {
			p := devicetest.NewPump(t, d, 16)
			defer p.Close()
			r := rand.New(rand.NewPCG(uint64(id), 9))
			for end := written.Load(); end >= 0; end = written.Load() {
				if end == 0 {
					runtime.Gosched()
					continue
				}
				n := int64(1 + r.IntN(3*page))
				at := max(0, end-n-r.Int64N(kept*page))
				p.Read(make([]byte, min(n, end-at)), at, content[at:min(at+n, end)])
			}
		})
	}
	wg.Wait()
	if n := len(segmentFiles(t, d)); n > (kept+1)*page/minSegmentSize+2 {
		t.Errorf("%d segments are left", n)
	}
}
