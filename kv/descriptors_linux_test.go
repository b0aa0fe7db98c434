package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// fewDir passes the directory of the store to a child process with few descriptors; fewCallers
// is the number of goroutines that read the store at once.
const (
	fewDir     = "REDYKV_TEST_FEW_DESCRIPTORS_DIR"
	fewCallers = 10_000
	fewLimit   = 128
	fewKeys    = 20_000
)

// TestFewDescriptors starts a process with few descriptors.
func TestFewDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFewDescriptorsChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), fewDir+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestFewDescriptorsChild reads cold records through the store in ten thousand goroutines,
// while writers make the log create one segment after another. Then all descriptors are taken
// and released: the writers wait, and nothing fails.
func TestFewDescriptorsChild(t *testing.T) {
	dir := os.Getenv(fewDir)
	if dir == "" {
		t.Skip("it is for a process that TestFewDescriptors starts")
	}
	limit := syscall.Rlimit{Cur: fewLimit, Max: fewLimit}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Preallocate: -1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan kv.FlushWaitInfo, 1000)
	opts := options(fewKeys)
	opts.Device, opts.Memory, opts.PageSize, opts.Logger = ssd, 256<<10, 16<<10, quiet
	opts.Events.FlushWait = func(i kv.FlushWaitInfo) { waits <- i }
	opts.Events.BackgroundError = func(i kv.BackgroundErrorInfo) { t.Errorf("%v", i) }
	st, err := kv.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	key := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for n := range uint64(fewKeys) {
		if err := st.Upsert(context.Background(), key(n), key(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg, writers sync.WaitGroup
	write := func(w uint64) {
		for n := uint64(0); !stop.Load(); n++ {
			k := (7*n + w) % fewKeys
			if err := st.Upsert(context.Background(), key(k), key(k+1)); err != nil {
				t.Errorf("a writer: %v", err)
				return
			}
		}
	}
	writers.Go(func() {
		for !stop.Load() { // a call that waited for long may fail with this error
			if err := st.Commit(t.Context()); err != nil && !errors.Is(err, device.ErrTransient) {
				t.Errorf("a commit: %v", err)
			}
		}
	})
	for w := range uint64(2) {
		writers.Go(func() { write(w) })
	}
	begin := make(chan struct{})
	for g := range uint64(fewCallers) {
		wg.Go(func() {
			<-begin
			for i := range uint64(3) {
				n := (g*7919 + i*104729) % fewKeys
				testrun.Bytes(st.Read(context.Background(), key(n), nil)).Want(t, key(n+1), "key %d", n)
			}
		})
	}
	close(begin)
	wg.Wait()
	for len(waits) > 0 {
		<-waits
	}

	var taken []*os.File
	for end := time.Now().Add(testrun.Patience(testrun.Bound)); ; { // the log creates a segment meanwhile, or needs one next
		f, err := os.Open(os.DevNull) // without rest, lest the log gets the descriptor that it gives up
		if err == nil {
			taken = append(taken, f)
			continue
		}
		if !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
		if len(waits) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the log does not wait for a descriptor")
		}
	}
	if i := testrun.Receive(t, "the log waits", waits); !errors.Is(i.Err, syscall.EMFILE) {
		t.Errorf("the log waits for %v", i)
	}
	testrun.Until(t, "the log repeats a write", func() bool { return st.Metrics().Log.FlushRetries > 0 })
	for _, f := range taken {
		_ = f.Close()
	}
	for testrun.Receive(t, "the log goes on", waits).Err != nil {
	}
	stop.Store(true)
	writers.Wait()
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
