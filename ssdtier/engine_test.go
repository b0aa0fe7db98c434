package ssdtier

import (
	"testing"

	"github.com/redykv/redykv/internal/uring"
)

// testEngine is what devices are opened with whose options do not say. Tests of this
// package follow one another.
var testEngine Engine

// ofEngine returns opts with the engine that is tested.
func ofEngine(opts Options) Options {
	if opts.Engine == "" {
		opts.Engine = testEngine
	}
	return opts
}

// overEngines runs a test with each engine that there is.
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
			continue // TestForbidden says what happens then
		}
		if d := mustOpen(t, t.TempDir(), Options{Engine: tc.ask}); d.Engine() != tc.want {
			t.Errorf("engine %q opens as %q, want %q", tc.ask, d.Engine(), tc.want)
		}
	}
}
