package device_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

func TestFailTheKth(t *testing.T) {
	d := started(t, device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 2, FailRead: 3}))
	b := newBench(t, d)
	for k := 1; k <= 4; k++ {
		if c := b.write("aaaa", 0); errors.Is(c.Err, device.ErrFault) != (k == 2) {
			t.Errorf("write %d: %v", k, c.Err)
		}
	}
	for k := 1; k <= 4; k++ {
		if _, c := b.read(4, 0); errors.Is(c.Err, device.ErrFault) != (k == 3) {
			t.Errorf("read %d: %v", k, c.Err)
		}
	}
}

func TestLostAndTornWrites(t *testing.T) {
	f := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	b := newBench(t, started(t, f))
	b.write("aaaaaaaa", 0)
	f.Set(device.FaultyOptions{LostWrite: 1})
	if c := b.write("bbbbbbbb", 0); c.Err != nil || c.N != 8 {
		t.Errorf("a lost write: %+v, want success", c)
	}
	b.wantRead("aaaaaaaa", 0, 0)
	f.Set(device.FaultyOptions{TornWrite: 1})
	if c := b.write("cccccccc", 0); !errors.Is(c.Err, device.ErrFault) {
		t.Errorf("a torn write: %+v, want an error", c)
	}
	got, _ := b.read(8, 0)
	n := 0
	for n < 8 && got[n] == 'c' {
		n++
	}
	if got[n:] != "aaaaaaaa"[n:] {
		t.Errorf("%q after a torn write", got)
	}
}

func TestStuck(t *testing.T) {
	f := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	b := newBench(t, started(t, f))
	if err := errors.Join(b.q.Write([]byte("aaaa"), 0, 1), b.q.Submit()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.q.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait for what is stuck: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- b.q.Wait(context.Background()) }()
	f.Release()
	if err := testrun.Receive(t, "Wait ends", waited); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if c := b.next(); c.Err != nil || c.Tag != 1 {
		t.Errorf("%+v after the release", c)
	}
}

func TestDown(t *testing.T) {
	f := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Down: true})
	_, queueErr := f.NewQueue(1)
	_, metaErr := f.ReadMeta("x")
	for i, err := range []error{f.Start(0), f.Truncate(0), f.Sync(), f.WriteMeta("x", nil), metaErr, queueErr} {
		if !errors.Is(err, device.ErrFault) {
			t.Errorf("call %d: %v, want ErrFault", i, err)
		}
	}
}

// TestCrash: a crash keeps all synced writes, and each other write with probability keep.
func TestCrash(t *testing.T) {
	for _, keep := range []float64{0, 1} {
		inner := device.NewMemory()
		f := device.NewCrashable(inner, device.FaultyOptions{})
		b := newBench(t, started(t, f))
		b.write("aaaaaaaa", 0)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		b.write("bbbb", 4)
		b.write("cccc", 8)
		b.wantRead("aaaabbbbcccc", 0, 0)
		b.wantRead("abbbbcc", 3, 0)
		b.wantRead("bcc", 7, 0)
		if err := f.Crash(keep); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("Sync after a crash: %v", err)
		}
		want := "aaaaaaaa"
		if keep == 1 {
			want = "aaaabbbbcccc"
		}
		newBench(t, inner).wantRead(want, 0, 0)
		if _, c := newBench(t, inner).read(12, 0); (c.Err == nil) != (keep == 1) {
			t.Errorf("keeping %v, reading what was not synced: %v", keep, c.Err)
		}
	}
}
