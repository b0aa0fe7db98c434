package redytier

import (
	"log/slog"
	"time"
)

// waiting is one wait for VMs: a call of the manager is repeated until they are there. Each
// answer says what is pending.
type waiting struct {
	report func(pending []string) // Config.Progress
	call   time.Duration          // how long the next call may wait
	begun  bool                   // report was called
}

// Bounds of one call. With Config.Progress all take minCall; without it each answer is logged,
// and calls take longer and longer.
const (
	minCall = time.Second
	maxCall = 10 * time.Second
)

func (c *Config) wait() *waiting { return &waiting{report: c.Progress, call: minCall} }

// goesOn reports what is pending.
func (w *waiting) goesOn(log *slog.Logger, pending []string) {
	if w.report == nil {
		log.Info("the cache waits for VMs", "pending", pending)
		w.call = min(2*w.call, maxCall)
		return
	}
	w.begun = true
	w.report(pending)
}

// end reports that nothing is pending any more.
func (w *waiting) end() {
	if w.begun {
		w.report(nil)
	}
}
