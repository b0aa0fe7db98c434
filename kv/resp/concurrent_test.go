package resp

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// TestConnectionsTogether changes the same keys from many connections. No update is lost, one
// connection creates a new key, and no reader sees half a value. There are fewer sessions than
// connections, so connections wait for each other.
func TestConnectionsTogether(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{Sessions: 3})
			const peers, rounds = 8, 100
			var all sync.WaitGroup
			var made [peers]int
			for i := range peers {
				p := dial(t, addr)
				all.Go(func() {
					value := strings.Repeat(string(rune('a'+i)), 1000)
					for round := range rounds {
						lock := fmt.Sprint("lock", round)
						p.send(encode("INCR", "n") + encode("SETNX", lock, "1") + encode("APPEND", "log", "x") +
							encode("SET", "v", value) + encode("GET", "v") + encode("INCRBY", "n", "2"))
						p.reply()
						if p.reply() == ":1" {
							made[i]++
						}
						p.reply()
						p.reply()
						if v := strings.Trim(p.reply(), `"`); len(v) != 1000 || strings.Trim(v, v[:1]) != "" {
							t.Errorf("torn value %q", v)
						}
						p.reply()
					}
				})
			}
			all.Wait()
			p := dial(t, addr)
			if got, want := p.do("GET", "n"), fmt.Sprintf(`"%d"`, 3*peers*rounds); got != want {
				t.Errorf("the counter is %s, want %s", got, want)
			}
			if got, want := p.do("STRLEN", "log"), fmt.Sprint(":", peers*rounds); got != want {
				t.Errorf("%s appended, want %s", got, want)
			}
			sum := 0
			for _, n := range made {
				sum += n
			}
			if sum != rounds {
				t.Errorf("%d keys were new to somebody, want %d", sum, rounds)
			}
		})
	}
}

// TestFailingDevice: a device that fails to read is an error of the commands that need it
// only. GETDEL does not remove a value that it could not read.
func TestFailingDevice(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	options := cold()
	options.Device = faulty
	_, addr := start(t, options, Options{})
	p := dial(t, addr)
	if got := p.do("MSET", "a", "1", "b", "2"); got != "+OK" {
		t.Fatal(got)
	}
	p.coolDown()
	faulty.Set(device.FaultyOptions{ReadError: 1})
	for _, command := range []string{
		"GET a", "STRLEN a", "TYPE a", "EXISTS none a", "INCR a", "APPEND a x", "SETNX a 1", "GETSET a 1", "SET a 1 XX",
		"SET a 1 XX GET", "SET a 1 NX", "GETDEL a", "DEL b",
	} {
		if got := p.do(strings.Fields(command)...); !strings.HasPrefix(got, "-ERR kv: reading the record at ") {
			t.Errorf("%s: %s", command, got)
		}
	}
	if got := p.do("MGET", "a", "filler9"); !strings.HasPrefix(got, "[-ERR kv: reading the record at ") || !strings.HasSuffix(got, `v"]`) {
		t.Errorf("MGET: %.100s", got)
	}
	if got := p.do("SET", "c", "3") + p.do("PING"); got != "+OK+PONG" {
		t.Error(got)
	}
	faulty.Set(device.FaultyOptions{})
	if got, want := p.do("MGET", "a", "c"), `["1" "3"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
