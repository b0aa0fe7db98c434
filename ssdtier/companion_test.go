package ssdtier

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/redykv/redykv/device"
)

// A companion is read by the next process, and ends with a Start of a process that has not
// written it.
func TestCompanion(t *testing.T) {
	dir := t.TempDir()
	open := func(want string) *Device {
		t.Helper()
		d := mustOpen(t, dir, Options{})
		if got, err := d.ReadCompanion(); err != nil || string(got) != want {
			t.Errorf("the companion is %q, %v; want %q", got, err, want)
		}
		return d
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := open("")
	must(d.WriteCompanion([]byte("too early")))
	must(d.WriteCompanion([]byte("first")))
	must(d.Start(0)) // its own stays
	must(d.Close())
	if err := d.WriteCompanion([]byte("late")); !errors.Is(err, device.ErrClosed) {
		t.Errorf("WriteCompanion after Close: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, companionPrefix+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info, err)
	}
	if r, err := Inspect(dir); err != nil || len(r.Problems)+len(r.Notes) > 0 {
		t.Errorf("Inspect: %+v, %v", r, err)
	}

	d = open("first") // nothing has ended it
	must(d.Close())
	d = open("first")
	must(d.WriteCompanion([]byte("second")))
	must(d.Start(0))
	must(d.Close())
	d = open("second")
	must(d.Start(0)) // by a process that knows no companion
	must(d.Close())
	d = open("")
	must(d.WriteCompanion([]byte("third")))
	must(d.Close())
	d = open("third")
	must(d.WriteCompanion(nil))
	must(d.Close())
	must(open("").Close())
}

// A damaged companion is an error. Of two, neither is believed.
func TestBadCompanions(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{})
	if err := d.WriteCompanion([]byte("data")); err != nil {
		t.Fatal(err)
	}
	path := d.path(d.companion)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file[1] ^= 1
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, dir, Options{})
	if data, err := d.ReadCompanion(); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("a damaged companion is %q, %v", data, err)
	}
	if err := os.WriteFile(path+"2", file, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := d.ReadCompanion(); data != nil || err != nil {
		t.Errorf("one of two companions is %q, %v", data, err)
	}
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	if left, err := d.otherCompanions(); len(left) > 0 || err != nil {
		t.Errorf("Start leaves %q, %v", left, err)
	}
}
