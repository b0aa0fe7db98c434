package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
)

// cmdRoundTrip creates a cache, fills it, reads it back and deletes it.
func cmdRoundTrip(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 6, "roundtrip MANAGER CAPACITY C S B Q")
	capacity, err := units.ParseSize(args[1])
	ts.Check(err)
	var n [4]int
	for i := range n {
		n[i], err = strconv.Atoi(args[2+i])
		ts.Check(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	cache, err := redytier.Create(ctx, access.Dial(args[0]), redytier.Config{
		Capacity: int64(capacity), RegionSize: 1 << 20,
		Configuration: redytier.Configuration{ClientThreads: n[0], ServerThreads: n[1], BatchSize: n[2], QueueDepth: n[3]},
	})
	ts.Check(err)
	err = fill(ctx, cache)
	ts.Check(cache.Delete(ctx))
	ts.Check(err)
}

// fill writes random bytes to the whole cache and reads them back.
func fill(ctx context.Context, cache *redytier.Cache) error {
	const chunk = 3000 // spans region borders
	random := rand.NewChaCha8([32]byte{1})
	written := make([]byte, cache.Capacity())
	_, _ = random.Read(written) // never fails
	read := make([]byte, len(written))
	for _, pass := range []struct {
		buf []byte
		do  func(context.Context, []byte, int64, redytier.Callback) error
	}{{written, cache.Write}, {read, cache.Read}} {
		ends := make(chan error, len(written)/chunk+1)
		requests := 0
		for at := 0; at < len(written); at += chunk {
			part := pass.buf[at:min(at+chunk, len(written))]
			if err := pass.do(ctx, part, int64(at), func(_ int, err error) { ends <- err }); err != nil {
				return err
			}
			requests++
		}
		for ; requests > 0; requests-- {
			if err := <-ends; err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(read, written) {
		return fmt.Errorf("%w other bytes were read than written, over %s", testrun.ErrWrong, cache.Transport())
	}
	return nil
}
