package resp

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// TestStoredKeys: the stored forms of keys differ, also of those that look like stored forms, and
// lead back to the keys.
func TestStoredKeys(t *testing.T) {
	seen := make(map[string]string)
	keys := []string{"", "a", "\x01a", mark, mark[:3], mark + "e", mark + "k", mark + "d", mark + "d\x00a", mark + "d\x01", mark + "d\x01a", mark + "d\x01" + mark + "d\x01a", mark + "k" + mark}
	for _, db := range []uint8{0, 1, 'd', 'e', 'k', 255} {
		for _, key := range keys {
			stored := storedKey(db, []byte(key))
			what := fmt.Sprintf("%q of database %d", key, db)
			if before, ok := seen[string(stored)]; ok || len(stored) == 0 {
				t.Errorf("%s is stored as %q, as is %s", what, stored, before)
			}
			seen[string(stored)] = what
			if in, shown := shownKey(stored); in != db || string(shown) != key || KeyClass(stored) != db {
				t.Errorf("%s, stored as %q, is shown as %q of database %d", what, stored, shown, in)
			}
		}
	}
	// Keys of database 0 have the form that earlier versions gave them.
	for key, want := range map[string]string{"a": "a", "": mark + "e", mark + "d\x01a": mark + "k" + mark + "d\x01a"} {
		if got := string(storedKey(0, []byte(key))); got != want {
			t.Errorf("%q is stored as %q, want %q", key, got, want)
		}
	}
}

// last sends commands, as words, in one pipeline, and compares the last reply.
func (p *peer) last(want string, commands ...string) {
	p.t.Helper()
	var all strings.Builder
	for _, command := range commands {
		all.WriteString(encode(strings.Fields(command)...))
	}
	p.send(all.String())
	var got string
	for range commands {
		got = p.reply()
	}
	if got != want {
		p.t.Errorf("%q: %s, want %s", commands, got, want)
	}
}

// TestInfoKeyspace: INFO has a line for each database with keys, and counts the commands before it.
func TestInfoKeyspace(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	p.last(`"# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\ndb15:keys=2,expires=1,avg_ttl=0\r\n"`,
		"SET a 1", "SELECT 15", "MSET a 1 b 2", "EXPIRE a 1000", "INFO keyspace")
	p.last(`"# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\ndb15:keys=1,expires=1,avg_ttl=0\r\n"`, "DEL b", "INFO keyspace")
	p.last(`"# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n"`, "FLUSHDB", "INFO keyspace")
	p.last(`"# Keyspace\r\n"`, "FLUSHALL", "INFO keyspace")
}

// TestDatabasesInTransactions: SELECT, MOVE and COPY to another database lock what they use, and a
// watched key is one of its database.
func TestDatabasesInTransactions(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p, other := dial(t, addr), dial(t, addr)
	p.last("[+OK +OK +OK :1]", "MULTI", "SET a 0", "SELECT 1", "SET a 1", "DBSIZE", "EXEC")
	p.last(`"1"`, "GET a")
	p.last(`[:1 nil +OK "1" :1 +OK "1"]`, "MULTI", "MOVE a 2", "GET a", "SELECT 2", "GET a", "COPY a b DB 3", "SELECT 3", "GET b", "EXEC")
	p.last("[+OK -ERR DB index is out of range :1 -ERR DB index is out of range]", "MULTI", "SELECT 4", "SELECT 16", "INCR n", "MOVE n 16", "EXEC")
	p.last("+QUEUED", "SELECT 5", "MULTI", "SELECT 6")
	p.last("+OK", "DISCARD")
	if got := p.do("CLIENT", "INFO"); !strings.Contains(got, " db=5 ") {
		t.Errorf("after DISCARD: %s", got)
	}

	for _, tc := range []struct {
		command string
		db      string
		touches bool
	}{
		{"SET a 2", "1", true}, {"SET a 2", "0", false}, {"FLUSHDB", "1", true}, {"FLUSHDB", "0", false}, {"FLUSHALL", "0", true},
		{"MOVE a 7", "1", true}, {"COPY c a DB 1 REPLACE", "2", true}, {"COPY c a REPLACE", "2", false}, {"MOVE a 1", "2", false},
	} {
		other.last("+OK", "FLUSHALL", "SET a 0", "SELECT 1", "SET a 1", "SELECT 2", "SET a 2", "SET c 2")
		p.last("+OK", "SELECT 1", "WATCH a", "SELECT 2", "MULTI")
		other.do("SELECT", tc.db)
		other.do(strings.Fields(tc.command)...)
		want := "[+PONG]"
		if tc.touches {
			want = "nil[]"
		}
		p.last(want, "PING", "EXEC")
		if t.Failed() {
			t.Fatalf("%s in database %s", tc.command, tc.db)
		}
	}
}

// TestFlushDB: FLUSHDB deletes the keys of its database only, also beside databases that the server
// does not serve.
func TestFlushDB(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold, "uncounted": func() kv.Options {
		o := cold()
		o.CountKeys, o.KeyClass = false, nil
		return o
	}} {
		t.Run(name, func(t *testing.T) {
			options := options()
			disk := device.NewMemory()
			options.Device = disk
			t.Run("many databases", func(t *testing.T) {
				_, addr := start(t, options, Options{Databases: MaxDatabases})
				p := dial(t, addr)
				for _, db := range []string{"0", "1", "255"} {
					p.last("+OK", "SELECT "+db)
					n := 0
					writeMany(p, 500, func() string { n++; return strconv.Itoa(n) }, strings.Repeat(db, 100))
				}
				p.last(":0", "SELECT 1", "FLUSHDB", "DBSIZE")
				p.last(":500", "SELECT 0", "DBSIZE")
				p.last(":500", "SELECT 255", "DBSIZE")
				p.last(":0", "SELECT 0", "FLUSHDB", "DBSIZE")
				p.last("+OK", "SET a 1")
			})
			options.Device = disk.Reopen()
			t.Run("one database", func(t *testing.T) {
				_, addr := start(t, options, Options{Databases: 1})
				p := dial(t, addr)
				p.last(`["a"]`, "KEYS *")
				p.last("-"+errDatabase, "SELECT 1")
				p.last("[]", "FLUSHDB", "KEYS *")
			})
			disk = options.Device.(*device.Memory)
			options.Device = disk.Reopen()
			t.Run("many databases again", func(t *testing.T) {
				s, addr := start(t, options, Options{Databases: MaxDatabases})
				p := dial(t, addr)
				p.last(":500", "SELECT 255", "DBSIZE")
				p.last(`"`+strings.Repeat("255", 100)+`"`, "GET 500")
				want := ""
				if options.CountKeys {
					want = "db255:keys=500,expires=0,avg_ttl=0\r\n"
				}
				if got := p.do("INFO", "keyspace"); got != strconv.Quote("# Keyspace\r\n"+want) {
					t.Error(got)
				}
				p.last(":0", "FLUSHALL", "DBSIZE")
				for rec, err := range s.store.Scan() {
					t.Fatalf("key %q is left, %v", rec.Key, err)
				}
			})
		})
	}
}

// TestScanOfDatabase: SCAN and RANDOMKEY find all keys of a database, and few others delay them.
func TestScanOfDatabase(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	n := 0
	for n < maxScan+1000 {
		writeMany(p, 10_000, func() string { n++; return fmt.Sprint("many", n) }, "v")
	}
	p.last("+OK", "SELECT 3")
	p.last(`["0" []]`, "SCAN 0")
	p.last("nil", "RANDOMKEY")
	writeMany(p, 40, func() string { n++; return fmt.Sprint("few", n) }, "v")
	times := make(map[string]int)
	calls := 0
	for cursor := "0"; ; {
		var found []string
		cursor, found = scanStep(p, cursor)
		for _, key := range found {
			times[key]++
		}
		if calls++; cursor == "0" {
			break
		}
	}
	if len(times) != 40 || calls > 400 { // by steps of 10 records there would be 7000
		t.Errorf("%d keys in %d calls, want 40 in about 4", len(times), calls)
	}
	for key, n := range times {
		if n != 1 || !strings.HasPrefix(key, "few") {
			t.Errorf("%s was found %d times", key, n)
		}
	}
	if got := p.do("RANDOMKEY"); !strings.HasPrefix(got, `"few`) {
		t.Errorf("RANDOMKEY: %s", got)
	}
	if got := elementsOf(p.do("KEYS", "*")); len(got) != 40 {
		t.Errorf("KEYS: %v", got)
	}
}

// TestMoveIsAtomic moves a key between databases from several connections. Every transaction
// finds it in one of them.
func TestMoveIsAtomic(t *testing.T) {
	for name, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, options(), Options{Sessions: 4})
			p := dial(t, addr)
			p.last("+OK", "SET key value")
			const rounds = 300
			var all sync.WaitGroup
			for db := range 3 {
				mover := dial(t, addr)
				mover.last("+OK", fmt.Sprint("SELECT ", db))
				all.Go(func() {
					for range rounds {
						mover.do("MOVE", "key", strconv.Itoa((db+1)%3))
					}
				})
			}
			for range rounds {
				p.send(encode("MULTI"))
				for db := range 3 {
					p.send(encode("SELECT", strconv.Itoa(db)) + encode("EXISTS", "key"))
				}
				p.send(encode("EXEC"))
				for range 7 {
					p.reply()
				}
				if got := p.reply(); strings.Count(got, ":1") != 1 {
					t.Errorf("the key exists in %s", got)
					break
				}
			}
			all.Wait()
		})
	}
}

// TestStoreOfOneDatabase serves a store that was filled by a program, with the keys that earlier
// versions of the server wrote, and counted without classes.
func TestStoreOfOneDatabase(t *testing.T) {
	ctx := context.Background()
	disk := device.NewMemory()
	options := inMemory()
	options.Device, options.KeyClass, options.Logger = disk, nil, quietly
	st, err := kv.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"a": "1", mark + "e": "2", mark + "k" + mark + "d\x01a": "3"} {
		if err := st.Upsert(ctx, []byte(key), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	options.Device, options.KeyClass = disk.Reopen(), KeyClass
	_, addr := start(t, options, Options{})
	p := dial(t, addr)
	if got, want := p.do("MGET", "a", "", mark+"d\x01a"), `["1" "2" "3"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.last(":3", "DBSIZE")
	p.last(":0", "SELECT 1", "EXISTS a")
	p.last(":0", "DBSIZE")
}
