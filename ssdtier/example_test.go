package ssdtier_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/ssdtier"
)

// A log in a directory: one block is written, synced and read back.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "ssdtier")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	d, err := ssdtier.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := d.Start(0); err != nil {
		log.Fatal(err)
	}
	q, err := d.NewQueue(8)
	if err != nil {
		log.Fatal(err)
	}
	wait := func() {
		if err := q.Submit(); err != nil {
			log.Fatal(err)
		}
		if err := q.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
		var done [1]device.Completion
		q.Poll(done[:])
		if done[0].Err != nil {
			log.Fatal(done[0].Err)
		}
	}

	// Writes are whole blocks in aligned memory; reads are any bytes.
	block := device.AlignedBuffer(max(d.Alignment(), 512), d.Alignment())
	copy(block, "the log begins here")
	if err := q.Write(block, 0, 1); err != nil {
		log.Fatal(err)
	}
	wait()
	if err := d.Sync(); err != nil {
		log.Fatal(err)
	}
	word := make([]byte, 6)
	if err := q.Read(word, 8, 2); err != nil {
		log.Fatal(err)
	}
	wait()
	fmt.Printf("%s\n", word)

	if err := q.Close(); err != nil {
		log.Fatal(err)
	}
	if err := d.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: begins
}
