package kv

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
)

var (
	modelSeed = flag.Uint64("model.seed", 0, "run the model test with this seed only")
	modelRuns = flag.Int("model.runs", 60, "how many seeds the model test runs")
)

// TestModel compares a store under random options with a map, over random
// operations, commits, restarts and crashes. A failing run says its seed.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		newModelRun(t, *modelSeed).play()
		return
	}
	for seed := range uint64(*modelRuns) {
		run := newModelRun(t, seed+1)
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			run.t = t
			run.play()
		})
	}
}

type modelRun struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	opts Options
	keys uint64

	dev       *device.Memory
	st        *Store
	s         *Session
	want      map[string]string
	committed map[string]string // want at the last commit
}

func newModelRun(t *testing.T, seed uint64) *modelRun {
	r := &modelRun{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)),
		want: map[string]string{}, committed: map[string]string{},
	}
	r.opts = Options{
		PageSize:        512 << r.rng.IntN(4),
		QueueDepth:      1 + r.rng.IntN(20),
		Records:         1 + r.rng.Int64N(200),
		MutableFraction: 0.1 + 0.9*r.rng.Float64(),
	}
	r.opts.Memory = int64(r.opts.PageSize) * (4 + r.rng.Int64N(12))
	if r.rng.IntN(2) == 0 {
		cache := 2<<10 + r.rng.Int64N(16<<10)
		r.opts.Memory += cache
		r.opts.ReadCache = float64(cache) / float64(r.opts.Memory)
	}
	r.opts.MaxMemory = r.opts.Memory * (2 + r.rng.Int64N(3))
	switch r.rng.IntN(3) {
	case 0:
		r.opts.KeySize, r.opts.ValueSize = 8, 8
	case 1:
		r.opts.KeySize, r.opts.ValueSize = 8, 1+r.rng.IntN(100)
	}
	r.keys = 1 + r.rng.Uint64N(300)
	if r.rng.IntN(4) == 0 { // all keys collide, in one bucket and one tag
		r.opts.hash = func([]byte) uint64 { return 42 }
		r.keys = min(r.keys, 40)
	}
	return r
}

func (r *modelRun) String() string {
	return fmt.Sprintf("seed=%d,key=%d,value=%d,page=%d,memory=%d,cache=%.2f,collide=%v",
		r.seed, r.opts.KeySize, r.opts.ValueSize, r.opts.PageSize, r.opts.Memory, r.opts.ReadCache, r.opts.hash != nil)
}

func (r *modelRun) play() {
	r.dev = device.NewMemory()
	r.open()
	for range 40 {
		switch r.rng.IntN(12) {
		case 0:
			if err := r.st.Commit(context.Background()); err != nil {
				r.t.Fatal(err)
			}
			r.committed = maps.Clone(r.want)
		case 1:
			closeAll(r.t, r.s, r.st)
			r.committed = maps.Clone(r.want)
			r.restart()
		case 2:
			r.crash()
		case 3:
			r.compare()
		case 4:
			r.resize()
		default:
			r.batch()
		}
	}
	r.compare()
	closeAll(r.t, r.s, r.st)
	r.restart()
	r.compare()
	closeAll(r.t, r.s, r.st)
}

func (r *modelRun) open() {
	r.opts.Device = r.dev
	r.st = open(r.t, r.opts)
	r.s = r.st.NewSession()
}

func (r *modelRun) restart() {
	r.dev = r.dev.Reopen()
	r.open()
}

// crash stops the store without a commit: exactly what was committed is back.
func (r *modelRun) crash() {
	closeAll(r.t, r.s, r.st.log)
	if err := r.st.freeMemory(); err != nil {
		r.t.Error(err)
	}
	r.want = maps.Clone(r.committed)
	r.restart()
	r.compare()
}

// resize changes the store's memory while a batch is played.
func (r *modelRun) resize() {
	memory := int64(r.opts.PageSize)*4 + r.rng.Int64N(r.opts.MaxMemory-int64(r.opts.PageSize)*4)
	if r.opts.ReadCache > 0 {
		memory = r.opts.Memory + r.rng.Int64N(r.opts.MaxMemory-r.opts.Memory)
	}
	st, resized := r.st, make(chan error)
	go func() { resized <- st.SetMemory(memory) }()
	r.batch()
	if err := <-resized; err != nil {
		r.t.Fatal(err)
	}
	if m := st.Metrics(); m.MemoryBudget+m.CacheBudget > memory {
		r.t.Fatalf("memory of %d:\n%v", memory, m)
	}
}

func (r *modelRun) key() []byte { return key8(r.rng.Uint64N(r.keys)) }

func (r *modelRun) value() []byte {
	n := r.opts.ValueSize
	if r.opts.KeySize == 0 {
		n = r.rng.IntN(r.opts.PageSize / 4)
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(r.rng.Uint32())
	}
	return v
}

// batch plays up to 60 operations: one by one, as a batch, or as a stream.
func (r *modelRun) batch() {
	ops := make([]Op, r.rng.IntN(60))
	expect := make([]func() error, len(ops))
	for i := range ops {
		op := &ops[i]
		op.Key = r.key()
		k := string(op.Key)
		switch r.rng.IntN(5) {
		case 0, 1:
			op.Kind, op.Value = OpUpsert, r.value()
			r.want[k] = string(op.Value)
		case 2:
			op.Kind = OpDelete
			delete(r.want, k)
		case 3:
			op.Kind = OpRMW
			v := r.value()
			was, wasFound := r.want[k]
			op.Modify = modifier(func(dst, old []byte, found bool) []byte {
				if string(old) != was || found != wasFound {
					r.t.Errorf("modifier of %x was given %s, found %v; want %s, found %v", op.Key, brief(old), found, brief([]byte(was)), wasFound)
				}
				return modelModify(dst, old, v)
			})
			r.want[k] = string(modelModify(nil, []byte(was), v))
		default:
			op.Kind = OpRead
			v, found := r.want[k]
			expect[i] = func() error {
				if found != (op.Err == nil) || found && string(op.Value) != v {
					return fmt.Errorf("read of %x: %s, %w; want %s, found %v", op.Key, brief(op.Value), op.Err, brief([]byte(v)), found)
				}
				return nil
			}
		}
	}
	mode := r.rng.IntN(3)
	if mode == 2 && r.mixes(ops) {
		mode = 1 // a stream's reads may miss later writes of their keys, not so a test's
	}
	switch mode {
	case 0:
		for i := range ops {
			ops[i].Err = r.plain(&ops[i])
		}
	case 1:
		if err := r.s.Do(ops); err != nil {
			r.t.Fatal(err)
		}
	case 2:
		r.stream(ops)
	}
	for i := range ops {
		if expect[i] != nil {
			if err := expect[i](); err != nil {
				r.t.Fatalf("mode %d, operation %d of %d: %v", mode, i, len(ops), err)
			}
		} else if ops[i].Err != nil {
			r.t.Fatalf("mode %d, operation %d: %v", mode, i, ops[i].Err)
		}
	}
}

// modelModify makes the new value of the old one, or of none, and of input: of
// input's length, each byte added to the old one's.
func modelModify(dst, old, input []byte) []byte {
	for i, b := range input {
		if i < len(old) {
			b += old[i]
		}
		dst = append(dst, b)
	}
	return dst
}

// mixes says whether a key is both read and written.
func (r *modelRun) mixes(ops []Op) bool {
	kinds := map[string]int{}
	for i := range ops {
		kind := 1
		if ops[i].Kind == OpRead {
			kind = 2
		}
		kinds[string(ops[i].Key)] |= kind
	}
	for _, kind := range kinds {
		if kind == 3 {
			return true
		}
	}
	return false
}

func (r *modelRun) plain(op *Op) (err error) {
	switch op.Kind {
	case OpRead:
		op.Value, err = r.s.Read(op.Key, op.Value)
	case OpUpsert:
		err = r.s.Upsert(op.Key, op.Value)
	case OpRMW:
		err = r.s.RMW(op.Key, op.Modify)
	case OpDelete:
		err = r.s.Delete(op.Key)
	}
	return err
}

func (r *modelRun) stream(ops []Op) {
	var done [4]*Op
	returned := 0
	for i := 0; i < len(ops) || r.s.Pending() > 0; {
		if i < len(ops) {
			err := r.s.Submit(&ops[i])
			if err == nil {
				i++
				continue
			}
			if !errors.Is(err, ErrQueueFull) {
				r.t.Fatal(err)
			}
		}
		if err := r.s.Wait(context.Background()); err != nil {
			r.t.Fatal(err)
		}
		returned += r.s.Poll(done[:])
	}
	if returned != len(ops) {
		r.t.Fatalf("%d of %d operations came back", returned, len(ops))
	}
}

// compare reads every key.
func (r *modelRun) compare() {
	for n := range r.keys {
		key := key8(n)
		got, err := r.s.Read(key, nil)
		want, found := r.want[string(key)]
		if found != (err == nil) || found && !bytes.Equal(got, []byte(want)) {
			r.t.Fatalf("key %d: %s, %v; want %s, found %v", n, brief(got), err, brief([]byte(want)), found)
		}
	}
}

// brief prints the length and the first bytes of a value.
func brief(v []byte) string { return fmt.Sprintf("%d bytes %.8x", len(v), v) }
