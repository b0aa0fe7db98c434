package ycsb

import (
	"runtime"
	"time"
)

// pacer schedules the reads of one thread of an open loop. Times are nanoseconds since the
// reader's epoch. The zero pacer is for a closed loop.
type pacer struct {
	step  float64 // interval between two reads of this thread
	first float64 // delay of this thread's first read; threads take turns
	due   float64 // when the next read is due
}

// pace sets up the pacer of one of threads that together begin rate reads a second.
func (p *pacer) pace(rate float64, thread, threads int) {
	if rate > 0 {
		p.step = float64(threads) / rate * float64(time.Second)
		p.first = p.step * float64(thread) / float64(threads)
	}
}

// open reports whether the loop is open.
func (p *pacer) open() bool { return p.step > 0 }

// begin starts the schedule.
func (p *pacer) begin(now int64) { p.due = float64(now) + p.first }

// isDue reports whether the next read is due.
func (p *pacer) isDue(now int64) bool { return p.due <= float64(now) }

// intended returns the time at which the next read is due. It is never 0, which means not
// measured.
func (p *pacer) intended() int64 { return int64(p.due) | 1 }

// advance moves on to the next read; it does nothing in a closed loop.
func (p *pacer) advance() { p.due += p.step }

// nap is how early an idle thread wakes before its next read: timers are late by some tens of
// microseconds.
const nap = 500 * time.Microsecond

// rest yields the processor. A thread without pending reads sleeps if its next read is far
// off.
func (p *pacer) rest(now int64, idle bool) {
	if left := time.Duration(p.due) - time.Duration(now) - nap; idle && left > nap {
		time.Sleep(min(left, tickEvery))
		return
	}
	runtime.Gosched()
}
