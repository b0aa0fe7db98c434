package resp

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestFlushAll: FLUSHALL is atomic for transactions, DBSIZE and watched keys.
func TestFlushAll(t *testing.T) {
	_, addr := start(t, inMemory(), Options{Sessions: 8})
	p, other := dial(t, addr), dial(t, addr)
	p.do("SET", "watched", "1")
	p.do("WATCH", "watched")
	if got := other.do("FLUSHDB", "ASYNC"); got != "+OK" {
		t.Fatal(got)
	}
	p.do("MULTI")
	p.do("SET", "mine", "1")
	if got := p.do("EXEC"); got != "nil[]" {
		t.Errorf("EXEC after a watched key was flushed: %s", got)
	}
	if got := p.do("DBSIZE"); got != ":0" {
		t.Errorf("DBSIZE: %s", got)
	}
	p.send(encode("SET", "a", "1") + encode("SET", "b", "1") + encode("FLUSHALL") + encode("SET", "c", "1") + encode("DBSIZE") + encode("EXISTS", "a", "b", "c"))
	for i, want := range []string{"+OK", "+OK", "+OK", "+OK", ":1", ":1"} {
		if got := p.reply(); got != want {
			t.Errorf("reply %d of a pipeline: %s, want %s", i, got, want)
		}
	}
	p.send(encode("MULTI") + encode("SET", "a", "1") + encode("FLUSHALL") + encode("SET", "b", "2") + encode("DBSIZE") + encode("EXEC"))
	var got string
	for range 6 {
		got = p.reply()
	}
	if got != "[+OK +OK +OK :1]" {
		t.Errorf("FLUSHALL in a transaction: %s", got)
	}
}

// TestFlushAllTakesTransactionsWhole writes pairs of keys together beside FLUSHALL: either
// both exist or none.
func TestFlushAllTakesTransactionsWhole(t *testing.T) {
	_, addr := start(t, cold(), Options{Sessions: 8})
	const rounds, writers = 200, 3
	var wg sync.WaitGroup
	for w := range writers {
		p := dial(t, addr)
		wg.Go(func() {
			for i := range rounds {
				n := fmt.Sprint(i)
				p.send(encode("MULTI") + encode("SET", fmt.Sprint("left", w), n) + encode("SET", fmt.Sprint("right", w), n) + encode("EXEC"))
				for range 4 {
					p.reply()
				}
			}
		})
	}
	looker := dial(t, addr)
	wg.Go(func() {
		for i := range rounds {
			w := i % writers
			looker.send(encode("MULTI") + encode("GET", fmt.Sprint("left", w)) + encode("GET", fmt.Sprint("right", w)) + encode("EXEC"))
			var got string
			for range 4 {
				got = looker.reply()
			}
			left, right, _ := strings.Cut(strings.Trim(got, "[]"), " ")
			if left != right {
				t.Errorf("a pair is %s", got)
			}
		}
	})
	flusher := dial(t, addr)
	for range rounds / 4 {
		if got := flusher.do("FLUSHALL"); got != "+OK" {
			t.Error(got)
		}
	}
	wg.Wait()
}

// TestFlushAllGivesSpaceBack: FLUSHALL frees space on the device with every durability.
func TestFlushAllGivesSpaceBack(t *testing.T) {
	for durability := range durabilities {
		t.Run(durability.String(), func(t *testing.T) {
			dev := device.NewMemory()
			opts := cold()
			opts.Device = dev
			s, addr := start(t, opts, Options{Durability: durability})
			p := dial(t, addr)
			value := strings.Repeat("v", 1000)
			for i := range 1000 {
				p.do("SET", fmt.Sprint(i), value)
			}
			if got := p.do("FLUSHALL"); got != "+OK" {
				t.Fatal(got)
			}
			begin := s.store.Metrics().Log.Begin
			testrun.Until(t, "the device gives space back", func() bool { return dev.Begin() >= begin && begin > 1000*1000 })
			if got := p.do("DBSIZE"); got != ":0" {
				t.Errorf("DBSIZE: %s", got)
			}
		})
	}
}
