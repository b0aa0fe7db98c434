package redytier

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// This file is the byte array that a schedule's cache is compared with: words of 8 bytes, each
// written by one worker. A written value has the word's number in its upper half, so no value
// is right for two words.

// wordState is what a word may hold, as far as completed requests show. A failed write may have
// taken effect until another request shows which.
//
// The values are there if the region's epoch is at most until. They are blank, as after a loss,
// if it is above since.
type wordState struct {
	values       []uint64
	since, until uint64
}

// at notes that a request was issued in an epoch: if memory was lost since the word was last
// seen, it is blank.
func (w *wordState) at(epoch uint64, blanks []uint64) {
	if epoch > w.until {
		w.values, w.since, w.until = slices.Clone(blanks), epoch, epoch
	}
}

// wrote notes the end of a write between two epochs.
func (w *wordState) wrote(v uint64, failed bool, from, to uint64, blanks []uint64) {
	w.at(from, blanks)
	if failed {
		w.values, w.until = append(w.values, v), max(w.until, to)
		return
	}
	w.values, w.since, w.until = append(w.values[:0], v), from, to
}

// read checks the value of a read between two epochs, and returns an error if it is wrong.
func (w *wordState) read(v uint64, from, to uint64, blanks []uint64) error {
	w.at(from, blanks)
	allowed := slices.Clone(w.values)
	if to > w.since {
		allowed = append(allowed, blanks...)
	}
	if !slices.Contains(allowed, v) {
		return fmt.Errorf("%w is %#x between epochs %d and %d, want one of %#x", testrun.ErrWrong, v, from, to, allowed)
	}
	w.values, w.since, w.until = append(w.values[:0], v), from, to
	return nil
}

// Values of words that no worker has written.
const (
	wordOfFile = 0xffff_fffe // lower half: from Config.File
	wordOfCopy = 0xffff_ffff // from Config.Recover
)

// wordValue is a value of a word.
func wordValue(word int, low uint32) uint64 { return uint64(word)<<32 | uint64(low) }

// fillWords fills dst, at an address, with the values of a file or of a copy.
func fillWords(dst []byte, addr int64, low uint32) {
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], wordValue(int(addr+int64(i))/8, low))
	}
}

// scheduleOp is a request of a worker, in the order of its calls.
type scheduleOp struct {
	write    bool
	word     int // first
	buf      []byte
	from, to []uint64 // epochs of all regions, before the call and after the end
	err      error
}

// scheduleWorker writes and reads words of its own.
type scheduleWorker struct {
	*schedulePlay
	rng    *rand.Rand
	first  int // of its words
	words  []wordState
	seq    uint32
	ops    []*scheduleOp // since the last check
	issued sync.WaitGroup

	// Either is set: the worker uses a session, or the callback API.
	session *Session
	client  *Client
	pending map[uint64]*scheduleOp // of the session
	oks     int
}

func newScheduleWorker(p *schedulePlay, i, workers int) (*scheduleWorker, error) {
	each := int(p.setup.capacity) / 8 / workers
	w := &scheduleWorker{
		schedulePlay: p, rng: rand.New(rand.NewPCG(p.setup.seed, uint64(i))), first: i * each,
		words: make([]wordState, each), pending: map[uint64]*scheduleOp{},
	}
	for k := range w.words {
		v := uint64(0)
		if p.setup.file {
			v = wordValue(w.first+k, wordOfFile)
		}
		w.words[k].values = []uint64{v}
	}
	var err error
	if i == workers-1 {
		w.client = p.cache.NewClient()
	} else {
		w.session, err = p.cache.NewSession(1 + w.rng.IntN(16))
	}
	return w, err
}

// epochs returns the epochs of all regions.
func (p *schedulePlay) epochs() []uint64 {
	regions := p.cache.Regions()
	all := make([]uint64, len(regions))
	for i, r := range regions {
		all[i] = r.Epoch
	}
	return all
}

// blanks returns the values of a word whose memory was lost.
func (p *schedulePlay) blanks(word int) []uint64 {
	switch {
	case p.setup.recovers:
		return []uint64{wordValue(word, wordOfCopy)}
	case p.setup.file:
		return []uint64{wordValue(word, wordOfFile), 0}
	}
	return []uint64{0}
}

// work makes rounds of requests until over is closed.
func (w *scheduleWorker) work(over <-chan struct{}) {
	for w.fine() {
		select {
		case <-over:
			return
		default:
		}
		for range 1 + w.rng.IntN(8) {
			w.issue()
		}
		if w.session != nil {
			if err := w.session.Submit(); err != nil {
				w.fail("Submit: %v", err)
			}
		}
		if w.rng.IntN(8) == 0 { // unpolled
			time.Sleep(time.Duration(w.rng.Int64N(int64(w.setup.unpolled))))
		}
		w.drain()
		w.check()
		time.Sleep(time.Duration(w.rng.ExpFloat64() * float64(200*time.Millisecond)))
	}
}

// issue starts a request to random words.
func (w *scheduleWorker) issue() {
	at := w.rng.IntN(len(w.words))
	n := min(1+w.rng.IntN(1<<w.rng.IntN(12)), len(w.words)-at)
	op := &scheduleOp{write: w.rng.IntN(2) == 0, word: w.first + at, buf: make([]byte, 8*n)}
	if op.write {
		w.seq++
		for i := range n {
			binary.LittleEndian.PutUint64(op.buf[8*i:], wordValue(op.word+i, w.seq))
		}
	}
	addr := int64(op.word) * 8
	for {
		op.from = w.epochs()
		var err error
		switch tag := uint64(len(w.ops)); {
		case w.session == nil && op.write:
			w.issued.Add(1)
			err = w.client.Write(context.Background(), op.buf, addr, func(_ int, err error) { w.called(op, err) })
		case w.session == nil:
			w.issued.Add(1)
			err = w.client.Read(context.Background(), op.buf, addr, func(_ int, err error) { w.called(op, err) })
		case op.write:
			err = w.session.Write(op.buf, addr, tag)
		default:
			err = w.session.Read(op.buf, addr, tag)
		}
		switch {
		case errors.Is(err, device.ErrQueueFull):
			if !w.poll() {
				return
			}
			continue
		case err != nil:
			w.fail("%s: refused: %v", op, err)
			return
		case w.session != nil:
			w.pending[uint64(len(w.ops))] = op
		}
		w.ops = append(w.ops, op)
		return
	}
}

func (op *scheduleOp) String() string {
	kind := "read"
	if op.write {
		kind = "write"
	}
	return fmt.Sprintf("%s of %d bytes at %d", kind, len(op.buf), op.word*8)
}

func (w *scheduleWorker) called(op *scheduleOp, err error) {
	op.err, op.to = err, w.epochs()
	w.issued.Done()
}

// longestRequest bounds a request's time, in which its memory may be lost and replaced, without
// a manager for a while.
const longestRequest = 15 * time.Minute

// poll waits for completions of the session. It returns false if there is none for too long.
func (w *scheduleWorker) poll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), longestRequest)
	defer cancel()
	if err := w.session.Wait(ctx); err != nil {
		w.fail("%d requests do not end, the oldest a %s: %v", len(w.pending), w.oldest(), err)
		return false
	}
	var done [8]device.Completion
	for _, c := range done[:w.session.Poll(done[:])] {
		op := w.pending[c.Tag]
		delete(w.pending, c.Tag)
		if op == nil || c.Err == nil && c.N != len(op.buf) {
			w.fail("completion %+v of %v", c, op)
			return false
		}
		op.err, op.to = c.Err, w.epochs()
	}
	return true
}

func (w *scheduleWorker) oldest() *scheduleOp {
	for _, op := range w.ops {
		if op.to == nil {
			return op
		}
	}
	return &scheduleOp{}
}

// drain waits until nothing is pending.
func (w *scheduleWorker) drain() {
	for len(w.pending) > 0 && w.poll() {
	}
	if w.session != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		w.issued.Wait()
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), longestRequest)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		w.fail("callbacks are not called")
		<-ended
	}
}

// check compares the requests that have ended with the words, in the order of their calls.
func (w *scheduleWorker) check() {
	if !w.fine() {
		return
	}
	for _, op := range w.ops {
		if op.err != nil && !errors.Is(op.err, ErrRegionUnavailable) {
			w.fail("%v: %v", op, op.err)
		}
		if op.err != nil && w.setup.calm {
			w.fail("%v, though nothing fails: %v", op, op.err)
		}
		for i := 0; i < len(op.buf); i += 8 {
			word := op.word + i/8
			region := int64(word) * 8 / w.setup.region
			from, to, blanks := op.from[region], op.to[region], w.blanks(word)
			s, v := &w.words[word-w.first], binary.LittleEndian.Uint64(op.buf[i:])
			switch {
			case op.write:
				s.wrote(v, op.err != nil, from, to, blanks)
			case op.err == nil:
				if err := s.read(v, from, to, blanks); err != nil {
					w.fail("%v of %s: word at %d, in region %d, %v", op, w.name(), word*8, region, err)
					return
				}
			}
		}
		if op.err == nil {
			w.oks++
		}
	}
	w.ops = w.ops[:0]
}

func (w *scheduleWorker) name() string {
	if w.session == nil {
		return "a handle"
	}
	return "a session"
}

// close closes the session.
func (w *scheduleWorker) close() {
	if w.session != nil {
		if err := w.session.Close(); err != nil && w.fine() {
			w.fail("closing a session: %v", err)
		}
	}
}
