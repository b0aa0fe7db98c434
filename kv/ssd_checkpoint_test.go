package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/redykv/redykv/kv"
)

// checkpointDir passes to a child process, which the test kills, the directory for its writes
// and checkpoints.
const (
	checkpointDir  = "REDYKV_TEST_CHECKPOINT_DIR"
	checkpointKeys = 5000
)

func checkpointOptions() kv.Options {
	opts := options(checkpointKeys)
	opts.Memory = 256 << 10
	return opts
}

// TestKilledProcessIsAtItsCommitPoint kills a process that writes through a named session and
// makes checkpoints of all kinds, several times on the same store. The recovered state agrees
// exactly with the commit point.
func TestKilledProcessIsAtItsCommitPoint(t *testing.T) {
	if dir := os.Getenv(checkpointDir); dir != "" {
		checkpointUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcessIsAtItsCommitPoint$")
		cmd.Env = append(os.Environ(), checkpointDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said uint64
		for range 3 + round {
			if _, err := fmt.Fscanf(out, "checkpoint %d\n", &said); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an error is expected
		st := openSSD(t, dir, checkpointOptions())
		p, ok := st.CommitPoint("writer")
		if !ok || p.Until < said || len(p.Excluding) > 0 {
			t.Fatalf("round %d: commit point %+v, %v after one of %d", round, p, ok, said)
		}
		for k := range uint64(checkpointKeys) {
			want := p.Until - (p.Until-k)%checkpointKeys
			got, err := st.Read(context.Background(), binary.LittleEndian.AppendUint64(nil, k), nil)
			if err != nil || binary.LittleEndian.Uint64(got) != want {
				t.Fatalf("round %d: key %d: %x, %v, want %d; commit point %+v\n%v", round, k, got, err, want, p, st.Recovery())
			}
		}
		t.Log("\n", st.Recovery())
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkpointUntilKilled writes n to key n%checkpointKeys by operation number n.
func checkpointUntilKilled(t *testing.T, dir string) {
	st := openSSD(t, dir, checkpointOptions())
	s, err := st.NewNamedSession("writer")
	if err != nil {
		t.Fatal(err)
	}
	for {
		n := s.Serial() + 1
		key := binary.LittleEndian.AppendUint64(nil, n%checkpointKeys)
		if err := s.Upsert(key, binary.LittleEndian.AppendUint64(nil, n)); err != nil {
			t.Fatal(err)
		}
		if n > checkpointKeys && n%1700 == 0 {
			kind := []kv.CheckpointKind{kv.Snapshot, kv.Incremental, kv.FoldOver, kv.Incremental}[n/1700%4]
			if _, err := st.Checkpoint(context.Background(), kv.CheckpointOptions{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Printf("checkpoint %d\n", n); err != nil {
				t.Fatal(err)
			}
		}
	}
}
