package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/testrun"
)

// Of a crash: concurrent connections, and writes per batch.
const (
	crashWriters = 4
	crashBatch   = 16
	crashRounds  = 3
)

// crashWrite is an answered batch of writes, and its times.
type crashWrite struct {
	last           int // number of its last write
	sent, answered time.Time
}

// crashWriter writes keys with growing numbers over one connection.
type crashWriter struct {
	number   int
	answered []crashWrite
}

// cmdCrashes kills a server during writes, and checks that the remaining data satisfy the
// promised durability.
func cmdCrashes(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "crashes DURABILITY [FLAG...]")
	durability := args[0]
	start := func() string {
		cmdStart(ts, false, append([]string{
			"CRASHING", "redykv ready at (.*)$", "redykv", "serve", "--addr", "127.0.0.1:0", "--dir", "crash-" + durability,
			"--memory", "8MiB", "--records", "1000", "--durability", durability,
		}, args[1:]...))
		return ts.Getenv("CRASHING")
	}
	for round := range crashRounds {
		addr := start()
		process := ts.Value(processesKey{}).(processes)["CRASHING"].Process
		writers := make([]*crashWriter, crashWriters)
		var all sync.WaitGroup
		var answered atomic.Int64
		begun := time.Now()
		// Wait until there are enough writes to lose.
		enough := func() bool {
			return answered.Load() >= 100 && (durability == "always" || time.Since(begun) > 2500*time.Millisecond)
		}
		failed := make(chan error, crashWriters)
		for i := range writers {
			writers[i] = &crashWriter{number: i}
			all.Go(func() {
				failed <- writers[i].write(addr, round, func() {
					if answered.Add(1); enough() {
						_ = process.Signal(syscall.SIGKILL) // repeated signals do no harm
					}
				})
			})
		}
		all.Wait()
		for range writers {
			ts.Check(<-failed)
		}
		cmdKill(ts, false, []string{"CRASHING"})
		ts.Check(checkCrash(start(), writers, round, durability))
		cmdKill(ts, false, []string{"CRASHING"})
	}
}

func crashKey(writer, round, n int) string { return fmt.Sprintf("%d:%d:%d", writer, round, n) }

// write writes until the server is gone.
func (w *crashWriter) write(addr string, round int, answered func()) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the connection is broken
	if err := conn.SetDeadline(time.Now().Add(scriptTimeout)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	value := strings.Repeat("v", 100)
	for n := 0; ; n += crashBatch {
		var b strings.Builder
		for i := range crashBatch {
			key := crashKey(w.number, round, n+i)
			fmt.Fprintf(&b, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
		}
		sent := time.Now()
		if _, err := io.WriteString(conn, b.String()); err != nil {
			return timeoutOf(err)
		}
		for range crashBatch {
			reply, err := in.ReadString('\n')
			if err != nil {
				return timeoutOf(err)
			}
			if reply != "+OK\r\n" {
				return fmt.Errorf("a write is answered %q", reply)
			}
		}
		w.answered = append(w.answered, crashWrite{n + crashBatch - 1, sent, time.Now()})
		answered()
	}
}

// timeoutOf returns err if it is a timeout. Other errors mean that the server is gone.
func timeoutOf(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return nil
}

// checkCrash compares the data of the server at addr with the answered writes.
func checkCrash(addr string, writers []*crashWriter, round int, durability string) error {
	// Times of the kept and the lost batches.
	var lastKept, firstLost, lastLost time.Time
	for _, w := range writers {
		kept, err := countKept(addr, w, round)
		if err != nil {
			return err
		}
		for _, a := range w.answered {
			switch {
			case a.last < kept:
				if a.sent.After(lastKept) {
					lastKept = a.sent
				}
			case durability == "always":
				return fmt.Errorf("%w writer %d was answered for write %d, and has %d", testrun.ErrWrong, w.number, a.last, kept)
			default:
				if firstLost.IsZero() || a.answered.Before(firstLost) {
					firstLost = a.answered
				}
				if a.sent.After(lastLost) {
					lastLost = a.sent
				}
			}
		}
	}
	// The server answered a batch after it was sent and before its replies were received. The
	// comparison uses the times that give a lower bound.
	if durability == "everysec" && lastLost.Sub(firstLost) > time.Second {
		return fmt.Errorf("%w %v of answered writes are lost", testrun.ErrWrong, lastLost.Sub(firstLost))
	}
	if !firstLost.IsZero() && lastKept.After(firstLost) {
		return fmt.Errorf("%w a write is there that was sent %v after the answer to one that is not", testrun.ErrWrong, lastKept.Sub(firstLost))
	}
	return nil
}

// countKept returns the number of a writer's keys that exist. It returns an error unless they
// are the first ones.
func countKept(addr string, w *crashWriter, round int) (kept int, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // read to its end
	if err := conn.SetDeadline(time.Now().Add(scriptTimeout)); err != nil {
		return 0, err
	}
	in := bufio.NewReader(conn)
	most := crashBatch
	if n := len(w.answered); n > 0 {
		most += w.answered[n-1].last + 1
	}
	for n := 0; n < most; n += crashBatch {
		var b strings.Builder
		for i := range crashBatch {
			key := crashKey(w.number, round, n+i)
			fmt.Fprintf(&b, "*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n", len(key), key)
		}
		if _, err := io.WriteString(conn, b.String()); err != nil {
			return 0, err
		}
		for i := range crashBatch {
			reply, err := in.ReadString('\n')
			switch {
			case err != nil:
				return 0, err
			case reply == ":1\r\n" && kept == n+i:
				kept++
			case reply == ":1\r\n":
				return 0, fmt.Errorf("%w writer %d has write %d, but not %d", testrun.ErrWrong, w.number, n+i, kept)
			case reply != ":0\r\n":
				return 0, fmt.Errorf("EXISTS is answered %q", reply)
			}
		}
	}
	return kept, nil
}
