package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
)

func (s *suite) meta(t *testing.T) {
	d := s.start(t)
	if _, err := d.ReadMeta("absent"); !errors.Is(err, device.ErrNoMeta) {
		t.Errorf("ReadMeta of what was never written: %v, want ErrNoMeta", err)
	}
	for _, data := range []string{"one", "", "another one"} {
		err := d.WriteMeta("name", []byte(data))
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("a volatile device")
		}
		must(t, err)
		if got, err := d.ReadMeta("name"); err != nil || string(got) != data {
			t.Errorf("ReadMeta = %q, %v; want %q", got, err, data)
		}
	}
	if _, err := d.ReadMeta("absent"); !errors.Is(err, device.ErrNoMeta) {
		t.Errorf("ReadMeta of another name: %v, want ErrNoMeta", err)
	}
}

// commitObject makes an object in pieces of many sizes. On a device without
// objects it skips the test.
func commitObject(t *testing.T, d device.Device, name string, data []byte) {
	t.Helper()
	w, err := d.CreateObject(name)
	if errors.Is(err, errors.ErrUnsupported) {
		noObjects(t, d)
		t.Skip("a volatile device")
	}
	must(t, err)
	for n := 1; len(data) > 0; n = n*3 + 1 {
		n = min(n, len(data))
		if got, err := w.Write(data[:n]); got != n || err != nil {
			t.Fatalf("Write of %d bytes to object %s: %d, %v", n, name, got, err)
		}
		data = data[n:]
	}
	if err := errors.Join(w.Commit(), w.Abort()); err != nil {
		t.Fatalf("committing object %s: %v", name, err)
	}
	if err := w.Commit(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("second Commit: %v, want ErrClosed", err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Write after Commit: %v, want ErrClosed", err)
	}
}

// noObjects checks the errors of a device without objects.
func noObjects(t *testing.T, d device.Device) {
	t.Helper()
	if names, err := d.ListObjects(); len(names) > 0 || err != nil {
		t.Errorf("objects %q, %v; want none", names, err)
	}
	if _, err := d.OpenObject("name"); !errors.Is(err, device.ErrNoObject) {
		t.Errorf("OpenObject: %v, want ErrNoObject", err)
	}
	if err := d.RemoveObject("name"); !errors.Is(err, device.ErrNoObject) {
		t.Errorf("RemoveObject: %v, want ErrNoObject", err)
	}
}

func openObject(t *testing.T, d device.Device, name string) device.Object {
	t.Helper()
	o, err := d.OpenObject(name)
	must(t, err)
	return o
}

// checkObject compares an object with what it should hold, whole and in parts.
func checkObject(t *testing.T, o device.Object, want []byte) {
	t.Helper()
	if o.Size() != int64(len(want)) {
		t.Fatalf("object of %d bytes, want %d", o.Size(), len(want))
	}
	got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("reading an object whole: wrong bytes, or %v", err)
	}
	for _, at := range []int{0, 1, len(want) / 3, 4095, 4096, 4097, len(want) - 1} {
		for _, n := range []int{1, 100, 5000} {
			if at < 0 || at > len(want) {
				continue
			}
			part := want[at:min(at+n, len(want))]
			got := make([]byte, n)
			m, err := o.ReadAt(got, int64(at))
			ended := errors.Is(err, io.EOF)
			if m != len(part) || m < n && !ended || err != nil && !ended || !bytes.Equal(got[:m], part) {
				t.Fatalf("ReadAt of %d bytes at %d: %d, %v, or wrong bytes; want %d", n, at, m, err, len(part))
			}
		}
	}
	if n, err := o.ReadAt(make([]byte, 10), o.Size()); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt at the end: %d, %v; want io.EOF", n, err)
	}
	if n, err := o.ReadAt(make([]byte, 10), -1); n != 0 || err == nil {
		t.Errorf("ReadAt before the beginning: %d, %v", n, err)
	}
}

func checkList(t *testing.T, d device.Device, want ...string) {
	t.Helper()
	if names, err := d.ListObjects(); err != nil || !slices.Equal(names, want) {
		t.Errorf("objects %q, %v; want %q", names, err, want)
	}
}

func (s *suite) objects(t *testing.T) {
	d := s.start(t)
	first, second := content(8, s.size+123), content(9, 5000)
	commitObject(t, d, "b", first)
	old := openObject(t, d, "b")
	commitObject(t, d, "a", nil)

	// An object that is not committed changes nothing.
	w, err := d.CreateObject("b")
	must(t, err)
	if _, err := w.Write(second); err != nil {
		t.Fatal(err)
	}
	checkList(t, d, "a", "b")
	now := openObject(t, d, "b")
	checkObject(t, now, first)
	must(t, w.Abort(), w.Abort(), now.Close())
	if err := w.Commit(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Commit after Abort: %v, want ErrClosed", err)
	}

	// A new object takes the name, and the old one stays readable.
	commitObject(t, d, "b", second)
	now = openObject(t, d, "b")
	checkObject(t, now, second)
	checkObject(t, old, first)
	must(t, d.RemoveObject("b"))
	checkObject(t, now, second)
	must(t, now.Close(), old.Close())
	checkList(t, d, "a")
	for _, err := range []error{d.RemoveObject("b"), errorOf(d.OpenObject("b")), errorOf(d.OpenObject("never"))} {
		if !errors.Is(err, device.ErrNoObject) {
			t.Errorf("of an object that is not there: %v, want ErrNoObject", err)
		}
	}
	empty := openObject(t, d, "a")
	checkObject(t, empty, nil)
	must(t, empty.Close())

	// Metadata and the log are separate.
	if _, err := d.ReadMeta("a"); !errors.Is(err, device.ErrNoMeta) {
		t.Errorf("ReadMeta of an object's name: %v, want ErrNoMeta", err)
	}
	must(t, d.WriteMeta("meta", []byte("x")), d.Truncate(1<<20))
	checkList(t, d, "a")
}

// errorOf drops the result of a call and returns its error.
func errorOf[T any](_ T, err error) error { return err }

func (s *suite) objectNames(t *testing.T) {
	d := s.start(t)
	good := []string{"-", ".", "..", "a-Z_0.9", "checkpoint.12.index", strings.Repeat("x", 128)}
	for _, name := range good {
		commitObject(t, d, name, []byte(name))
	}
	checkList(t, d, good...)
	for _, name := range good {
		o := openObject(t, d, name)
		checkObject(t, o, []byte(name))
		must(t, o.Close(), d.RemoveObject(name))
	}
	for _, name := range []string{"", "../x", "a/b", "a\x00", "ä", "x.tmp", strings.Repeat("x", 129)} {
		_, createErr := d.CreateObject(name)
		_, openErr := d.OpenObject(name)
		_, readErr := d.ReadMeta(name)
		for _, err := range []error{createErr, openErr, d.RemoveObject(name), d.WriteMeta(name, nil), readErr} {
			if err == nil || errors.Is(err, device.ErrNoObject) || errors.Is(err, device.ErrNoMeta) {
				t.Errorf("of the name %q: %v, want an error about it", name, err)
			}
		}
	}
	checkList(t, d)
}

// manyObjects writes objects concurrently, some under the same name. The last commit of a name
// must have stored its whole object.
func (s *suite) manyObjects(t *testing.T) {
	d := s.start(t)
	commitObject(t, d, "shared", []byte("0"))
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Go(func() {
			for round := range 3 {
				own := fmt.Sprintf("own.%d", id)
				data := bytes.Repeat([]byte{byte(id), byte(round)}, 10_000)
				for _, name := range []string{own, "shared"} {
					w, err := d.CreateObject(name)
					if err == nil {
						_, err = w.Write(data)
					}
					if err == nil {
						err = w.Commit()
					}
					if err != nil {
						t.Errorf("object %s: %v", name, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	checkList(t, d, "own.0", "own.1", "own.2", "own.3", "shared")
	for name, size := range map[string]int{"own.0": 20_000, "own.3": 20_000, "shared": 20_000} {
		o := openObject(t, d, name)
		got := make([]byte, size)
		if n, err := o.ReadAt(got, 0); n != size || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("object %s: %d bytes, %v", name, n, err)
		}
		if !bytes.Equal(got, bytes.Repeat(got[:2], size/2)) || got[1] != 2 {
			t.Errorf("object %s is mixed or old: %v…", name, got[:2])
		}
		must(t, o.Close())
	}
}

// restartObjects checks that a restart keeps committed objects, and drops all others.
func (s *suite) restartObjects(t *testing.T) {
	d := s.start(t)
	data := content(10, s.size)
	commitObject(t, d, "kept", data)
	commitObject(t, d, "gone", data)
	w, err := d.CreateObject("unfinished")
	if err == nil {
		_, err = w.Write(data)
	}
	must(t, err, d.RemoveObject("gone"), d.Close())
	if err := w.Commit(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Commit on a closed device: %v, want ErrClosed", err)
	}
	d = s.reopen(t, d)
	defer closeDevice(t, d)
	checkList(t, d, "kept")
	must(t, d.Start(0))
	o := openObject(t, d, "kept")
	checkObject(t, o, data)
	must(t, o.Close())
}
