package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func openState(t *testing.T, dir string) *OldPebble {
	t.Helper()
	s, err := OpenOldPebble(dir, slog.New(slog.DiscardHandler), func(err error) { t.Errorf("broken: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func contentOf(s OldStore) (map[string]string, error) {
	all := make(map[string]string)
	err := s.Load(func(key string, value []byte) error {
		all[key] = string(value)
		return nil
	})
	return all, err
}

func TestOldPebble(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := openState(t, dir)
	if err := s.Apply(map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": {}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(map[string][]byte{"a": nil, "b": []byte("3"), "never": nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOldPebble(dir, slog.New(slog.DiscardHandler), nil); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openState(t, dir)
	got, err := contentOf(s)
	if want := map[string]string{formatKey: oldFormatValue, "b": "3", "c": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("content %v, %v, want %v", got, err, want)
	}
	if err := s.Apply(map[string][]byte{formatKey: []byte("another")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(map[string][]byte{"late": []byte("1")}); !errors.Is(err, errStoreClosed) {
		t.Errorf("change of a closed store: %v", err)
	}
	for range 2 { // a refusal releases the lock
		if _, err := OpenOldPebble(dir, slog.New(slog.DiscardHandler), nil); !errors.Is(err, ErrFormat) {
			t.Errorf("another format: %v", err)
		}
	}
}

// A store with changed bytes is refused, or has the contents of an earlier time.
func TestOldPebbleDamaged(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "state")
	states := []string{fmt.Sprint(map[string]string{formatKey: oldFormatValue})}
	for round := range 3 {
		s := openState(t, whole)
		for i := range 4 {
			key := fmt.Sprintf("key-%d", i)
			if err := s.Apply(map[string][]byte{key: fmt.Appendf(nil, "%s in round %d", key, round)}); err != nil {
				t.Fatal(err)
			}
			content, err := contentOf(s)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, fmt.Sprint(content))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	err := fs.WalkDir(os.DirFS(whole), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		for _, at := range []int64{0, info.Size() / 3, info.Size() / 2, info.Size() - 1} {
			if info.Size() > 0 && !damaged(t, whole, path, at, states) {
				refused++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if refused == 0 {
		t.Error("nothing was noticed")
	}
}

// damaged flips a bit of a copy, and reports whether the copy can still be opened.
func damaged(t *testing.T, whole, path string, at int64, states []string) bool {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, path)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x40
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenOldPebble(dir, slog.New(slog.DiscardHandler), func(error) {})
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
			t.Errorf("%s at %d: %v", path, at, err)
		}
		return false
	}
	content, err := contentOf(s)
	if err == nil {
		if !slices.Contains(states, fmt.Sprint(content)) {
			t.Errorf("%s at %d: content %v", path, at, content)
		}
	}
	if e := s.Close(); e != nil {
		t.Logf("%s at %d: close: %v", path, at, e)
	}
	return err == nil
}
