package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// sender is a connection that delivers given bytes as fast as they are read.
type sender struct {
	net.Conn
	io.Reader
}

func (s sender) Read(b []byte) (int, error) { return s.Reader.Read(b) }

// TestBatchesGrow: a client that pipelines gets large batches, wherever its commands end in
// the buffer, unless memory is short.
func TestBatchesGrow(t *testing.T) {
	request := encode("SET", "key:000000000001", strings.Repeat("v", 1000))
	const requests = 10_000
	for what, tc := range map[string]struct{ budget, batch int }{
		"enough memory": {1 << 20, largeBatch},
		"little memory": {2 * restingBuffer, 2 * restingBuffer},
		"no memory":     {0, newBuffer},
	} {
		opts := Options{}
		if err := opts.ensureDefaults(); err != nil {
			t.Fatal(err)
		}
		large := budget{most: int64(tc.budget)}
		in := newInput(sender{Reader: strings.NewReader(strings.Repeat(request, requests))}, &opts, &large)
		fills, found := 0, 0
		for {
			if err := in.fill(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			fills++
			for {
				r, ok, err := in.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if !bytes.Equal(r.data, []byte(request)) {
					t.Fatalf("%s: %.40q…", what, r.data)
				}
				found++
			}
		}
		if most := 2 * requests * len(request) / tc.batch; found != requests || fills > most {
			t.Errorf("%s: %d of %d requests in %d batches, want %d at most", what, found, requests, fills, most)
		}
		in.shrink()
		if large.used.Load() != 0 {
			t.Errorf("%s: %d bytes are taken in the end", what, large.used.Load())
		}
	}
}

// TestRestingBufferIsFree: a client that stops when its buffer has just the size that an idle
// connection may keep takes nothing of the budget for long.
func TestRestingBufferIsFree(t *testing.T) {
	opts := Options{}
	if err := opts.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	large := budget{most: 1 << 20}
	in := newInput(sender{Reader: strings.NewReader(strings.Repeat(encode("SET", "a", strings.Repeat("v", 1000)), 100))}, &opts, &large)
	for len(in.buf) < restingBuffer {
		if err := in.fill(); err != nil {
			t.Fatal(err)
		}
		for ok := true; ok; {
			var err error
			if _, ok, err = in.next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(in.buf) != restingBuffer || large.used.Load() == 0 || !in.roomy() {
		t.Errorf("a buffer of %d bytes takes %d, and is roomy: %v", len(in.buf), large.used.Load(), in.roomy())
	}
	in.shrink()
	if large.used.Load() != 0 || in.roomy() {
		t.Errorf("after shrink %d bytes are taken", large.used.Load())
	}
}

// TestSpansAreNotKept: the memory for a command of many arguments is free before the next one is read, and
// when the connection is idle.
func TestSpansAreNotKept(t *testing.T) {
	opts, large := Options{MaxBulk: 1 << 20, MaxRequest: 1 << 20}, budget{most: 1 << 20}
	line := "EXISTS" + strings.Repeat(" a", 8000) + "\r\n"
	for _, free := range []func(in *input){
		func(in *input) {
			if err := in.fill(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		},
		(*input).shrink,
	} {
		in := newInput(sender{Reader: strings.NewReader(line)}, &opts, &large)
		for ok := false; !ok; {
			if err := in.fill(); err != nil {
				t.Fatal(err)
			}
			var err error
			if _, ok, err = in.next(); err != nil {
				t.Fatal(err)
			}
		}
		if in.spans() <= restingBuffer || !in.roomy() {
			t.Errorf("a command of 8,001 arguments takes %d bytes, and is roomy: %v", in.spans(), in.roomy())
		}
		if free(&in); in.spans() > restingBuffer {
			t.Errorf("%d bytes are kept", in.spans())
		}
	}
}

// TestBuffersShrink: a client that stops in the middle of a command keeps only that command's
// memory.
func TestBuffersShrink(t *testing.T) {
	for _, loops := range []int{1, -1} {
		s, addr := start(t, inMemory(), Options{Loops: loops, releaseAfter: time.Millisecond})
		p := dial(t, addr)
		request := encode("SET", "a", strings.Repeat("v", 1000))
		half := len(request) / 2
		const requests = 1000
		p.send(strings.Repeat(request, requests) + request[:half])
		for range requests {
			if got := p.reply(); got != "+OK" {
				t.Fatal(got)
			}
		}
		testrun.UntilNil(t, func() error {
			if n := s.Metrics().RequestBytes; n != 0 {
				return fmt.Errorf("%d bytes are held", n)
			}
			return nil
		})
		p.send(request[half:])
		if got := p.reply(); got != "+OK" {
			t.Error(got)
		}
	}
}
