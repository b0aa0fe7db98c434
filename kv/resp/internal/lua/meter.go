package lua

import (
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"time"

	glua "github.com/yuin/gopher-lua"
)

// Limits of a script.
const (
	// MaxString is the most bytes of a string.
	MaxString = 32 << 20
	// MaxMemory is about the most bytes that a script may hold. Twice as many may be in use for a
	// moment, and up to four times as many if other scripts have just left as much.
	MaxMemory = 256 << 20
	// MaxSource is the most bytes of the source of a script.
	MaxSource = 1 << 20
)

var (
	errMemory = errors.New("not enough memory")
	errString = errors.New("string is too long")
)

// Meter is the context of an interpreter, which calls Done before each instruction. It ends a script
// by returning a closed channel from then on: each instruction fails, also those that catch errors.
//
// The memory of a script is estimated from above: strings are counted by charge, and an instruction
// makes at most a small object. If the estimate reaches MaxMemory, the growth of the Go heap since
// it was smallest, from when the script began, decides. So a script is ended wrongly only if it makes
// much garbage while another part of the program takes MaxMemory.
type Meter struct {
	poll   func() error // reports why the script must end; called every pollEvery instructions
	steps  uint
	spent  int64 // estimated bytes since the last measurement
	before int64 // the least bytes of the heap that were measured; 0: none were
	ended  <-chan struct{}
	err    error // why it has ended
}

const (
	pollEvery = 1024
	stepBytes = 64      // bytes that an instruction may take, on average
	early     = 8 << 20 // estimated bytes after which the heap is measured for the first time
)

// closed is a closed channel.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin prepares the meter for the next script.
func (m *Meter) begin(poll func() error) { *m = Meter{poll: poll} }

// Deadline implements context.Context.
func (m *Meter) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (m *Meter) Value(any) any { return nil }

// Err implements context.Context.
func (m *Meter) Err() error { return m.err }

// Done implements context.Context.
func (m *Meter) Done() <-chan struct{} {
	if m.steps++; m.steps%pollEvery == 0 {
		m.check(pollEvery * stepBytes)
	}
	return m.ended
}

// End ends the script with an error that it cannot catch.
func (m *Meter) End(err error) {
	if m.err == nil {
		m.err, m.ended = err, closed
	}
}

// check asks whether the script may go on, after it may have taken some bytes.
func (m *Meter) check(bytes int64) {
	if err := m.poll(); err != nil {
		m.End(err)
	}
	m.spend(bytes)
}

// spend adds to the estimate, and measures the memory if that is large.
func (m *Meter) spend(bytes int64) {
	m.spent += bytes
	switch {
	case m.before == 0 && m.spent > early:
		m.before = heap()
	case m.spent < MaxMemory:
		return
	default:
		m.spent = 0
		if m.grown() > MaxMemory {
			runtime.GC()
			if m.grown() > MaxMemory {
				m.End(errMemory)
			}
		}
	}
}

// grown returns how much the heap has grown. What others left on it, and the collector has freed since,
// is not the script's to take.
func (m *Meter) grown() int64 {
	now := heap()
	m.before = min(m.before, now)
	return now - m.before
}

// Charge counts a string, or another value of that many bytes, before a function of a library makes
// it. It raises an error if it is too large.
func (m *Meter) Charge(l *glua.LState, bytes int) {
	if bytes > MaxString {
		l.RaiseError("%s", errString.Error())
	}
	if bytes > 0 {
		m.spend(int64(bytes))
	}
	m.stop(l)
}

// work counts n steps of a function that may take long.
func (m *Meter) work(l *glua.LState, n uint) {
	before := m.steps / pollEvery
	if m.steps += n; m.steps/pollEvery != before {
		m.check(0)
		m.stop(l)
	}
}

// stop raises an error if the script has ended.
func (m *Meter) stop(l *glua.LState) {
	if m.err != nil {
		l.RaiseError("%s", m.err.Error())
	}
}

var _ context.Context = (*Meter)(nil)

// heap returns the bytes of the objects on the Go heap, dead ones too that are not freed yet.
func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
