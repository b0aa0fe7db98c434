package kv

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

var (
	modelSeed      = flag.Uint64("model.seed", 0, "run the model test with this seed only")
	modelRuns      = flag.Int("model.runs", testrun.Scale(20, 60, 60), "how many seeds the model test runs")
	modelFor       = flag.Duration("model.for", testrun.For(10*time.Minute), "run the model test over new seeds for so long")
	modelScriptIs  = flag.String("model.script", "", "run the model test with the script in this file")
	modelPrint     = flag.Bool("model.print", false, "print the script of each run")
	modelNotSmall  = flag.Bool("model.whole", false, "do not look for a shorter script that fails")
	modelTimeLimit = flag.Duration("model.limit", testrun.Patience(3*time.Minute), "how long a script may take")
)

// TestModel compares a store with random options with a map, under random operations in one or
// several sessions, checkpoints, compactions, changes of memory and index, faults, crashes at
// any operation of the device, and recoveries, many of these at once. A failing run prints its
// seed and a shortened script that also fails.
func TestModel(t *testing.T) {
	switch {
	case *modelScriptIs != "":
		text, err := os.ReadFile(*modelScriptIs)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parseScript(string(text))
		if err != nil {
			t.Fatal(err)
		}
		for range *modelRuns {
			if err := playInTime(script); err != nil {
				t.Fatal(err)
			}
		}
	case *modelSeed != 0:
		runModel(t, *modelSeed)
	case *modelFor != 0:
		runModels(t, *modelFor)
	default:
		for seed := range uint64(testrun.Raced(*modelRuns, *modelRuns/10+1)) {
			t.Run(fmt.Sprint(seed+1), func(t *testing.T) { runModel(t, seed+1) })
		}
	}
}

// runModels runs models until limit or a failure.
func runModels(t *testing.T, limit time.Duration) {
	begun := time.Now()
	said := begun
	for n := 1; time.Since(begun) < limit && !t.Failed(); n++ {
		seed := 1 + rand.Uint64()>>32
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed) })
		if time.Since(said) >= time.Minute {
			said = time.Now()
			fmt.Printf("%s: %d runs in %v\n", said.UTC().Format(time.TimeOnly), n, time.Since(begun).Round(time.Second))
		}
	}
}

// runModel generates a script from a seed and plays it.
func runModel(t *testing.T, seed uint64) {
	setup := newModelSetup(seed)
	script := newModelScript(setup)
	if *modelPrint {
		t.Logf("%v", script)
	}
	err := playInTime(script)
	if err == nil {
		return
	}
	if errors.Is(err, errHangs) {
		t.Fatalf("seed %d, %v\n%v\n\n-model.script FILE plays this again:\n%v", seed, &setup, err, script)
	}
	if !*modelNotSmall {
		s := shrinker{script: script, err: err, until: time.Now().Add(2 * time.Minute)}
		s.shrink()
		script, err = s.script, s.err
	}
	testrun.Wrong(t, "seed %d, %v\n%v\n\n-model.script FILE plays this again:\n%v", seed, &setup, err, script)
}

var errHangs = errors.New("the script does not end")

// playInTime is playScript with a time limit. A script that hangs is abandoned. The limit
// counts only time in which this process could run.
func playInTime(script modelScript) error {
	done := make(chan error, 1)
	go func() { done <- playScript(script) }()
	const pieces = 100
	timer := time.NewTicker(*modelTimeLimit / pieces)
	defer timer.Stop()
	for range pieces {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
	}
	stacks := make([]byte, 1<<20)
	return fmt.Errorf("%w:\n%s", errHangs, stacks[:runtime.Stack(stacks, true)])
}

// TestModelScript prints and parses scripts.
func TestModelScript(t *testing.T) {
	for seed := range uint64(50) {
		script := newModelScript(newModelSetup(seed + 1))
		again, err := parseScript(script.String())
		if err != nil || again.String() != script.String() {
			t.Fatalf("%v\nis not, %v,\n%v", script, err, again)
		}
	}
	if _, err := parseScript("seed 1\n0 do u1:x"); err == nil {
		t.Error("a bad operation is taken")
	}
}
