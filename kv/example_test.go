package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// A store on the SSD is written, closed, and opened again.
func Example() {
	dir, err := os.MkdirTemp("", "redykv-example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			log.Print(err)
		}
	}()

	ssd, err := ssdtier.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	store, err := kv.Open(kv.Options{Device: device.NewTiered(ssd), Memory: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	s := store.NewSession()
	if err := s.Upsert([]byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		log.Fatal(err)
	}

	if ssd, err = ssdtier.Open(dir); err != nil {
		log.Fatal(err)
	}
	if store, err = kv.Open(kv.Options{Device: device.NewTiered(ssd), Memory: 64 << 20}); err != nil {
		log.Fatal(err)
	}
	value, err := store.Read(context.Background(), []byte("greeting"), nil) // without a session
	fmt.Printf("%s, %v\n", value, err)
	_, err = store.Read(context.Background(), []byte("farewell"), nil)
	fmt.Println(err)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// hello, <nil>
	// kv: key not found
}

// Counters with fixed-size records: 24 bytes each in the log.
func ExampleSession_RMW() {
	store, err := kv.Open(kv.Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8})
	if err != nil {
		log.Fatal(err)
	}
	s := store.NewSession()
	increment := func(u *kv.Update) kv.Verdict {
		n := uint64(0)
		if u.Found {
			n = binary.LittleEndian.Uint64(u.Old)
		}
		u.New = binary.LittleEndian.AppendUint64(u.New, n+1)
		return kv.Put
	}
	key := []byte("counter1")
	for range 3 {
		if err := s.RMW(key, increment); err != nil {
			log.Fatal(err)
		}
	}
	value, err := s.Read(key, nil)
	fmt.Println(binary.LittleEndian.Uint64(value), err)
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 3 <nil>
}

// A stream keeps many cold reads pending.
func ExampleSession_Submit() {
	store, err := kv.Open(kv.Options{
		Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 256 << 10,
	})
	if err != nil {
		log.Fatal(err)
	}
	s := store.NewSession()
	const records = 100_000 // 2.4 MB of log: most of it is cold
	for n := range uint64(records) {
		key := binary.BigEndian.AppendUint64(nil, n)
		if err := s.Upsert(key, key); err != nil {
			log.Fatal(err)
		}
	}

	ops := make([]kv.Op, 64) // the number of pending operations
	var free, done []*kv.Op
	for i := range ops {
		ops[i] = kv.Op{Kind: kv.OpRead, Key: make([]byte, 8)}
		free = append(free, &ops[i])
	}
	done = make([]*kv.Op, len(ops))
	sum := uint64(0)
	take := func(op *kv.Op) {
		if op.Err != nil {
			log.Fatal(op.Err)
		}
		sum += binary.BigEndian.Uint64(op.Value)
		free = append(free, op)
	}
	poll := func() {
		if err := s.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
		for _, op := range done[:s.Poll(done)] {
			take(op)
		}
	}
	for n := range uint64(records) {
		for len(free) == 0 {
			poll()
		}
		op := free[len(free)-1]
		free = free[:len(free)-1]
		binary.BigEndian.PutUint64(op.Key, n)
		if err := s.Submit(op); err != nil {
			log.Fatal(err)
		}
	}
	for s.Pending() > 0 {
		poll()
	}
	fmt.Println(sum)
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 4999950000
}

// A checkpoint is made while the store is used, and recovered by its name.
func ExampleStore_Checkpoint() {
	disk := device.NewMemory()
	store, err := kv.Open(kv.Options{Device: disk})
	if err != nil {
		log.Fatal(err)
	}
	s, err := store.NewNamedSession("importer")
	if err != nil {
		log.Fatal(err)
	}
	for _, word := range []string{"one", "two", "three"} {
		if err := s.Upsert([]byte("last"), []byte(word)); err != nil {
			log.Fatal(err)
		}
		if word == "two" {
			if _, err := store.Checkpoint(context.Background(), kv.CheckpointOptions{Kind: kv.Snapshot, Name: "halfway"}); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		log.Fatal(err)
	}

	if store, err = kv.Open(kv.Options{Device: disk.Reopen(), Recover: "halfway"}); err != nil {
		log.Fatal(err)
	}
	value, err := store.Read(context.Background(), []byte("last"), nil)
	fmt.Printf("%s, %v\n", value, err)
	point, _ := store.CommitPoint("importer")
	fmt.Printf("the importer goes on after operation %d\n", point.Until)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// two, <nil>
	// the importer goes on after operation 2
}

// A scan in steps continues from a cursor, a number that a client may keep, across compactions
// and restarts.
func ExampleStore_ScanFrom() {
	st, err := kv.Open(kv.Options{Device: device.NewMemory()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := st.Upsert(context.Background(), []byte(key), []byte("value of "+key)); err != nil {
			fmt.Println(err)
		}
	}
	var at kv.Cursor
	for more := true; more; more = at != 0 {
		at, err = st.ScanFrom(at, 2, func(r kv.Record) bool {
			fmt.Printf("%s: %s\n", r.Key, r.Value)
			return true
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := st.Close(); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// a: value of a
	// b: value of b
	// c: value of c
}

// A write is durable before it is confirmed.
func ExampleSession_WaitForCommit() {
	dir, err := os.MkdirTemp("", "redykv")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := kv.OpenDir(dir, kv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s := store.NewSession()
	if err := s.Upsert([]byte("order 17"), []byte("two lamps")); err != nil {
		log.Fatal(err)
	}
	number := store.NextCommit()
	if err := s.WaitForCommit(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("confirmed:", store.LastCommit() >= number)
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: confirmed: true
}

// A store in a directory is opened, written, read and closed.
func ExampleOpenDir() {
	dir, err := os.MkdirTemp("", "redykv")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	store, err := kv.OpenDir(dir, kv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Upsert(ctx, []byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := store.Read(ctx, []byte("greeting"), nil)
	fmt.Printf("%s, %v\n", value, err)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: hello, <nil>
}
