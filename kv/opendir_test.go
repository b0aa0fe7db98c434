package kv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// TestOpenDir reopens a store in a directory. It also checks that an impossible directory, or
// a device in the options, is refused, and that the error names it.
func TestOpenDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	for range 2 {
		store, err := kv.OpenDir(dir, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if value, err := store.Read(t.Context(), []byte("key"), nil); err == nil && string(value) != "value" {
			t.Errorf("found %q", value)
		} else if err != nil {
			if err := store.Upsert(t.Context(), []byte("key"), []byte("value")); err != nil {
				t.Error(err)
			}
		}
		if _, err := kv.OpenDir(dir, kv.Options{}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("opened twice: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	if store, err := kv.OpenDir(dir, kv.Options{}); err != nil {
		t.Error(err)
	} else if value, err := store.Read(t.Context(), []byte("key"), nil); string(value) != "value" {
		t.Errorf("found %q, %v", value, err)
	} else if err := store.Close(); err != nil {
		t.Error(err)
	}
	if _, err := kv.OpenDir(dir, kv.Options{Device: device.NewMemory()}); err == nil {
		t.Error("a directory and a device")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.OpenDir(file, kv.Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("opened a file: %v", err)
	}
}

// TestOpenDirThatFails opens a store with mismatching options, and then with the right ones.
// The failed call keeps nothing of the directory open, and changes nothing.
func TestOpenDirThatFails(t *testing.T) {
	dir := t.TempDir()
	for _, opts := range []kv.Options{{Device: device.NewMemory()}, {Memory: -1}, {}, {KeySize: 8, ValueSize: 8}, {}} {
		store, err := kv.OpenDir(dir, opts)
		switch fits := opts.Device == nil && opts.Memory == 0 && opts.KeySize == 0; {
		case fits && err == nil:
			if err := errors.Join(store.Upsert(t.Context(), []byte("key"), []byte("value")), store.Close()); err != nil {
				t.Error(err)
			}
		case fits:
			t.Fatal(err)
		case err == nil:
			t.Errorf("opened with %+v", opts)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		case opts.KeySize != 0 && !errors.Is(err, kv.ErrMismatch):
			t.Error(err)
		}
	}
	store, err := kv.OpenDir(dir, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	value, err := store.Read(t.Context(), []byte("key"), nil)
	if string(value) != "value" {
		t.Errorf("%q, %v", value, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
