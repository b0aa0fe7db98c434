package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// kept returns the names of the kept checkpoints.
func (g *stage) kept() string {
	var names []string
	for _, c := range g.st.Checkpoints() {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// make makes a checkpoint after some writes, and returns its name.
func (g *stage) make(name string, kind CheckpointKind) string {
	g.t.Helper()
	g.scribble(30)
	return mustCheckpoint(g.t, g.st, CheckpointOptions{Name: name, Kind: kind}).Name
}

// TestKeepsWhatIsNeeded makes chains of increments, and checks which checkpoints are kept.
func TestKeepsWhatIsNeeded(t *testing.T) {
	opts := small(nil, 8, 8)
	opts.Checkpoints.Keep = 2
	g := newStage(t, opts)
	given, label := map[string]string{}, map[string]string{}
	for _, step := range []struct {
		name string // name in this table; the store assigns another one
		kind CheckpointKind
		want string
	}{
		{"s1", Snapshot, "s1"},
		{"i1", Incremental, "s1 i1"},
		{"i2", Incremental, "s1 i1 i2"},
		{"f1", FoldOver, "s1 i1 i2 f1"},
		{"f2", FoldOver, "f1 f2"},
		{"i3", Incremental, "f2 i3"}, // its base was removed, so it is a Snapshot
		{"i4", Incremental, "i3 i4"},
		{"s2", Snapshot, "i3 i4 s2"},
		{"i5", Incremental, "s2 i5"},
	} {
		name := g.make("", step.kind)
		given[step.name], label[name] = name, step.name
		var kept []string
		for _, c := range g.st.Checkpoints() {
			kept = append(kept, label[c.Name])
		}
		if got := strings.Join(kept, " "); got != step.want {
			t.Fatalf("after %s: %q are kept, want %q", step.name, got, step.want)
		}
		if err := g.uncollected(); err != nil {
			t.Errorf("after %s: %v", step.name, err)
		}
	}
	if c := g.st.Checkpoints()[1]; c.Kind != Incremental || c.Base != given["s2"] {
		t.Errorf("%v", c)
	}
	if err := g.st.RemoveCheckpoint(context.Background(), given["s2"]); err == nil || !strings.Contains(err.Error(), given["i5"]) {
		t.Errorf("removed what an increment stands on: %v", err)
	}
	if err := g.st.RemoveCheckpoint(context.Background(), given["s1"]); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("removed what is gone: %v", err)
	}
	if err := errors.Join(g.st.RemoveCheckpoint(context.Background(), given["i5"]), g.st.RemoveCheckpoint(context.Background(), given["s2"])); err != nil {
		t.Error(err)
	}
	if got := g.kept(); got != "" {
		t.Errorf("%q are kept", got)
	}
	if err := g.uncollected(); err != nil {
		t.Error(err)
	}
	closeAll(t, g.st)
}

func TestBadCheckpoints(t *testing.T) {
	g := newStage(t, small(nil, 8, 8))
	g.make("there", FoldOver)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		opts CheckpointOptions
		want error
	}{
		{context.Background(), CheckpointOptions{Name: "there"}, ErrNameInUse},
		{context.Background(), CheckpointOptions{Name: "no/name"}, nil},
		{context.Background(), CheckpointOptions{Name: "c17"}, nil},
		{context.Background(), CheckpointOptions{Name: LastCommit}, nil},
		{context.Background(), CheckpointOptions{Kind: manifest.Kinds}, nil},
		{context.Background(), CheckpointOptions{Kind: Index, Name: "index"}, nil},
		{cancelled, CheckpointOptions{}, context.Canceled},
	} {
		if info, err := g.st.Checkpoint(tc.ctx, tc.opts); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, %v", tc.opts, info, err)
		}
	}
	if m := g.st.Metrics(); m.Checkpoints.Made != 1 || m.Checkpoints.Failed != 7 {
		t.Errorf("metrics: %v", m)
	}
	closeAll(t, g.st)
	if _, err := g.st.Checkpoint(context.Background(), CheckpointOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	volatile := open(t, small(device.NewMemoryWith(device.MemoryOptions{Volatile: true}), 8, 8))
	for kind := range manifest.Kinds {
		if _, err := volatile.Checkpoint(context.Background(), CheckpointOptions{Kind: kind, LogOnly: true}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v on a device that keeps nothing: %v", kind, err)
		}
	}
	if err := volatile.Commit(context.Background()); err != nil {
		t.Error(err)
	}
	closeAll(t, volatile)
	for _, policy := range []CheckpointPolicy{{Keep: -1}, {Every: -1}, {EveryBytes: -1}, {Kind: manifest.Kinds}, {Increments: -1}, {Kind: Snapshot}, {Increments: 3}, {Every: 1, Increments: 3}} {
		if st, err := Open(Options{Device: device.NewMemory(), Checkpoints: policy}); err == nil {
			t.Errorf("opened with %+v", policy)
			closeAll(t, st)
		}
	}
}

// TestDamage changes one byte of each object, and of the manifest, in many places. A damaged
// index only costs time. A state with a damaged snapshot is not recovered, nor is an older one
// instead of it.
func TestDamage(t *testing.T) {
	opts := small(nil, 8, 8)
	opts.Checkpoints.Keep = 3
	g := newStage(t, opts)
	g.make("old", FoldOver)
	g.make("base", Snapshot)
	g.make("top", Incremental)
	want := g.contents()
	m := g.st.recorded()
	index := m.Named("top").Index.Object
	crash(t, g.st)
	g.disk.Reopen()
	names, err := g.disk.ListObjects()
	if err != nil || len(names) != 5 {
		t.Fatalf("%q, %v", names, err)
	}
	sealed, err := g.disk.ReadMeta(manifest.Name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		all[name] = object(t, g.disk, name)
	}
	for _, name := range names {
		data := all[name]
		for at := 0; at < len(data); at += 1 + len(data)/50 {
			bad := slices.Clone(data)
			bad[at] ^= 1 << (at % 8)
			putObject(t, g.disk, name, bad[:len(bad)-at%2]) // some are also truncated
			g.raise()
			st, err := Open(g.opts)
			switch {
			case err == nil:
				if got := contents(t, st, stageKeys); !slices.Equal(got, want) {
					t.Fatalf("%s, byte %d: recovered %v, want %v", name, at, got, want)
				}
				r := st.Recovery()
				if scanned := r.Index == "" && len(r.Warnings) == 1 && r.ScannedFrom == r.Begin; scanned != (name == index) {
					t.Fatalf("%s, byte %d: %v", name, at, r)
				}
				crash(t, st)
			case !strings.HasPrefix(name, snapshotObject):
				t.Fatalf("%s, byte %d: %v", name, at, err)
			case !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), `can name "old"`):
				t.Fatalf("%s, byte %d: an error that does not help: %v", name, at, err)
			}
			g.disk.Reopen()
			for name, data := range all {
				putObject(t, g.disk, name, data)
			}
			if err := g.disk.WriteMeta(manifest.Name, sealed); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at := range sealed {
		bad := slices.Clone(sealed)
		bad[at] ^= 1
		if m, err := manifest.Parse(bad); err == nil || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMismatch) {
			t.Errorf("manifest with another byte %d: %+v, %v", at, m, err)
		}
	}
}

// object returns the bytes of an object.
func object(t testing.TB, disk device.Device, name string) []byte {
	t.Helper()
	o, err := disk.OpenObject(name)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, o.Size())
	if _, err := o.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	closeAll(t, o)
	return data
}

func putObject(t testing.TB, disk device.Device, name string, data []byte) {
	t.Helper()
	w, err := disk.CreateObject(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// spoil changes a byte of an object.
func spoil(t testing.TB, disk device.Device, name string) {
	t.Helper()
	data := object(t, disk, name)
	data[len(data)/2] ^= 1
	putObject(t, disk, name, data)
}

// TestCheckpointsByThemselves makes automatic checkpoints, by time and by size.
func TestCheckpointsByThemselves(t *testing.T) {
	for name, policy := range map[string]CheckpointPolicy{
		"time": {Every: time.Minute, Kind: Incremental, Increments: 2, Keep: 20},
		"size": {EveryBytes: 500, Kind: FoldOver},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := small(nil, 8, 8)
				opts.Checkpoints = policy
				failed := 0
				opts.Events.BackgroundError = func(BackgroundErrorInfo) { failed++ }
				g := newStage(t, opts)
				var kinds string
				for range 6 {
					g.scribble(60)
					time.Sleep(time.Minute)
					synctest.Wait()
					all := g.st.Checkpoints()
					kinds += fmt.Sprint(all[len(all)-1].Kind)[:1]
				}
				if want := map[string]string{"time": "siisii", "size": "ffffff"}[name]; kinds != want {
					t.Errorf("checkpoints %s, want %s", kinds, want)
				}
				before := g.st.Metrics().Checkpoints.Made
				g.dev.arm(0, false) // fails the first operation of the next one
				g.scribble(60)
				time.Sleep(time.Minute)
				synctest.Wait()
				g.scribble(60)
				time.Sleep(time.Minute)
				synctest.Wait()
				if m := g.st.Metrics(); m.Checkpoints.Failed != 1 || failed != 1 || m.Checkpoints.Made != before+1 {
					t.Errorf("one checkpoint after another failed: %v, %d events", m, failed)
				}
				closeAll(t, g.st)
			})
		})
	}
}

// TestLostManifestIsNoNewStore removes the manifest of a store that has its records only in
// snapshots. Open does not remove them.
func TestLostManifestIsNoNewStore(t *testing.T) {
	g := newStage(t, small(nil, 8, 8))
	g.make("only", Snapshot)
	want := g.contents()
	sealed, err := g.disk.ReadMeta(manifest.Name)
	if err != nil {
		t.Fatal(err)
	}
	g.fall()
	lost := device.NewMemory()
	for _, name := range objectNames(t, g.disk) {
		putObject(t, lost, name, object(t, g.disk, name))
	}
	g.disk = lost
	g.raise()
	if st, err := Open(g.opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), manifest.Name) {
		t.Fatalf("opened without a manifest: %v, %v", st, err)
	}
	if err := g.disk.WriteMeta(manifest.Name, sealed); err != nil {
		t.Fatal(err)
	}
	g.opts.Device = lost
	g.st = open(t, g.opts)
	if got := g.contents(); !slices.Equal(got, want) {
		t.Errorf("with its manifest back: %v, want %v", got, want)
	}
	closeAll(t, g.st)
}

func objectNames(t testing.TB, disk *device.Memory) []string {
	t.Helper()
	names, err := disk.ListObjects()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestNamedCheckpointsStay makes checkpoints with and without names, compacts the log below
// them, and removes the named ones.
func TestNamedCheckpointsStay(t *testing.T) {
	opts := small(nil, 8, 8)
	opts.Checkpoints.Keep = 2
	g := newStage(t, opts)
	g.make("first", FoldOver)
	g.make("base", Snapshot)
	for range 3 {
		g.make("", FoldOver)
	}
	g.make("step", Incremental)
	for range 3 {
		g.make("", Snapshot)
	}
	names := strings.Fields(g.kept())
	if want := []string{"first", "base", "step"}; len(names) != 5 || !slices.Equal(names[:3], want) || !manifest.GivenName(names[3]) || !manifest.GivenName(names[4]) {
		t.Fatalf("%q are kept, want %q and two without names", names, want)
	}
	before := g.st.Metrics().Checkpoints.PinnedBytes
	if _, err := g.st.Compact(context.Background(), CompactOptions{}); err != nil {
		t.Fatal(err)
	}
	m, begin := g.st.Metrics(), g.st.dev.Begin()
	if before != 0 || m.Checkpoints.PinnedBytes == 0 || begin > m.Log.Begin-m.Checkpoints.PinnedBytes {
		t.Errorf("before: %d bytes are pinned; after: %d, and the device begins at %d, the log at %d", before, m.Checkpoints.PinnedBytes, begin, m.Log.Begin)
	}
	for _, c := range g.st.Checkpoints() {
		if c.Pinned != m.Log.Begin-c.Begin || c.Pinned <= 0 {
			t.Errorf("%q pins %d bytes of the log from %d, which is in use from %d on", c.Name, c.Pinned, c.Begin, m.Log.Begin)
		}
	}
	for _, name := range append(names[3:], "step", "base", "first") {
		if err := g.st.RemoveCheckpoint(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	if m := g.st.Metrics(); g.kept() != "" || m.Checkpoints.PinnedBytes != 0 || g.st.dev.Begin() <= begin {
		t.Errorf("%q are kept, %d bytes pinned, the device begins at %d", g.kept(), m.Checkpoints.PinnedBytes, g.st.dev.Begin())
	}
	if err := g.uncollected(); err != nil {
		t.Error(err)
	}
	closeAll(t, g.st)
}
