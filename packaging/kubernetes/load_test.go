package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// load reads and writes keys of a store, and checks every reply. Each key has one writer, which
// writes version after version: a read must return one between the last version that was
// answered before it was sent, and the last one that was sent before its reply.
type load struct {
	client *redis.Client
	size   int // of a value
	keys   []versions

	replies, failed atomic.Int64
	broken          atomic.Pointer[error] // the last error, of a client whose request was not answered
	wrong           chan error            // replies that must not be; the first few are kept

	mu      sync.Mutex // guards samples
	samples []sample
}

type versions struct{ sent, answered atomic.Uint32 }

// sample is what was answered until a time.
type sample struct {
	at      time.Time
	replies int64
}

const (
	loadWriters  = 2
	loadReaders  = 2
	loadPipeline = 16
	loadWrites   = 8 // a writer writes one of so many keys, and reads the others
	sampleEvery  = 250 * time.Millisecond
)

func newLoad(client *redis.Client, keys, size int) *load {
	return &load{client: client, size: size, keys: make([]versions, keys), wrong: make(chan error, 10)}
}

// fill writes all keys once.
func (l *load) fill(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make(chan error, loadWriters)
	for w := range loadWriters {
		all.Go(func() {
			for from := w; from < len(l.keys); from += loadWriters * loadPipeline {
				_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
					for n := from; n < min(len(l.keys), from+loadWriters*loadPipeline); n += loadWriters {
						p.Set(ctx, key(n), value(n, 1, l.size), 0)
						l.keys[n].sent.Store(1)
						l.keys[n].answered.Store(1)
					}
					return nil
				})
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		})
	}
	all.Wait()
	return errors.Join(<-errs, <-errs)
}

// run reads and writes until ctx ends.
func (l *load) run(ctx context.Context) {
	var all sync.WaitGroup
	for w := range loadWriters + loadReaders {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			for ctx.Err() == nil {
				if err := l.pipeline(ctx, r, w); err != nil && ctx.Err() == nil {
					l.broken.Store(&err)
					time.Sleep(10 * time.Millisecond) // as clients do that connect again
				}
			}
		})
	}
	all.Go(func() { l.sample(ctx) })
	all.Wait()
}

// pipeline sends random requests for different keys, a writer's for its own, and checks the
// replies. Its error is that of requests that were not answered.
func (l *load) pipeline(ctx context.Context, r *rand.Rand, worker int) (err error) {
	type request struct {
		key      int
		least    uint32 // version that a read may return
		version  uint32 // that is written; 0: a read
		answered redis.Cmder
	}
	var requests []request
	used := make(map[int]bool)
	pipe := l.client.Pipeline()
	for len(requests) < loadPipeline {
		n := r.IntN(len(l.keys))
		if worker < loadWriters {
			n = n/loadWriters*loadWriters + worker
		}
		if n >= len(l.keys) || used[n] {
			continue
		}
		used[n] = true
		o := request{key: n, least: l.keys[n].answered.Load()}
		if worker < loadWriters && r.IntN(loadWrites) == 0 {
			o.version = l.keys[n].sent.Add(1)
			o.answered = pipe.Set(ctx, key(n), value(n, o.version, l.size), 0)
		} else {
			o.answered = pipe.Get(ctx, key(n))
		}
		requests = append(requests, o)
	}
	_, notSent := pipe.Exec(ctx) // each command has its error, unless there was no connection
	for _, o := range requests {
		failed := o.answered.Err()
		answer := o.answered.(interface{ Val() string }).Val()
		if failed == nil && answer == "" { // of a pipeline that was not sent; no answer is empty
			failed = notSent
		}
		switch {
		case errors.Is(failed, redis.Nil):
			l.report(fmt.Errorf("key %d is missing, and has version %d", o.key, o.least))
		case failed != nil:
			l.failed.Add(1)
			err = failed
			continue
		case o.version == 0:
			if e := l.check(o.key, []byte(answer), o.least); e != nil {
				l.report(e)
			}
		default:
			l.keys[o.key].answered.Store(o.version)
		}
		l.replies.Add(1)
	}
	return err
}

// verify reads all keys, when nothing else runs.
func (l *load) verify(ctx context.Context) error {
	const pipeline = 256
	for from := 0; from < len(l.keys); from += pipeline {
		answers, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n := from; n < min(len(l.keys), from+pipeline); n++ {
				p.Get(ctx, key(n))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("keys from %d: %w", from, err)
		}
		for i, a := range answers {
			n := from + i
			if err := l.check(n, []byte(a.(*redis.StringCmd).Val()), l.keys[n].answered.Load()); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns what is wrong with a value.
func (l *load) check(n int, got []byte, least uint32) error {
	if len(got) != l.size || binary.LittleEndian.Uint64(got) != uint64(n) {
		return fmt.Errorf("key %d has another key's value, of %d bytes", n, len(got))
	}
	version, most := uint32(binary.LittleEndian.Uint64(got[8:])), l.keys[n].sent.Load()
	switch {
	case version < least || version > most:
		return fmt.Errorf("key %d has version %d, want %d to %d", n, version, least, most)
	case !bytes.Equal(got, value(n, version, l.size)):
		return fmt.Errorf("key %d has a torn value of version %d", n, version)
	}
	return nil
}

func (l *load) report(err error) {
	select {
	case l.wrong <- err:
	default:
	}
}

func key(n int) string { return fmt.Sprintf("key:%d", n) }

// value returns the value of a key's version, which no other version has a word of.
func value(n int, version uint32, size int) []byte {
	v := binary.LittleEndian.AppendUint64(make([]byte, 0, size+8), uint64(n))
	v = binary.LittleEndian.AppendUint64(v, uint64(version))
	for word := uint64(n)<<32 | uint64(version); len(v) < size; {
		word = word*6364136223846793005 + 1442695040888963407
		v = binary.LittleEndian.AppendUint64(v, word)
	}
	return v[:size]
}

func (l *load) sample(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		l.mu.Lock()
		l.samples = append(l.samples, sample{time.Now(), l.replies.Load()})
		l.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// window is the time over which a rate is measured.
const window = time.Second

// rates returns the rates of replies in all windows that began after a time, in replies a
// second, and the times at which the windows ended.
func (l *load) rates(since time.Time) (rates []float64, ends []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, begin := 0, 0; i < len(l.samples); i++ {
		for l.samples[i].at.Sub(l.samples[begin].at) > window+sampleEvery/2 {
			begin++
		}
		if first := l.samples[begin]; first.at.After(since) && l.samples[i].at.Sub(first.at) >= window-sampleEvery/2 {
			rates = append(rates, float64(l.samples[i].replies-first.replies)/l.samples[i].at.Sub(first.at).Seconds())
			ends = append(ends, l.samples[i].at)
		}
	}
	return rates, ends
}
