package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// killedDir passes to a child process, which the test kills, its directory, and killedBase the
// number that it adds to every value.
const (
	killedDir  = "REDYKV_TEST_KILLED_DIR"
	killedBase = "REDYKV_TEST_KILLED_BASE"
	killedKeys = 5000
)

// onFiles returns the options of a store on the files in dir.
func onFiles(t testing.TB, dir string, opts kv.Options) kv.Options {
	t.Helper()
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	opts.Device = device.NewTiered(ssd)
	return opts
}

func openSSD(t testing.TB, dir string, opts kv.Options) *kv.Store {
	t.Helper()
	opts = onFiles(t, dir, opts)
	st, err := kv.Open(opts)
	if err != nil {
		t.Fatal(errors.Join(err, opts.Device.Close()))
	}
	return st
}

func options(records int64) kv.Options {
	return kv.Options{KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: records}
}

// TestHeapStaysFlat loads and reads much more than fits into memory. The records must not be
// in the Go heap.
func TestHeapStaysFlat(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine operates")
	const records = 400_000
	st := openSSD(t, t.TempDir(), options(records))
	s := st.NewSession()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	key, buf := make([]byte, 8), make([]byte, 0, 8)
	run := func(from, to uint64) {
		for n := from; n < to; n++ {
			binary.LittleEndian.PutUint64(key, n)
			if err := s.Upsert(key, key); err != nil {
				t.Fatal(err)
			}
			if n%64 == 0 {
				binary.LittleEndian.PutUint64(key, n/2)
				if _, err := s.Read(key, buf); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run(0, records/4) // memory is full, and all buffers are allocated
	before := heap()
	run(records/4, records)
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes while the log grew by %d", before, after, records*3/4*24)
	}
	if err := errors.Join(s.Close(), st.Close()); err != nil {
		t.Error(err)
	}
}

// TestLostMetadataIsNoNewStore removes the store's metadata. Open must not make a new store,
// which would drop the records that still exist.
func TestLostMetadataIsNoNewStore(t *testing.T) {
	dir := t.TempDir()
	st := openSSD(t, dir, options(100))
	if err := st.Upsert(context.Background(), make([]byte, 8), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	meta, aside := filepath.Join(dir, "meta.store"), filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(meta, aside); err != nil {
		t.Fatal(err)
	}
	opts := onFiles(t, dir, options(100))
	if st, err := kv.Open(opts); !errors.Is(err, ssdtier.ErrFormat) {
		t.Fatalf("opened without metadata: %v, %v", st, err)
	}
	if err := errors.Join(opts.Device.Close(), os.Rename(aside, meta)); err != nil {
		t.Fatal(err)
	}
	st = openSSD(t, dir, options(100))
	if _, err := st.Read(context.Background(), make([]byte, 8), nil); err != nil {
		t.Errorf("with its metadata back: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

// TestKilledProcessLosesNothingCommitted kills a process that writes and commits, several
// times on the same store, and opens the store each time.
func TestKilledProcessLosesNothingCommitted(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	for round := range uint64(3) {
		base := round * 1e9 // so that a later round's values are larger
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcessLosesNothingCommitted$")
		cmd.Env = append(os.Environ(), killedDir+"="+dir, killedBase+"="+strconv.FormatUint(base, 10))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The process prints the number of its writes after each commit. It is killed during the
		// next writes, a little later every time.
		var committed uint64
		for range 3 + round {
			if _, err := fmt.Fscanf(out, "committed %d\n", &committed); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an error is expected
		st := openSSD(t, dir, options(killedKeys))
		for n := committed - killedKeys; n < committed; n++ {
			key := binary.LittleEndian.AppendUint64(nil, n%killedKeys)
			got, err := st.Read(context.Background(), key, nil)
			if err != nil {
				t.Fatalf("round %d: write %d of %d that were committed: %v", round, n, committed, err)
			}
			// Later writes of the key may also have been committed.
			v := binary.LittleEndian.Uint64(got)
			if v < base+n || (v-base)%killedKeys != n%killedKeys {
				t.Fatalf("round %d: %d under the key of write %d, with %d committed", round, v-base, n, committed)
			}
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func writeUntilKilled(t *testing.T, dir string) {
	base, err := strconv.ParseUint(os.Getenv(killedBase), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	st := openSSD(t, dir, options(killedKeys))
	for n := uint64(0); ; n++ {
		key := binary.LittleEndian.AppendUint64(nil, n%killedKeys)
		value := binary.LittleEndian.AppendUint64(nil, base+n)
		if err := st.Upsert(context.Background(), key, value); err != nil {
			t.Fatal(err)
		}
		if n%7000 == 6999 {
			if err := st.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Printf("committed %d\n", n+1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCloseLeavesNoJournal: however a store was committed, its closed directory has plain files.
func TestCloseLeavesNoJournal(t *testing.T) {
	dir := t.TempDir()
	st := openSSD(t, dir, options(100))
	s, err := st.NewNamedSession("reader")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	key, value := make([]byte, 8), make([]byte, 8)
	for n := range uint64(200) { // more than a block of the log
		binary.LittleEndian.PutUint64(key, n)
		if err := errors.Join(s.Upsert(key, value), st.Commit(ctx)); err != nil {
			t.Fatal(err)
		}
		// Commits of the session's number alone: the log has not grown.
		for range 3 {
			if _, err := s.Read(key, value[:0]); err != nil {
				t.Fatal(err)
			}
			if err := st.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "JOURNAL")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), st.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "JOURNAL")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the journal after Close: %v", err)
	}
	st = openSSD(t, dir, options(100))
	if n, err := st.Read(ctx, key, nil); err != nil || len(n) != 8 {
		t.Fatal(n, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
