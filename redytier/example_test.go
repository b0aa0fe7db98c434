package redytier_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/redytier"
)

// A cache of 1 MiB from a manager and a cache server in this process. With access.Dial instead
// of manager.Embed the memory is on other machines; nothing else changes.
func Example() {
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = mgr.Close() }()
	cache, err := redytier.Create(ctx, mgr, redytier.Config{Capacity: 1 << 20, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}

	// With callbacks, from any goroutine. The read follows the write to the same bytes.
	buf := make([]byte, 5)
	ended := make(chan error, 2)
	end := func(_ int, err error) { ended <- err }
	if err := cache.Write(ctx, []byte("hello"), 1000, end); err != nil {
		log.Fatal(err)
	}
	if err := cache.Read(ctx, buf, 1000, end); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-ended, <-ended, string(buf))

	// With a session, which one goroutine owns: many requests, one doorbell.
	s, err := cache.NewSession(64)
	if err != nil {
		log.Fatal(err)
	}
	words := [3][5]byte{}
	for i := range words {
		if err := s.Read(words[i][:], 1000+int64(i), uint64(i)); err != nil {
			log.Fatal(err)
		}
	}
	var done [3]device.Completion
	for n := 0; n < len(words); n += s.Poll(done[n:]) {
		if err := s.Wait(ctx); err != nil { // rings the doorbell first
			log.Fatal(err)
		}
	}
	for _, c := range done {
		fmt.Printf("%d %d %q\n", c.Tag, c.N, words[c.Tag])
	}
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}

	if err := cache.Delete(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cache.TryRead(buf, 1000, end))

	// Output:
	// <nil> <nil> hello
	// 0 5 "hello"
	// 1 5 "ello\x00"
	// 2 5 "llo\x00\x00"
	// redytier: cache deleted
}

// A cache as the first tier of a log, above a device that holds all of it.
func ExampleOpen() {
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = mgr.Close() }()
	redy, err := redytier.Open(ctx, mgr, redytier.Config{Capacity: 1 << 20, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	tiered := device.NewTiered(redy, device.NewMemory())
	if err := tiered.Start(0); err != nil {
		log.Fatal(err)
	}
	q, err := tiered.NewQueue(16)
	if err != nil {
		log.Fatal(err)
	}
	// do executes the request that was enqueued last.
	do := func(err error) device.Completion {
		if err == nil {
			err = q.Submit()
		}
		if err == nil {
			err = q.Wait(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
		var done [1]device.Completion
		q.Poll(done[:])
		return done[0]
	}
	page := make([]byte, 64<<10)
	for addr := int64(0); addr < 4<<20; addr += int64(len(page)) { // four times the cache
		page[0] = byte(addr >> 16)
		do(q.Write(page, addr, 0))
	}
	first, last := make([]byte, 1), make([]byte, 1)
	fmt.Println("first page: tier and byte", do(q.Read(first, 0, 0)).Tier, first[0])
	fmt.Println("last page: tier and byte", do(q.Read(last, 63<<16, 0)).Tier, last[0])
	if err := q.Close(); err != nil {
		log.Fatal(err)
	}
	if err := tiered.Close(); err != nil {
		log.Fatal(err)
	}

	// Output:
	// first page: tier and byte 1 0
	// last page: tier and byte 0 63
}

// A cache grows, and moves to another VM with its contents. When a VM is reclaimed, a cache
// moves by itself.
func ExampleCache_Reshape() {
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = mgr.Close() }()
	cache, err := redytier.Create(ctx, mgr, redytier.Config{Capacity: 1 << 20, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	end := func(_ int, err error) { ended <- err }
	if err := cache.Write(ctx, []byte("hello"), 1000, end); err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", <-ended)

	if err := cache.Reshape(ctx, 3<<20, redytier.SLO{}); err != nil {
		log.Fatal(err)
	}
	before := cache.Regions()[0].VM
	if err := cache.Migrate(ctx, before); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 5)
	if err := cache.Read(ctx, buf, 1000, end); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("read: %v %q\n", <-ended, buf)
	fmt.Println(cache.Capacity(), cache.Regions()[0].VM != before)
	if err := cache.Delete(ctx); err != nil {
		log.Fatal(err)
	}

	// Output:
	// written: <nil>
	// read: <nil> "hello"
	// 3145728 true
}
