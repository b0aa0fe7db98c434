package main

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
)

// This file has the script commands that take remote memory from a server and wait until it
// has some again.

// cmdBecomes repeats a command until the reply matches.
func cmdBecomes(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "becomes ADDR REPLY-REGEXP ARG...")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	again(ts, func() (string, bool) {
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			return err.Error(), false
		}
		reply := reply(ts, conn, args[2:])
		return reply, re.MatchString(reply)
	})
}

// again calls f until it reports done.
func again(ts *testscript.TestScript, f func() (seen string, done bool)) {
	for end := time.Now().Add(scriptTimeout); ; time.Sleep(10 * time.Millisecond) {
		seen, done := f()
		if done {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("after %v it is still %s", scriptTimeout, seen)
		}
	}
}

func cmdFreeze(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "freeze NAME")
	send(ts, args[0], syscall.SIGSTOP)
	// Until the wait returns, some of its threads may run.
	var status syscall.WaitStatus
	_, err := syscall.Wait4(ts.Value(processesKey{}).(processes)[args[0]].Process.Pid, &status, syscall.WUNTRACED, nil)
	ts.Check(err)
	if !status.Stopped() {
		ts.Fatalf("%s has not stopped: status %#x", args[0], status)
	}
}

func cmdThaw(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "thaw NAME")
	send(ts, args[0], syscall.SIGCONT)
}

func cmdCaches(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "caches MANAGER N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	api := access.Dial(args[0])
	again(ts, func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
		defer cancel()
		r, err := api.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		if err != nil { // its leader may change
			return err.Error(), false
		}
		return r.Msg.String(), len(r.Msg.GetCaches()) == n
	})
}

// relay forwards connections to another address. While it is cut, it keeps the bytes it
// receives, and no side gets an error.
type relay struct {
	ln   net.Listener
	to   string
	open sync.RWMutex // write-locked while the relay is cut
	cut  bool         // whether the script cut the relay

	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	ended bool
}

type relaysKey struct{}

func cmdRelay(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "relay NAME ADDR")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	r := &relay{ln: ln, to: args[1]}
	ts.Value(relaysKey{}).(map[string]*relay)[args[0]] = r
	ts.Setenv(args[0], ln.Addr().String())
	var running sync.WaitGroup
	running.Go(func() { r.accept(&running) })
	ts.Defer(func() {
		if r.end(); r.cut {
			r.heal()
		}
		running.Wait()
	})
}

func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "cut NAME")
	r := ts.Value(relaysKey{}).(map[string]*relay)[args[0]]
	r.open.Lock()
	r.cut = true
}

func cmdHeal(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "heal NAME")
	ts.Value(relaysKey{}).(map[string]*relay)[args[0]].heal()
}

func (r *relay) heal() {
	r.cut = false
	r.open.Unlock()
}

func (r *relay) accept(running *sync.WaitGroup) {
	for {
		from, err := r.ln.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			r.open.RLock()
			to, err := net.Dial("tcp", r.to)
			r.open.RUnlock()
			if err != nil || !r.keep(from, to) {
				_ = from.Close()
				return
			}
			running.Go(func() { r.carry(from, to) })
			r.carry(to, from)
		})
	}
}

// keep registers connections, unless the relay is closed.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conns...)
	if r.ended {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return !r.ended
}

// carry forwards bytes. It closes both connections when one ends.
func (r *relay) carry(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.open.RLock()
		if n > 0 && err == nil {
			_, err = to.Write(buf[:n])
		}
		r.open.RUnlock()
		if err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func (r *relay) end() {
	_ = r.ln.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, c := range r.conns {
		_ = c.Close()
	}
}
