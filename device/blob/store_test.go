package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gcblob "gocloud.dev/blob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

const keys = 2000

// machine is a store with a bucket, on one machine.
type machine struct {
	t   *testing.T
	dir string
	dev *Device
	st  *kv.Store
	s   *kv.Session
}

func storeOptions(dev device.Device) kv.Options {
	small := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 64 << 10})
	return kv.Options{
		Device: device.NewTieredWith(device.TieredOptions{Logger: quiet}, small, dev), Logger: quiet,
		KeySize: 8, ValueSize: 8, Memory: 16 << 10, Records: keys,
	}
}

// start opens the store in dir, or restores it from the bucket.
func start(t *testing.T, dir string, b *gcblob.Bucket, opts Options) (*machine, error) {
	t.Helper()
	dev, err := Open(t.Context(), openSSD(t, dir), b, opts)
	if err != nil {
		return nil, err
	}
	st, err := kv.Open(storeOptions(dev))
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	s, err := st.NewNamedSession("writer")
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t, dir, dev, st, s}, nil
}

func mustStart(t *testing.T, b *gcblob.Bucket) *machine {
	t.Helper()
	m, err := start(t, t.TempDir(), b, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// write writes n under n%keys, n times.
func (m *machine) write(n int) {
	m.t.Helper()
	for range n {
		n := m.s.Serial() + 1
		if err := m.s.Upsert(binary.LittleEndian.AppendUint64(nil, n%keys), binary.LittleEndian.AppendUint64(nil, n)); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) commit() {
	m.t.Helper()
	if err := m.st.Commit(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// check reads all keys. The store must be in a state after some operation, whose number it
// returns.
func (m *machine) check() uint64 {
	m.t.Helper()
	p, _ := m.st.CommitPoint("writer")
	for k := range uint64(keys) {
		want := uint64(0)
		if k <= p.Until {
			want = p.Until - (p.Until-k)%keys
		}
		got, err := m.st.Read(context.Background(), binary.LittleEndian.AppendUint64(nil, k), nil)
		if want == 0 && errors.Is(err, kv.ErrNotFound) {
			continue
		}
		if err != nil || binary.LittleEndian.Uint64(got) != want {
			m.t.Fatalf("key %d: %x, %v, want %d; commit point %+v\n%v", k, got, err, want, p, m.st.Recovery())
		}
	}
	return p.Until
}

func (m *machine) close() error { return errors.Join(m.s.Close(), m.st.Close()) }

func (m *machine) mustClose() {
	m.t.Helper()
	if err := m.close(); err != nil {
		m.t.Error(err)
	}
}

// TestFilesElsewhere puts the bucket on another file system than that for temporary files, which a
// container may not have at all.
func TestFilesElsewhere(t *testing.T) {
	bucket := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(bucket, "missing"))
	opts := testOptions()
	opts.Patience = 1 // nothing is tried again
	d, err := OpenURL(t.Context(), device.NewMemory(), "file://"+filepath.ToSlash(bucket), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, d)
	if err := errors.Join(d.Start(0), d.WriteMeta("meta", []byte("data"))); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "an upload has ended", func() bool {
		s := d.Status()
		return s.Err != nil || s.Catalog > 0
	})
	if s := d.Status(); s.Err != nil {
		t.Errorf("upload: %v", s.Err)
	}
}

// TestIdle uploads a store to which nothing was written, without a failure.
func TestIdle(t *testing.T) {
	var log bytes.Buffer // its handler has a lock, and the devices are closed when it is read
	b, opts := memBucket(t), testOptions()
	opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for range 3 {
		m, err := start(t, t.TempDir(), b, opts)
		if err != nil {
			t.Fatal(err)
		}
		flush(t, m.dev)
		if s := m.dev.Status(); s.Catalog == 0 || s.Empty || s.Err != nil {
			t.Errorf("%+v", s)
		}
		m.mustClose()
	}
	if log.Len() > 0 {
		t.Errorf("warnings: %s", &log)
	}
}

// TestNewMachine restores a store from the bucket alone, several times, with checkpoints and
// compactions in between.
func TestNewMachine(t *testing.T) {
	for name, url := range map[string]func() string{
		"S3":    func() string { return newS3(t).url() },
		"files": func() string { return "file://" + t.TempDir() + "?no_tmp_dir=true" },
	} {
		t.Run(name, func(t *testing.T) { testNewMachine(t, openBucket(t, url())) })
	}
}

func testNewMachine(t *testing.T, b *gcblob.Bucket) {
	ctx := t.Context()
	for round := range 4 {
		m := mustStart(t, b)
		before := m.check()
		if want := uint64(round * 9000); before != want {
			t.Fatalf("round %d: the store is as after operation %d, want %d", round, before, want)
		}
		if round > 0 && m.dev.Status().BucketReads == 0 {
			t.Error("nothing was read in the bucket")
		}
		m.write(3000)
		m.commit()
		if _, err := m.st.Checkpoint(ctx, kv.CheckpointOptions{Kind: kv.CheckpointKind(round % 3)}); err != nil {
			t.Fatal(err)
		}
		m.write(3000)
		if round%2 == 1 {
			if _, err := m.st.Compact(ctx, kv.CompactOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		m.write(3000)
		m.commit()
		m.check()
		m.mustClose() // waits for the uploads
	}
}

// TestNothingWritten: a store without a write is in the bucket at once, and continues on other machines, also
// on one that has the log from its first block on.
func TestNothingWritten(t *testing.T) {
	b := openBucket(t, newS3(t).url())
	for range 2 {
		m := mustStart(t, b)
		var s Status
		testrun.Until(t, "an upload ends", func() bool { s = m.dev.Status(); return s.Err != nil || !s.Behind })
		if s.Err != nil {
			t.Fatal(s.Err)
		}
		m.mustClose()
	}
	for round := range uint64(3) {
		m := mustStart(t, b)
		if before := m.check(); before != round*100 {
			t.Fatalf("round %d: the store is as after operation %d", round, before)
		}
		m.write(100)
		m.commit()
		m.mustClose()
	}
}

// TestSameMachine reopens the store on its machine, while the bucket is unreachable or far
// behind.
func TestSameMachine(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	opts := testOptions()
	opts.Patience, opts.Linger = time.Millisecond, time.Millisecond
	m, err := start(t, t.TempDir(), b, opts)
	if err != nil {
		t.Fatal(err)
	}
	m.write(5000)
	m.commit()
	flush(t, m.dev)
	for round := range 3 {
		s3.set(func(int64, *http.Request) int { return http.StatusForbidden })
		m.mustClose()
		if m, err = start(t, m.dir, b, opts); err != nil {
			t.Fatalf("without the bucket: %v", err)
		}
		if got, want := m.check(), uint64(5000+1000*round); got != want {
			t.Fatalf("as after operation %d, want %d", got, want)
		}
		m.write(1000)
		m.commit()
		if s := m.dev.Status(); !s.Behind {
			t.Errorf("%+v, want one that is behind", s)
		}
		if round == 1 {
			s3.set(func(int64, *http.Request) int { return 0 })
			flush(t, m.dev)
			if s := m.dev.Status(); s.Behind || s.Err != nil || s.Uploaded.IsZero() {
				t.Errorf("%+v, want one that is up to date", s)
			}
		}
	}
	s3.set(func(int64, *http.Request) int { return 0 })
	m.mustClose()
	// The bucket now holds what the machine had uploaded: its uploader has ended.
	m = mustStart(t, b)
	if got := m.check(); got != 8000 && got != 7000 {
		t.Errorf("as after operation %d", got)
	}
	m.mustClose()
}

// TestDiesAnywhere: a machine is lost after any of its requests to the bucket. Another one
// restores the store in a state it was in, no older than the last known upload.
func TestDiesAnywhere(t *testing.T) {
	for seed := range uint64(testrun.Scale(2, 5, 20)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			s3 := newS3(t)
			b := openBucket(t, s3.url())
			known := uint64(0)
			for round := range 3 {
				m := mustStart(t, b)
				if got := m.check(); got < known {
					t.Fatalf("round %d: as after operation %d, and %d was in the bucket", round, got, known)
				}
				last := s3.requests.Load() + int64(r.IntN(60))
				s3.set(func(n int64, r *http.Request) int {
					if n > last && r.Method != http.MethodGet {
						return http.StatusForbidden // an error that is not retried
					}
					return 0
				})
				for s3.requests.Load() < last {
					m.write(1 + r.IntN(2000))
					if r.IntN(4) == 0 {
						if _, err := m.st.Checkpoint(t.Context(), kv.CheckpointOptions{Kind: kv.CheckpointKind(r.IntN(3))}); err != nil {
							t.Fatal(err)
						}
					}
					m.commit()
					if r.IntN(8) == 0 {
						if _, err := m.st.Compact(t.Context(), kv.CompactOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					if r.IntN(3) == 0 {
						written := m.s.Serial()
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						if m.dev.Flush(ctx) == nil {
							known = written
						}
						cancel()
					}
				}
				m.dev.opts.Linger = -1 // Close does not wait for uploads
				m.mustClose()
				s3.set(func(int64, *http.Request) int { return 0 })
			}
		})
	}
}

// TestTaken: of two machines that open one store, the second owns it. The first gets an error
// when it uploads, commits or reopens the store.
func TestTaken(t *testing.T) {
	b := memBucket(t)
	first := mustStart(t, b)
	first.write(1000)
	first.commit()
	flush(t, first.dev)
	second := mustStart(t, b)
	if got := second.check(); got != 1000 {
		t.Fatalf("as after operation %d", got)
	}
	second.write(500)
	second.commit()
	flush(t, second.dev)

	first.write(10)
	if err := first.st.Commit(t.Context()); err == nil { // Commit may succeed, and the error come later
		if err := first.dev.Flush(t.Context()); !errors.Is(err, ErrTaken) {
			t.Errorf("flush: %v, want ErrTaken", err)
		}
		first.write(10)
		if err := first.st.Commit(t.Context()); !errors.Is(err, ErrTaken) {
			t.Errorf("commit: %v, want ErrTaken", err)
		}
	}
	if err := first.close(); !errors.Is(err, ErrTaken) {
		t.Errorf("close: %v, want ErrTaken", err)
	}
	if m, err := start(t, first.dir, b, testOptions()); !errors.Is(err, ErrTaken) {
		t.Errorf("opening again: %v, %v, want ErrTaken", m, err)
	}
	second.mustClose()
	third := mustStart(t, b)
	if got := third.check(); got != 1500 {
		t.Errorf("as after operation %d", got)
	}
	third.mustClose()
}

// TestAdopted: a store without a bucket gets one, which then holds all of the store.
func TestAdopted(t *testing.T) {
	dir := t.TempDir()
	alone, err := kv.Open(storeOptions(openSSD(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := alone.NewNamedSession("writer")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t, dir, nil, alone, s}
	m.write(20_000)
	m.mustClose()
	b := memBucket(t)
	if m, err = start(t, dir, b, testOptions()); err != nil {
		t.Fatal(err)
	}
	flush(t, m.dev)
	if s := m.dev.Status(); s.Segments < 5 || s.Catalog == 0 {
		t.Errorf("%+v", s)
	}
	m.mustClose()
	m = mustStart(t, b)
	if got := m.check(); got != 20_000 {
		t.Errorf("as after operation %d", got)
	}
	m.mustClose()
}

// TestForeign: a bucket and a directory of different stores are refused, and stay unchanged.
func TestForeign(t *testing.T) {
	b, other := memBucket(t), memBucket(t)
	one, two := mustStart(t, b), mustStart(t, other)
	for _, m := range []*machine{one, two} {
		m.write(1000)
		m.mustClose()
	}
	refuse := func(dir string, b *gcblob.Bucket, want error) {
		t.Helper()
		ssd := openSSD(t, dir)
		if d, err := Open(t.Context(), ssd, b, testOptions()); !errors.Is(err, want) {
			t.Errorf("%v, %v, want %v", d, err, want)
		}
		closeAll(t, ssd)
	}
	refuse(one.dir, other, ErrForeign)
	// A store without a bucket, and another store's bucket.
	dir := t.TempDir()
	alone, err := kv.Open(storeOptions(openSSD(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, alone)
	refuse(dir, b, ErrForeign)
	// A machine whose log is partly in the bucket only, with an empty bucket.
	restored := mustStart(t, b)
	restored.mustClose()
	refuse(restored.dir, memBucket(t), ErrForeign)
	ssd := openSSD(t, restored.dir)
	opts := testOptions()
	opts.SegmentSize *= 2
	if d, err := Open(t.Context(), ssd, b, opts); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "131072") {
		t.Errorf("with other segments: %v, %v", d, err)
	}
	closeAll(t, ssd)
	again, err := start(t, restored.dir, b, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	again.check()
	again.mustClose()
}

// names lists the blobs of the bucket.
func names(t *testing.T, b *gcblob.Bucket) []string {
	t.Helper()
	own := &bucket{Bucket: b, retried: func(string, error) {}}
	all, err := own.list(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(all))
}

// TestSweep: truncated segments are removed from the bucket, and so are blobs of an
// interrupted upload. Blobs of others stay.
func TestSweep(t *testing.T) {
	b := memBucket(t)
	m := mustStart(t, b)
	m.write(30_000)
	m.commit()
	flush(t, m.dev)
	before := m.dev.Status().Segments
	if _, err := m.st.Compact(t.Context(), kv.CompactOptions{}); err != nil {
		t.Fatal(err)
	}
	flush(t, m.dev)
	m.mustClose()
	if after := m.dev.Status().Segments; after > before/2 {
		t.Errorf("%d segments in the bucket, before the compaction %d", after, before)
	}
	others := []string{"README", "segment/mine", "object/cat.jpg", "catalog/of-books"}
	leftovers := []string{
		segmentPrefix + "000000000099-7-" + newName(), objectPrefix + "o.1-7-" + newName(),
		// As fileblob names files that it writes.
		catalogKey(7) + ".18b0c3d2e1f00000.tmp", segmentPrefix + "000000000099-7-" + newName() + ".18b0c3d2e1f00000.tmp",
		objectPrefix + "o.1-7-" + newName() + ".18b0c3d2e1f00000.tmp", probeKey + ".18b0c3d2e1f00000.tmp",
	}
	for _, key := range append(slices.Clone(others), leftovers...) {
		if err := b.WriteAll(t.Context(), key, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	m, err := start(t, m.dir, b, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	m.check()
	m.mustClose()
	all := names(t, b)
	for _, key := range others {
		if !slices.Contains(all, key) {
			t.Errorf("%s is gone", key)
		}
	}
	for _, key := range leftovers {
		if slices.Contains(all, key) {
			t.Errorf("%s is there still", key)
		}
	}
	c := m.dev.catalog.Load()
	if len(all) != len(others)+len(c.keys())+1 { // and probeKey
		t.Errorf("the bucket has %q, want what the catalog names: %v", all, c.keys())
	}
}
