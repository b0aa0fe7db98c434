package blackbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// Load sends random commands in pipelines over some connections, and checks every reply.
type Load struct {
	Model *Model
	// Dial connects to the server.
	Dial func(context.Context) (net.Conn, error)
	// Connections is the number of connections; Keys is the number of keys of each kind
	// that each connection writes.
	Connections, Keys int
	// MaxValue is the maximum size of a value.
	MaxValue int
	// Pauses makes connections wait now and then before they send or read replies.
	Pauses bool
	// Failures allows commands to fail at any time, because the server's disk is damaged.
	Failures bool
	// Patience is the time limit of a reply (default 60 s).
	Patience time.Duration

	run    int // number of the current Run, which makes values unique
	ending atomic.Bool
}

// Ending announces that the server will be ended: from now on connections may break and
// commands may fail.
func (l *Load) Ending() {
	l.ending.Store(true)
	l.Model.ends(true)
}

// mayFail reports whether errors are expected now.
func (l *Load) mayFail() bool { return l.Failures || l.ending.Load() }

// Run sends commands until ctx ends or, after Ending, all connections are broken.
func (l *Load) Run(ctx context.Context, seed uint64) error {
	if l.Patience == 0 {
		l.Patience = testrun.Patience(time.Minute)
	}
	l.run++
	l.ending.Store(false)
	l.Model.ends(false)
	var all sync.WaitGroup
	errs := make([]error, l.Connections)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range l.Connections {
		all.Go(func() {
			c := &client{load: l, number: i, r: rand.New(rand.NewPCG(seed, uint64(i))), failed: make(map[string]bool)}
			if errs[i] = c.run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// client is one connection of a load.
type client struct {
	load   *Load
	number int
	r      *rand.Rand
	conn   *Conn
	values int
	failed map[string]bool // keys with a failed write; they are only read from then on
}

// request is one command, or one transaction, of a pipeline.
type request struct {
	bytes   []byte
	tickets []ticket
	group   bool // a transaction
	one     bool // several keys and one reply
}

func (c *client) run(ctx context.Context) error {
	conn, err := c.load.Dial(ctx)
	if err != nil {
		if c.load.mayFail() || ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = conn.Close() }() // either everything sent was answered, or the server has ended
	c.conn = NewConn(conn)
	for ctx.Err() == nil {
		c.pause()
		ends, err := c.pipeline()
		if err != nil {
			return fmt.Errorf("connection %d: %w", c.number, err)
		}
		if ends {
			return nil
		}
	}
	return nil
}

func (c *client) pause() {
	if c.load.Pauses && c.r.IntN(40) == 0 {
		time.Sleep(time.Duration(c.r.IntN(600)) * time.Millisecond)
	}
}

// pipeline sends some requests together and checks their replies. It returns true if the
// client must end: after an error, or after a broken connection or failed command while the
// server is being ended.
func (c *client) pipeline() (ends bool, err error) {
	requests := make([]request, 1+c.r.IntN(1<<c.r.IntN(8)))
	var out []byte
	for i := range requests {
		requests[i] = c.request()
		out = append(out, requests[i].bytes...)
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.load.Patience)); err != nil {
		return false, err
	}
	var writing sync.WaitGroup
	var unsent error
	writing.Go(func() { _, unsent = c.conn.Write(out) })
	c.pause() // a slow reader
	for i, req := range requests {
		failed, err := c.replies(req)
		var protocol *ProtocolError
		var broken net.Error
		switch {
		case err == nil && (!failed || c.load.Failures):
			continue
		case err == nil: // ending
		case errors.As(err, &protocol):
		case errors.As(err, &broken) && broken.Timeout():
			err = fmt.Errorf("no reply to %v in %v", req.tickets[0].op, c.load.Patience)
		case errors.As(err, new(*brokenError)) && c.load.mayFail():
			err = nil
		}
		for _, req := range requests[i+1:] {
			c.load.Model.abandon(req.tickets)
		}
		_ = c.conn.Close() // also ends the write
		writing.Wait()
		return true, err
	}
	if writing.Wait(); unsent != nil && !c.load.mayFail() {
		return false, unsent
	}
	return false, nil
}

// brokenError reports that a connection ended.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "the connection ended: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// read returns the next reply.
func (c *client) read() (Reply, error) {
	r, err := c.conn.ReadReply()
	if err != nil && !errors.As(err, new(*ProtocolError)) {
		err = &brokenError{err}
	}
	return r, err
}

// replies reads and checks the reply to a request. It returns true if that was an error.
func (c *client) replies(req request) (failed bool, err error) {
	r, err := c.expect(req)
	if err != nil {
		c.load.Model.abandon(req.tickets)
		return false, err
	}
	if req.group && r.Kind != Error && len(r.Items) != len(req.tickets) {
		return false, fmt.Errorf("%w EXEC of %v is answered %v", testrun.ErrWrong, req.tickets[0].op, r)
	}
	if req.one {
		if r.Kind != Error && !r.Equal(ok) {
			return false, fmt.Errorf("%w MSET of %v is answered %v", testrun.ErrWrong, req.tickets[0].op, r)
		}
		if r.Kind == Error && !c.load.mayFail() {
			return true, fmt.Errorf("MSET of %v is answered %v", req.tickets[0].op, r)
		}
		for _, t := range req.tickets {
			c.failed[t.op.Key] = c.failed[t.op.Key] || r.Kind == Error
		}
		return r.Kind == Error, c.load.Model.answerAll(req.tickets, r.Kind == Error)
	}
	for i, t := range req.tickets {
		reply := r
		if req.group && r.Kind != Error {
			reply = r.Items[i]
		}
		if err := c.load.Model.answer(t, reply); err != nil {
			return false, err
		}
		if reply.Kind == Error {
			failed = true
			c.failed[t.op.Key] = c.failed[t.op.Key] || t.op.Write
			if !c.load.mayFail() {
				return true, fmt.Errorf("%v is answered %v", t.op, reply)
			}
		}
	}
	return failed, nil
}

// expect returns the last reply of a request, which for a transaction is EXEC's.
func (c *client) expect(req request) (Reply, error) {
	if req.group {
		want := ok // of MULTI
		for range 1 + len(req.tickets) {
			r, err := c.read()
			if err != nil {
				return r, err
			}
			if !r.Equal(want) && r.Kind != Error {
				return r, fmt.Errorf("%w %v in a transaction is answered %v", testrun.ErrWrong, req.tickets[0].op, r)
			}
			want = queued
		}
	}
	return c.read()
}

// request returns a random request.
func (c *client) request() request {
	switch c.r.IntN(24) {
	case 0: // a transaction
		ops := make([]*Op, 1+c.r.IntN(5))
		for i := range ops {
			ops[i] = c.op()
		}
		req := request{bytes: AppendCommand(nil, "MULTI"), group: true}
		for _, op := range ops {
			req.bytes = AppendCommand(req.bytes, op.Args...)
		}
		req.bytes = AppendCommand(req.bytes, "EXEC")
		req.tickets = c.load.Model.send(ops, &group{ops}, false)
		return req
	case 1: // several keys
		args := []string{"MSET"}
		var ops []*Op
		for len(ops) <= c.r.IntN(5) {
			op := opSet(c.key("s", c.number), c.value())
			if c.failed[op.Key] {
				continue
			}
			ops = append(ops, op)
			args = append(args, op.Args[1:]...)
		}
		return request{bytes: AppendCommand(nil, args...), tickets: c.load.Model.send(ops, nil, false), one: true}
	case 2, 3: // keys that another connection writes
		op := c.readOf(c.r.IntN(c.load.Connections))
		return request{bytes: AppendCommand(nil, op.Args...), tickets: c.load.Model.send([]*Op{op}, nil, !c.owns(op.Key))}
	}
	op := c.op()
	return request{bytes: AppendCommand(nil, op.Args...), tickets: c.load.Model.send([]*Op{op}, nil, false)}
}

func (c *client) owns(key string) bool {
	return strings.Split(key, ":")[1] == strconv.Itoa(c.number)
}

// key returns a key of kind s, c or h that a connection writes. A few keys are used often.
func (c *client) key(kind string, number int) string {
	return fmt.Sprintf("%s:%d:%d", kind, number, c.r.IntN(1+c.r.IntN(c.load.Keys)))
}

// value returns a unique value.
func (c *client) value() string {
	c.values++
	tag := fmt.Sprintf("<%d.%d.%d>", c.load.run, c.number, c.values)
	size := c.r.IntN(1 + c.r.IntN(c.load.MaxValue))
	return strings.Repeat(tag, 1+size/len(tag))
}

// piece returns a short value.
func (c *client) piece() string {
	c.values++
	return fmt.Sprintf("<%d.%d.%d>", c.load.run, c.number, c.values)
}

// op returns an operation on a key that this connection writes.
func (c *client) op() *Op {
	later := func() int64 { return time.Now().Add(time.Hour + time.Duration(c.r.IntN(1000))*time.Second).UnixMilli() }
	key := func(kind string) string { return c.key(kind, c.number) }
	field := func() string { return "f" + strconv.Itoa(c.r.IntN(8)) }
	ops := []func() *Op{
		func() *Op { return c.readOf(c.number) },
		func() *Op { return c.readOf(c.number) },
		func() *Op { return opSet(key("s"), c.value()) },
		func() *Op { return opSet(key("s"), c.value()) },
		func() *Op { return opSet(key("s"), c.value()) },
		func() *Op { return opSetUntil(key("s"), c.value(), later()) },
		func() *Op { return opGetSet(key("s"), c.value()) },
		func() *Op { return opAppend(key("s"), c.piece()) },
		func() *Op { return opSetRange(key("s"), c.r.IntN(200), c.piece()) },
		func() *Op { return opIncrBy(key("c"), int64(1+c.r.IntN(9))) },
		func() *Op { return opIncrBy(key("c"), -int64(1+c.r.IntN(9))) },
		func() *Op { return opHSet(key("h"), field(), c.piece()) },
		func() *Op { return opHSet(key("h"), field(), c.piece()) },
		func() *Op { return opHDel(key("h"), field()) },
		func() *Op { return opDel(key([]string{"s", "s", "c", "h"}[c.r.IntN(4)])) },
		func() *Op { return opExpireAt(key([]string{"s", "c", "h"}[c.r.IntN(3)]), later()) },
		func() *Op { return opPersist(key([]string{"s", "c", "h"}[c.r.IntN(3)])) },
	}
	if op := ops[c.r.IntN(len(ops))](); !c.failed[op.Key] {
		return op
	}
	return c.readOf(c.number)
}

// readOf returns a read of a key that a connection writes.
func (c *client) readOf(number int) *Op {
	field := "f" + strconv.Itoa(c.r.IntN(8))
	s, h := c.key("s", number), c.key("h", number)
	ops := []*Op{opGet(s), opGet(s), opGet(s), opStrlen(s), opGet(c.key("c", number)), opHGet(h, field), opHLen(h), opExists(h), opExpireTime(s)}
	return ops[c.r.IntN(len(ops))]
}

// Read reads the states of keys. Keys answered with an error have no state, and are counted
// in failed. If the connection ends early, Read returns an error.
func Read(conn *Conn, keys []string, patience time.Duration) (states map[string]State, failed map[string]Reply, err error) {
	states, failed = make(map[string]State), make(map[string]Reply)
	for some := range slices.Chunk(keys, 64) {
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return states, failed, err
		}
		var out []byte
		for _, key := range some {
			out = AppendCommand(out, readCommand(key), key)
			out = AppendCommand(out, "PEXPIRETIME", key)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(out)
			sent <- err
		}()
		for _, key := range some {
			value, err := conn.ReadReply()
			if err != nil {
				return states, failed, err
			}
			expires, err := conn.ReadReply()
			if err != nil {
				return states, failed, err
			}
			for _, r := range []Reply{value, expires} {
				if r.Kind == Error {
					failed[key] = r
				}
			}
			if _, bad := failed[key]; bad {
				continue
			}
			if states[key], err = stateOf(value, expires); err != nil {
				return states, failed, fmt.Errorf("key %q: %w", key, err)
			}
		}
		if err := <-sent; err != nil {
			return states, failed, err
		}
	}
	return states, failed, nil
}

func readCommand(key string) string {
	if strings.HasPrefix(key, "h:") {
		return "HGETALL"
	}
	return "GET"
}

// stateOf returns the state described by the replies to GET or HGETALL and to PEXPIRETIME.
func stateOf(value, expires Reply) (State, error) {
	until, err := strconv.ParseInt(expires.Text, 10, 64)
	empty := value.Kind == Null || value.Kind == Array && len(value.Items) == 0
	if expires.Kind != Integer || err != nil || empty != (until == -2) {
		return State{}, fmt.Errorf("%w: %v, which expires at %v", errContradiction, value, expires)
	}
	s := State{Kind: String, Value: value.Text, Expires: max(until, 0)}
	switch value.Kind {
	case Bulk:
		return s, nil
	case Null:
		return State{}, nil
	case Array:
		fields := make([]string, len(value.Items))
		for i, item := range value.Items {
			if item.Kind != Bulk {
				return s, fmt.Errorf("%w: a hash of %v", errContradiction, value)
			}
			fields[i] = item.Text
		}
		if len(fields)%2 == 0 {
			return hashOf(fields, s.Expires), nil
		}
	}
	return s, fmt.Errorf("%w: the value is %v", errContradiction, value)
}

// errContradiction reports replies that do not fit each other.
var errContradiction = fmt.Errorf("%w replies contradict each other", testrun.ErrWrong)
