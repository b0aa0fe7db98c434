package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/redykv/redykv/internal/testrun"
)

func openPebble(t *testing.T, dir string) *Pebble {
	t.Helper()
	s, err := OpenPebble(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lead(t *testing.T, s Store) Term {
	t.Helper()
	term, err := s.Campaign(t.Context(), "http://leader")
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// contents returns all records as text.
func contents(term Term) (string, error) {
	all := ""
	err := term.Load(context.Background(), func(r Record) error {
		all += fmt.Sprintf("%s=%s@%d ", r.Key, r.Value, r.Version)
		return nil
	})
	return all, err
}

func TestPebbleDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := openPebble(t, dir)
	if err := lead(t, s).Commit(t.Context(), []Change{{"a", []byte("1"), 0}, {"b", []byte{}, 0}}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPebble(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Campaign(t.Context(), ""); !errors.Is(err, errClosed) {
		t.Errorf("campaign of a closed store: %v", err)
	}
	s = openPebble(t, dir)
	defer func() { _ = s.Close() }()
	if got, err := contents(lead(t, s)); got != "a=1@1 b=@1 " || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// A directory of another version is refused, and keeps its records.
func TestPebbleFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	write := func(key, value string) {
		t.Helper()
		db, err := pebble.Open(filepath.Join(dir, dirName), &pebble.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Set([]byte(key), []byte(value), pebble.Sync), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(formatKey, "redykv manager catalog 1")
	write("a", "1")
	for range 2 { // a refusal releases the lock
		if _, err := OpenPebble(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrFormat) {
			t.Errorf("another format: %v", err)
		}
	}
	db, err := pebble.Open(filepath.Join(dir, dirName), &pebble.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	got, done, err := db.Get([]byte("a"))
	if err != nil || string(got) != "1" {
		t.Fatalf("%q, %v", got, err)
	}
	_ = done.Close()
}

// A store with changed bytes is refused, or has the contents of an earlier time.
func TestPebbleDamaged(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "state")
	states := []string{""}
	for round := range 3 {
		s := openPebble(t, whole)
		term := lead(t, s)
		for i := range 4 {
			key := fmt.Sprintf("key-%d", i)
			if err := term.Commit(t.Context(), []Change{{key, fmt.Appendf(nil, "%s in round %d", key, round), int64(round)}}); err != nil {
				t.Fatal(err)
			}
			content, err := contents(term)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, content)
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
			if info.Size() > 0 && !opensDamaged(t, whole, path, at, states) {
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

// opensDamaged flips a bit of a copy, and reports whether the copy can still be read.
func opensDamaged(t *testing.T, whole, path string, at int64, states []string) bool {
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
	s, err := OpenPebble(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
			t.Errorf("%s at %d: %v", path, at, err)
		}
		return false
	}
	term, err := s.Campaign(t.Context(), "")
	content := ""
	if err == nil {
		content, err = contents(term)
	}
	switch {
	case err == nil && !slices.Contains(states, content):
		t.Errorf("%s at %d: content %v", path, at, content)
	case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotLeader):
		t.Errorf("%s at %d: %v", path, at, err)
	}
	if e := s.Close(); e != nil {
		t.Logf("%s at %d: close: %v", path, at, e)
	}
	return err == nil
}

// A database that cannot be written ends the term and says why.
func TestPebbleBroken(t *testing.T) {
	s := openPebble(t, t.TempDir())
	defer func() { _ = s.Close() }()
	term := lead(t, s)
	disk := errors.New("disk is on fire")
	s.data.(*database).log.fail(disk)
	testrun.Receive(t, "the term ends", term.Lost())
	if err := term.Commit(t.Context(), []Change{{"a", []byte("1"), 0}}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("commit: %v", err)
	}
	if _, err := s.Campaign(t.Context(), ""); !errors.Is(err, disk) {
		t.Errorf("campaign: %v", err)
	}
}

// A commit without changes reaches the disk, so that one that hangs is noticed.
func TestPebbleConfirms(t *testing.T) {
	s := openPebble(t, t.TempDir())
	defer func() { _ = s.Close() }()
	term := lead(t, s)
	written := func() uint64 { return s.data.(*database).db.Metrics().WAL.BytesWritten }
	before := written()
	if err := term.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if after := written(); after <= before {
		t.Errorf("%d bytes of the log are written, %d before", after, before)
	}
	if got, err := contents(term); got != "" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
