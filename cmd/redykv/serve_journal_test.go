package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/ssdtier"
)

// elsewhere is memory of another machine.
type elsewhere []byte

func (elsewhere) Name() string                               { return "Redy cache elsewhere" }
func (m elsewhere) Size() int64                              { return int64(len(m)) }
func (elsewhere) Begin() error                               { return nil }
func (m elsewhere) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
func (m elsewhere) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }

// cmdElsewhere makes the directory that a store in another one leaves when it crashes while its last commits
// are in a Redy cache.
func cmdElsewhere(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "elsewhere DIR COPY")
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	dir, to := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Logger: quiet})
	ts.Check(err)
	ts.Check(ssd.UseJournal(make(elsewhere, 1<<20)))
	store, err := kv.Open(kv.Options{Device: ssd, Inner: resp.Inner, Orphans: resp.Orphans, CountKeys: true, Logger: quiet})
	ts.Check(err)
	for range 100 {
		ts.Check(errors.Join(store.Upsert(ctx, []byte("elsewhere"), []byte("1")), store.Commit(ctx)))
		ts.Check(os.RemoveAll(to))
		ts.Check(os.CopyFS(to, os.DirFS(dir)))
		report, err := ssdtier.Inspect(to)
		ts.Check(err)
		if report.Away != "" {
			break
		}
	}
	ts.Check(store.Close())
	if err := os.Remove(filepath.Join(to, "LOCK")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		ts.Check(err)
	}
}
