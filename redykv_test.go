package redykv

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOpenDirThatFails opens with options that do not fit, and then as it was made: the
// first try holds nothing of the directory, and has changed nothing.
func TestOpenDirThatFails(t *testing.T) {
	dir := t.TempDir()
	for _, opts := range []kv.Options{{Device: device.NewMemory()}, {Memory: -1}, {}, {KeySize: 8, ValueSize: 8}, {}} {
		store, err := OpenDir(dir, opts)
		switch fits := opts.Device == nil && opts.Memory == 0 && opts.KeySize == 0; {
		case fits && err == nil:
			if err := errors.Join(store.Upsert(context.Background(), []byte("key"), []byte("value")), store.Close()); err != nil {
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
	store, err := OpenDir(dir, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	value, err := store.Read(context.Background(), []byte("key"), nil)
	if string(value) != "value" {
		t.Errorf("%q, %v", value, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
