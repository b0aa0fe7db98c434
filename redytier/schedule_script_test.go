package redytier

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// scheduleStep is a line of a script: what happens, a time after the step before it. Steps do
// not wait for the end of earlier ones. n chooses among VMs, sizes and configurations, as far
// as a step has several, and d is a time:
//
//	migrate      the cache leaves a VM; d bounds the call, as it does for all calls of the cache
//	reshape      to another capacity, and to another SLO if n is odd
//	reconfigure  to another configuration
//	wish         the manager asks for another configuration
//	session      a session reads all of the cache
//	price        VMs of one type cost more or less
//	reclaim      a VM is taken back after the notice d
//	kill         a VM fails; its manager is told after d, or never
//	stop         a server's process stands still for d; its memory can be accessed
//	part         the client and a VM do not reach each other for d
//	alone        the client does not reach the manager for d
//	unseen       the manager and a VM do not reach each other for d
//	unanswered   the next calls of the manager take effect, but are not answered
//	late         the next calls of the client and the manager fail, and come late
//	silent       the next calls of servers are not answered for d
//	cut          all connections to servers end
//	faults       requests and connections fail at random for d
//	restart      another manager begins after d
//	forget       another manager begins after d, and knows nothing
//	nocopy       Config.Recover fails for d
type scheduleStep struct {
	after time.Duration
	what  string
	n     int
	d     time.Duration
}

func (s scheduleStep) String() string { return fmt.Sprintf("%v %s %d %v", s.after, s.what, s.n, s.d) }

// scheduleSetup is the cache of a run. The seed determines it, and the requests of the workers.
type scheduleSetup struct {
	seed             uint64
	region, capacity int64
	configuration    Configuration
	migration        Migration
	file, recovers   bool
	waits, strict    bool
	busy             bool // Config.RefuseBusy
	unpolled         time.Duration
	calm             bool // nothing fails: no byte may be lost and no request fail
}

func newScheduleSetup(seed uint64) scheduleSetup {
	r := rand.New(rand.NewPCG(seed, 1000))
	s := scheduleSetup{seed: seed, region: 4 << (10 + r.IntN(3)), calm: r.IntN(4) == 0}
	s.capacity = s.region*int64(3+r.IntN(8)) - 8*r.Int64N(s.region/8)
	s.configuration = configurations[r.IntN(len(configurations))]
	s.migration = Migration{Parallel: r.IntN(4), PauseAll: r.IntN(4) == 0, PauseReads: r.IntN(4) == 0}
	if r.IntN(2) == 0 { // all of it moves within seconds
		s.migration.BytesPerSecond = s.capacity / (1 + r.Int64N(4))
	}
	switch r.IntN(4) {
	case 0:
		s.file = true
	case 1:
		s.recovers = true
	}
	s.waits, s.strict, s.busy = r.IntN(2) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	s.unpolled = 2 * time.Second
	if !s.calm {
		s.unpolled = time.Duration(1+r.IntN(15)) * time.Second
	}
	return s
}

// steps are the kinds of steps, with their weights. Those of calm runs come first.
var (
	calmSteps = []string{
		"migrate", "migrate", "reshape", "reshape", "reconfigure", "wish", "session", "price", "reclaim", "reclaim",
	}
	faultySteps = append(calmSteps[:len(calmSteps):len(calmSteps)],
		"kill", "kill", "kill", "stop", "part", "part", "alone", "unseen", "unanswered", "late", "late", "silent", "cut", "faults", "restart",
		"restart", "forget", "nocopy")
)

// newScheduleScript returns the script of a seed.
func newScheduleScript(seed uint64) scheduleScript {
	s := scheduleScript{setup: newScheduleSetup(seed)}
	r := rand.New(rand.NewPCG(seed, 1001))
	kinds := faultySteps
	if s.setup.calm {
		kinds = calmSteps
	}
	for range 5 + r.IntN(25) {
		step := scheduleStep{
			after: time.Duration(r.ExpFloat64() * float64(5*time.Second)).Round(time.Millisecond),
			what:  kinds[r.IntN(len(kinds))], n: r.IntN(12),
			d: time.Duration(r.ExpFloat64() * float64(10*time.Second)).Round(time.Millisecond),
		}
		if r.IntN(3) == 0 {
			step.after = time.Duration(r.IntN(100)) * time.Millisecond // beside the step before
		}
		if s.setup.calm {
			step.d = max(step.d, 10*time.Minute) // enough for any call, behind others
			if step.what == "reclaim" {
				step.d = 30*time.Second + time.Duration(r.IntN(30))*time.Second
			}
		}
		s.steps = append(s.steps, step)
	}
	return s
}

// scheduleScript is a whole run.
type scheduleScript struct {
	setup scheduleSetup
	steps []scheduleStep
}

// String is the text that parseSchedule reads.
func (s scheduleScript) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", s.setup.seed)
	for _, step := range s.steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}

// parseSchedule is the inverse of String.
func parseSchedule(text string) (s scheduleScript, err error) {
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		var step scheduleStep
		switch {
		case n == 0 && len(words) == 2 && words[0] == "seed":
			var seed uint64
			if seed, err = strconv.ParseUint(words[1], 10, 64); err == nil {
				s.setup = newScheduleSetup(seed)
			}
		case n > 0 && len(words) == 4:
			step.what = words[1]
			if step.after, err = time.ParseDuration(words[0]); err == nil {
				step.n, err = strconv.Atoi(words[2])
			}
			if err == nil {
				step.d, err = time.ParseDuration(words[3])
			}
			s.steps = append(s.steps, step)
		default:
			err = fmt.Errorf("want seed N, and then a time, a step, a number and a time")
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %q: %w", n+1, line, err)
		}
	}
	return s, nil
}
