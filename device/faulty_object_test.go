package device_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
)

// putObject creates an object by writes of 100 bytes.
func putObject(d device.Device, name, data string) error {
	w, err := d.CreateObject(name)
	if err != nil {
		return err
	}
	for data != "" {
		n := min(100, len(data))
		if _, err := io.WriteString(w, data[:n]); err != nil {
			return errors.Join(err, w.Abort())
		}
		data = data[n:]
	}
	return w.Commit()
}

func getObject(t *testing.T, d device.Device, name string) string {
	t.Helper()
	o, err := d.OpenObject(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err := errors.Join(err, o.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFailedObjects: after any failure, an object's name stands for the old object or the new
// one.
func TestFailedObjects(t *testing.T) {
	before, after := strings.Repeat("a", 450), strings.Repeat("b", 550)
	old := func(t *testing.T) *device.Memory {
		t.Helper()
		m := device.NewMemory()
		if err := putObject(m, "x", before); err != nil {
			t.Fatal(err)
		}
		return m
	}
	t.Run("the k-th write", func(t *testing.T) {
		for k := int64(1); ; k++ {
			m := old(t)
			err := putObject(device.NewFaulty(m, device.FaultyOptions{FailWrite: k}), "x", after)
			if err == nil {
				if k != 7 || getObject(t, m, "x") != after {
					t.Errorf("without a fault, after %d writes: %q", k-1, getObject(t, m, "x"))
				}
				return
			}
			if !errors.Is(err, device.ErrFault) || getObject(t, m, "x") != before {
				t.Errorf("write %d failed: %v, and the object is %q", k, err, getObject(t, m, "x"))
			}
		}
	})
	t.Run("some write", func(t *testing.T) {
		for seed := range uint64(50) {
			m := old(t)
			f := device.NewFaulty(m, device.FaultyOptions{Seed: seed, WriteError: 0.1, TornWrite: 0.2})
			want := after
			if err := putObject(f, "x", after); err != nil {
				want = before
			}
			if got := getObject(t, m, "x"); got != want {
				t.Errorf("seed %d: %q, want %q", seed, got, want)
			}
		}
	})
	t.Run("commit", func(t *testing.T) {
		seen := make(map[string]int)
		for seed := range uint64(50) {
			m := old(t)
			f := device.NewFaulty(m, device.FaultyOptions{Seed: seed, SyncError: 1})
			if err := putObject(f, "x", after); !errors.Is(err, device.ErrFault) {
				t.Fatalf("Commit: %v, want ErrFault", err)
			}
			seen[getObject(t, m, "x")]++
		}
		if len(seen) != 2 || seen[before] == 0 || seen[after] == 0 {
			t.Errorf("after commits that failed: %v, want the old object and the new one, each at times", seen)
		}
	})
	t.Run("a write after a failed one", func(t *testing.T) {
		m := old(t)
		f := device.NewFaulty(m, device.FaultyOptions{FailWrite: 1})
		w, err := f.CreateObject("x")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := io.WriteString(w, after); !errors.Is(err, device.ErrFault) {
				t.Errorf("Write: %v, want ErrFault", err)
			}
		}
		if err := w.Commit(); !errors.Is(err, device.ErrFault) || getObject(t, m, "x") != before {
			t.Errorf("Commit: %v", err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		m := old(t)
		if err := putObject(device.NewFaulty(m, device.FaultyOptions{LostWrite: 1}), "x", after); err != nil {
			t.Fatal(err)
		}
		if got := getObject(t, m, "x"); got != strings.Repeat("\x00", len(after)) {
			t.Errorf("%q, want zeros", got)
		}
	})
	t.Run("read", func(t *testing.T) {
		f := device.NewFaulty(old(t), device.FaultyOptions{FailRead: 2})
		o, err := f.OpenObject("x")
		if err != nil {
			t.Fatal(err)
		}
		for k := 1; k <= 3; k++ {
			if _, err := o.ReadAt(make([]byte, 10), 0); errors.Is(err, device.ErrFault) != (k == 2) {
				t.Errorf("read %d: %v", k, err)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("down", func(t *testing.T) {
		f := device.NewFaulty(old(t), device.FaultyOptions{Down: true})
		_, openErr := f.OpenObject("x")
		_, listErr := f.ListObjects()
		for i, err := range []error{putObject(f, "x", after), openErr, listErr, f.RemoveObject("x")} {
			if !errors.Is(err, device.ErrFault) {
				t.Errorf("call %d: %v, want ErrFault", i, err)
			}
		}
	})
}

// TestObjectsInACrash: a crash keeps committed objects and drops all others.
func TestObjectsInACrash(t *testing.T) {
	for name, crashable := range map[string]func(device.Device, device.FaultyOptions) *device.Faulty{
		"with a cache": device.NewCrashable, "without": device.NewFaulty,
	} {
		t.Run(name, func(t *testing.T) {
			m := device.NewMemory()
			f := crashable(m, device.FaultyOptions{})
			if err := errors.Join(putObject(f, "kept", "aaaa"), putObject(f, "gone", "bbbb"), f.RemoveObject("gone")); err != nil {
				t.Fatal(err)
			}
			w, err := f.CreateObject("kept")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, "cccc"); err != nil {
				t.Fatal(err)
			}
			o, err := f.OpenObject("kept")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Crash(1); err != nil {
				t.Fatal(err)
			}
			_, readErr := o.ReadAt(make([]byte, 1), 0)
			for i, err := range []error{w.Commit(), readErr, putObject(f, "x", ""), f.RemoveObject("kept")} {
				if !errors.Is(err, device.ErrClosed) {
					t.Errorf("call %d after the crash: %v, want ErrClosed", i, err)
				}
			}
			if names, err := m.ListObjects(); len(names) != 1 || err != nil || getObject(t, m, "kept") != "aaaa" {
				t.Errorf("after the crash: %q, %v", names, err)
			}
			if err := errors.Join(w.Abort(), o.Close(), f.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
