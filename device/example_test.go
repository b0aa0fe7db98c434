package device_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redykv/redykv/device"
)

// Two tiers: eight bytes of fast, volatile storage over one that keeps all. A
// queue is used in rounds: enqueue, ring the doorbell, wait, poll.
func ExampleNewTiered() {
	fast := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 8})
	d := device.NewTiered(fast, device.NewMemory())
	if err := d.Start(0); err != nil {
		log.Fatal(err)
	}
	q, err := d.NewQueue(4)
	if err != nil {
		log.Fatal(err)
	}

	// round submits what is enqueued and returns n completions.
	round := func(n int) []device.Completion {
		if err := q.Submit(); err != nil {
			log.Fatal(err)
		}
		done := make([]device.Completion, n)
		for got := 0; got < n; got += q.Poll(done[got:]) {
			if err := q.Wait(context.Background()); err != nil {
				log.Fatal(err)
			}
		}
		return done
	}

	for i, page := range []string{"one ", "two ", "tri "} {
		if err := q.Write([]byte(page), int64(4*i), 0); err != nil {
			log.Fatal(err)
		}
	}
	round(3)

	pages := make([][4]byte, 3)
	for i := range pages {
		if err := q.Read(pages[i][:], int64(4*i), uint64(i)); err != nil {
			log.Fatal(err)
		}
	}
	answered := make([]uint8, 3)
	for _, c := range round(3) {
		if c.Err != nil {
			log.Fatal(c.Err)
		}
		answered[c.Tag] = c.Tier
	}
	for i := range pages {
		fmt.Printf("%s from tier %d\n", pages[i], answered[i])
	}
	if err := q.Close(); err != nil {
		log.Fatal(err)
	}
	if err := d.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// one  from tier 1
	// two  from tier 0
	// tri  from tier 0
}
