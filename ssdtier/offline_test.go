package ssdtier

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestReader reads what a device wrote, without changing anything.
func TestReader(t *testing.T) {
	d, content := sickDirectory(t)
	r, err := NewReader(d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(content)-100)
	if n, err := r.ReadAt(got, 100); n != len(got) || err != nil || !bytes.Equal(got, content[100:]) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if r.Begin() != 100 {
		t.Errorf("begins at %d", r.Begin())
	}
	if _, err := r.ReadAt(got, 1<<40); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("far behind the end: %v", err)
	}
	if names, err := r.ListObjects(); err != nil || !slices.Equal(names, []string{"o"}) {
		t.Errorf("%q, %v", names, err)
	}
	o, err := r.OpenObject("o")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size())); err != nil || !bytes.Equal(got, content) {
		t.Errorf("object of %d bytes, %v", len(got), err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if m, err := r.ReadMeta("m"); err != nil || len(m) != 4 {
		t.Errorf("%q, %v", m, err)
	}
	if _, err := r.ReadMeta("absent"); !errors.Is(err, device.ErrNoMeta) {
		t.Error(err)
	}
	if _, err := r.OpenObject("absent"); !errors.Is(err, device.ErrNoObject) {
		t.Error(err)
	}
	for _, name := range []string{"../o", ""} {
		_, err := r.OpenObject(name)
		_, err2 := r.ReadMeta(name)
		if err == nil || err2 == nil {
			t.Errorf("a file named %q was opened", name)
		}
	}

	if _, err := Open(d.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("opened while somebody reads: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	open := mustOpen(t, d.Dir(), Options{})
	if _, err := NewReader(d.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("read while somebody has it open: %v", err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReaderOfSickFiles: errors name the file.
func TestReaderOfSickFiles(t *testing.T) {
	d, content := sickDirectory(t)
	if err := errors.Join(os.Truncate(d.path(segmentName(1)), 0), os.Truncate(d.path("meta.m"), 2)); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.ReadAt(make([]byte, len(content)), 0)
	if n != minSegmentSize || err == nil || !strings.Contains(err.Error(), segmentName(1)+" is cut short") {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := r.ReadMeta("m"); !errors.Is(err, device.ErrCorrupt) || !strings.Contains(err.Error(), "meta.m") {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(d.path(formatName), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(d.Dir()); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

// TestReaderOfAnInterruptedUpgrade reads metadata of a directory whose upgrade to checksums
// was interrupted.
func TestReaderOfAnInterruptedUpgrade(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		formatName:          "redykv ssdtier 1 segment 65536\n",
		metaPrefix + "old":  "as it was",
		metaPrefix + "done": string(seal([]byte("sealed"))),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"old": "as it was", "done": "sealed"} {
		if got, err := r.ReadMeta(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
