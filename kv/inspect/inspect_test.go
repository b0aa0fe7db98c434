package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/inspect"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/ssdtier"
)

func open(t *testing.T, opts kv.Options) *kv.Store {
	t.Helper()
	st, err := kv.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func closeAll(t *testing.T, closers ...io.Closer) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// inspectedStore makes a store with a checkpoint of every kind, in segments of
// 64 KiB, and returns its directory. What is newest is an incremental checkpoint.
func inspectedStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	st := open(t, kv.Options{
		Device: openSegments(t, dir), Memory: 64 << 10, PageSize: 4 << 10, Records: 64, FixedIndex: true,
		Checkpoints: kv.CheckpointPolicy{Keep: 10},
	})
	for i, kind := range []kv.CheckpointKind{kv.FoldOver, kv.Index, kv.Snapshot, kv.Incremental} {
		keys := 1500
		if kind == kv.Incremental {
			keys = 20
		}
		writeKeys(t, st, keys)
		opts := kv.CheckpointOptions{Kind: kind}
		if kind != kv.Index {
			opts.Name = fmt.Sprintf("%c-%v", 'a'+i, kind)
		}
		_, err := st.Checkpoint(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
	}
	// As a crash leaves it: Close would commit.
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeAll(t, st)
	closeAll(t, openSegments(t, copied)) // with its metadata in files
	return copied
}

func openSegments(t *testing.T, dir string) *ssdtier.Device {
	t.Helper()
	dev, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// writeKeys writes keys of all sizes anew, deletes some and lets some expire.
func writeKeys(t *testing.T, st *kv.Store, keys int) {
	t.Helper()
	s := st.NewSession()
	defer closeAll(t, s)
	for n := range keys {
		key := fmt.Appendf(nil, "key %d", n)
		op := kv.Op{Kind: kv.OpUpsert, Key: key, Value: bytes.Repeat([]byte{'v'}, n%100)}
		switch n % 10 {
		case 0:
			if st.Metrics().Operations.Deletes > 0 || n == 1490 { // in the second round
				op.Kind = kv.OpDelete
			}
		case 1:
			op.Expires = time.Now().Add(time.Hour).UnixMilli()
		}
		if err := s.Run(&op); err != nil && !errors.Is(err, kv.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// inspectDir inspects a directory, and checks that this changes nothing.
func inspectDir(t *testing.T, dir string, opts inspect.Options) *inspect.Report {
	t.Helper()
	r, err := ssdtier.NewReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	in := inspect.Store(r, opts)
	closeAll(t, r)
	return in
}

func wantProblems(t *testing.T, in *inspect.Report, want ...string) {
	t.Helper()
	ok := len(in.Problems) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(in.Problems[i].String(), want[i])
	}
	if !ok {
		t.Errorf("want problems %q, have\n%v", want, in)
	}
}

// TestInspect looks at a whole store and compares with what is there when it is
// opened.
func TestInspect(t *testing.T) {
	dir := inspectedStore(t)
	seen := make(map[int64]string)
	last := int64(0)
	in := inspectDir(t, dir, inspect.Options{Record: func(r inspect.Record) {
		if r.Address <= last {
			t.Errorf("record at %d after %d", r.Address, last)
		}
		last = r.Address
		seen[r.Address] = fmt.Sprintf("%q %q %v", r.Key, r.Value, r.Deleted)
	}})
	wantProblems(t, in)
	if len(in.Notes) != 0 || in.Opens != "d-incremental" || in.Layout != "variable length" || in.PageSize != 4<<10 || len(in.Checkpoints) != 3 {
		t.Errorf("%v", in)
	}
	if len(in.Indexes) == 0 || len(in.Snapshots) != 2 || in.Snapshots[1].Bytes >= in.Snapshots[0].Bytes {
		t.Errorf("indexes %+v, snapshots %+v", in.Indexes, in.Snapshots)
	}
	for _, x := range in.Indexes {
		if x.Checked == 0 || x.Checked != x.Entries || x.Buckets != 1<<in.IndexBits {
			t.Errorf("%+v", x)
		}
	}
	text := in.String()
	for _, want := range []string{"a-fold-over", `opens as of checkpoint "d-incremental"`, "no problems"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}

	st := open(t, kv.Options{Device: openSegments(t, dir), Memory: 64 << 10})
	var records, deleted int64
	log := st.ScanLog(in.Log.Begin, in.Log.Tail)
	for r, err := range log {
		if err != nil {
			t.Fatal(err)
		}
		records++
		if r.Tombstone {
			deleted++
		}
		if got, want := seen[r.Address], fmt.Sprintf("%q %q %v", r.Key, r.Value, r.Tombstone); got != want {
			t.Errorf("at %d %s, want %s", r.Address, got, want)
		}
	}
	if in.Log.Records != records || in.Log.Deleted != deleted || len(seen) != int(records) || in.Log.Expiring == 0 || in.Log.Bytes == 0 || in.Log.Damaged != 0 {
		t.Errorf("%+v, %d records shown; the store has %d, %d of them deleted", in.Log, len(seen), records, deleted)
	}
	closeAll(t, st)
}

// TestInspectDamage has each kind of damage found, with its place.
func TestInspectDamage(t *testing.T) {
	dir := inspectedStore(t)
	m, err := readDirManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	copied := m.Checkpoints[0].Index.Object
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   []string
	}{
		"manifest cut short": {func(t *testing.T, dir string) { cut(t, dir, "meta.store", 20) },
			[]string{"the manifest: "}},
		"manifest missing": {func(t *testing.T, dir string) { remove(t, dir, "meta.store") },
			[]string{`the manifest, metadata "store": device: no such metadata: restore it`}},
		"segment missing": {func(t *testing.T, dir string) { remove(t, dir, "000000000000.seg") },
			[]string{"the log from 64 until 65536: ssdtier: open"}},
		"segment cut short": {func(t *testing.T, dir string) { cut(t, dir, "000000000001.seg", 61_000) },
			[]string{"the log from 122880 until 131072: ssdtier: "}},
		"header": {func(t *testing.T, dir string) { flip(t, dir, "000000000000.seg", 64+7, 0x80) },
			[]string{"the log from 64 until 4096: hlog: corrupt log: at address 64: no record"}},
		"link": {func(t *testing.T, dir string) { flip(t, dir, "000000000000.seg", 64+4, 0x80) },
			[]string{"the log from 64 until 4096: hlog: corrupt log: at address 64: its link leads to"}},
		"snapshot": {func(t *testing.T, dir string) { flip(t, dir, "object."+m.Checkpoints[2].Snapshot, 500, 1) },
			[]string{`checkpoint "d-incremental": reading object "snapshot-8"`}},
		"snapshot that another stands on": {func(t *testing.T, dir string) { remove(t, dir, "object."+m.Checkpoints[1].Snapshot) },
			[]string{`checkpoint "c-snapshot": opening object`}},
		"index": {func(t *testing.T, dir string) { flip(t, dir, "object."+copied, 5000, 1) },
			[]string{fmt.Sprintf("index %q: ", copied)}},
		"entries exchanged": {func(t *testing.T, dir string) { exchangeEntries(t, dir, m) },
			[]string{"2 entries lead to no record of their hash", "have no entry"}},
	} {
		t.Run(name, func(t *testing.T) {
			sick := t.TempDir()
			if err := os.CopyFS(sick, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, sick)
			in := inspectDir(t, sick, inspect.Options{})
			wantProblems(t, in, tc.want...)
			for _, p := range in.Problems {
				if p.Advice == "" || !strings.Contains(in.String(), p.Advice) {
					t.Errorf("no advice in the report: %v", p)
				}
			}
		})
	}
}

// TestInspectLostSums cuts a file of checksums short, or empties it. Their blocks cannot be
// read any more, and only the tail of the commit shows that the checksums existed.
func TestInspectLostSums(t *testing.T) {
	for _, tc := range []struct {
		segment string
		size    int64
	}{{"000000000000", 4096}, {"000000000001", 4096}, {"000000000000", 0}, {"000000000001", 0}} {
		dir := inspectedStore(t)
		file := filepath.Join(dir, tc.segment+".sum")
		if err := os.Truncate(file, tc.size); err != nil {
			t.Fatal(err)
		}
		r, err := ssdtier.NewReader(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := inspect.Store(r, inspect.Options{})
		closeAll(t, r)
		if !slices.ContainsFunc(found.Problems, func(p inspect.Problem) bool { return strings.Contains(p.What, file) }) {
			t.Errorf("with %d bytes of checksums of segment %s: %v", tc.size, tc.segment, found)
		}
	}
}

// TestInspectAnything flips bits anywhere: whatever becomes of the store, it can
// be looked at.
func TestInspectAnything(t *testing.T) {
	dir := inspectedStore(t)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := testrun.Raced(60, 10)
	for round := range rounds {
		file := files[rng.IntN(len(files))]
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(was) == 0 {
			continue
		}
		now := bytes.Clone(was)
		for range 1 + rng.IntN(20) {
			now[rng.IntN(len(now))] ^= 1 << rng.IntN(8)
		}
		if round%5 == 0 {
			now = now[:rng.IntN(len(now))]
		}
		if err := os.WriteFile(file, now, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := ssdtier.NewReader(dir); err == nil {
			if in := inspect.Store(r, inspect.Options{}); in.String() == "" {
				t.Error("nothing was found")
			}
			closeAll(t, r)
		}
		if err := os.WriteFile(file, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantProblems(t, inspectDir(t, dir, inspect.Options{}))
}

func TestInspectEmpty(t *testing.T) {
	dir := t.TempDir()
	closeAll(t, openSegments(t, dir))
	in := inspectDir(t, dir, inspect.Options{})
	wantProblems(t, in)
	if len(in.Notes) != 1 {
		t.Errorf("%v", in)
	}
}

func readDirManifest(dir string) (*manifest.Manifest, error) {
	r, err := ssdtier.NewReader(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return manifest.Read(r)
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, dir, name string, size int64) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, dir, name string, at int, bit byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= bit
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// exchangeEntries writes a copy of the index anew in which two entries have exchanged
// their addresses.
func exchangeEntries(t *testing.T, dir string, m *manifest.Manifest) {
	t.Helper()
	c := m.Checkpoints[0].Index
	dev := openSegments(t, dir)
	defer closeAll(t, dev)
	table, err := index.Load(dev, c, m.Checkpoints[0].Tail, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := index.NewHash(m.HashSeed)
	var places []index.Place
	for n := 0; len(places) < 2; n++ {
		p, _ := table.Find(hash.Of(fmt.Appendf(nil, "key %d", n)))
		if !p.None() && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	a, b := places[0].Load(), places[1].Load()
	places[0].Store(a.WithAddress(b.Address()))
	places[1].Store(b.WithAddress(a.Address()))
	w, err := manifest.CreateObject(t.Context(), dev, c.Object, manifest.IndexChunk)
	if err == nil {
		err = table.Copy(t.Context(), w)
	}
	if err == nil {
		err = w.Commit()
	}
	if err == nil {
		err = table.Free()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An older checkpoint ends where a Clear left a gap.
func TestInspectOfAClearedStore(t *testing.T) {
	for _, keys := range []int{100, 1500} { // in one page, and in several
		dir := t.TempDir()
		st := open(t, kv.Options{Device: openSegments(t, dir), Memory: 64 << 10, PageSize: 16 << 10, Records: 64})
		writeKeys(t, st, keys)
		if _, err := st.Checkpoint(t.Context(), kv.CheckpointOptions{Kind: kv.FoldOver, Name: "old"}); err != nil {
			t.Fatal(err)
		}
		if err := st.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		writeKeys(t, st, 20)
		closeAll(t, st)
		in := inspectDir(t, dir, inspect.Options{})
		wantProblems(t, in)
		if in.Log.Records <= int64(keys) { // not all keys have one, but few have none
			t.Errorf("%d records of both parts, %d were written before the Clear", in.Log.Records, keys)
		}
	}
}

// TestInspectAfterClear has a log that begins in the middle of a page.
func TestInspectAfterClear(t *testing.T) {
	dir := t.TempDir()
	st := open(t, kv.Options{Device: openSegments(t, dir), Memory: 64 << 10, PageSize: 16 << 10, Records: 64})
	checkpoint := func(kind kv.CheckpointKind) {
		t.Helper()
		if _, err := st.Checkpoint(t.Context(), kv.CheckpointOptions{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	writeKeys(t, st, 1500)
	if err := st.Clear(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkpoint(kv.FoldOver)
	writeKeys(t, st, 20)
	checkpoint(kv.Snapshot)
	closeAll(t, st)
	in := inspectDir(t, dir, inspect.Options{})
	if in.Log.Begin%(16<<10) == 0 {
		t.Error("the log begins with a page")
	}
	wantProblems(t, in)
}
