package resp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/kv"
)

// scripts are conversations: a command in words, then its reply. Words may be quoted. Each
// script is sent as inline commands, and then as one pipeline of arrays.
var scripts = map[string]string{
	"get and set": `
GET a                      => nil
SET a 1                    => +OK
GET a                      => "1"
SET a ""                   => +OK
GET a                      => ""
STRLEN a                   => :0
set a "x y\r\n\x00"        => +OK
gEt a                      => "x y\r\n\x00"
STRLEN a                   => :6
STRLEN none                => :0
TYPE a                     => +string
TYPE none                  => +none
GET                        => -ERR wrong number of arguments for 'get' command
GET a b                    => -ERR wrong number of arguments for 'get' command
SET a                      => -ERR wrong number of arguments for 'set' command
SET "" 1                   => +OK
GET ""                     => "1"
SET "\xff\x00redy\x00e" 2 => +OK
MGET "" "\xff\x00redy\x00e" => ["1" "2"]
SET a "\xff\x00redy\x00h\x01a\x01b" => +OK
TYPE a                     => +string
STRLEN a                   => :12
GETRANGE a 7 -1            => "h\x01a\x01b"
SET a "\xff\x00redy\x00"  => +OK
APPEND a "h\x01a\x01b"     => :12
TYPE a                     => +string
HGETALL a                  => -WRONGTYPE Operation against a key holding the wrong kind of value
SETRANGE a 7 s             => :12
GETRANGE a 7 7             => "s"`,
	"set with options": `
SET a 1 XX                 => nil
EXISTS a                   => :0
SET a 1 NX                 => +OK
SET a 2 NX                 => nil
GET a                      => "1"
SET a 2 xx                 => +OK
GET a                      => "2"
SET a 3 GET                => "2"
SET a 4 GET XX             => "3"
SET b 4 XX GET             => nil
EXISTS b                   => :0
SET b 4 NX GET             => nil
SET b 5 NX GET             => "4"
GET b                      => "4"
SET b 6 KEEPTTL            => +OK
GET b                      => "6"
SET a 1 NX XX              => -ERR syntax error
SET a 1 XX NX              => -ERR syntax error
SET a 1 EX                 => -ERR syntax error
SET a 1 EX 10 PX 10        => -ERR syntax error
SET a 1 EX 10 KEEPTTL      => -ERR syntax error
SET a 1 FOO                => -ERR syntax error
SET a 1 averylongoptionthatthereisnot => -ERR syntax error
SET c 1 EX 0               => -ERR invalid expire time in 'set' command
SET c 1 EX x               => -ERR value is not an integer or out of range
SET c 1 PXAT 10            => +OK
GET c                      => nil
SET c 1 EXAT 99999999999   => +OK
EXPIRETIME c               => :99999999999
SET c 2 KEEPTTL            => +OK
PEXPIRETIME c              => :99999999999000
SET c 2                    => +OK
TTL c                      => :-1
DEL c                      => :1
GET a                      => "4"
SETNX a 1                  => :0
SETNX c 1                  => :1
GETSET c 2                 => "1"
GETSET d 2                 => nil
GET d                      => "2"
GETDEL d                   => "2"
GETDEL d                   => nil
GET d                      => nil
GETDEL ""                  => nil
SET "" 1 XX                => nil`,
	"many keys": `
MSET a 1 b 2 c 3           => +OK
MGET a x b c a             => ["1" nil "2" "3" "1"]
EXISTS a b x a             => :3
DEL a x b a                => :2
DEL a                      => :0
SET a 1                    => +OK
GET a                      => "1"
UNLINK a c                 => :2
MGET a b c                 => [nil nil nil]
MSET a 1 a 2               => +OK
GET a                      => "2"
MSET a                     => -ERR wrong number of arguments for 'mset' command
MSET a 1 b                 => -ERR wrong number of arguments for 'mset' command
MSET a 1 "" 2 c 3          => +OK
DEL ""                     => :1
MSETNX x 1 a 2             => :0
EXISTS x                   => :0
MSETNX x 1 y 2             => :1
MGET x y                   => ["1" "2"]
MSETNX x 1 z               => -ERR wrong number of arguments for 'msetnx' command
RENAME x y                 => +OK
MGET x y                   => [nil "1"]
RENAME x y                 => -ERR no such key
RENAMENX y a               => :0
RENAMENX y b               => :1
COPY b c                   => :0
COPY b c REPLACE           => :1
COPY b b                   => -ERR source and destination objects are the same
MGET a b c                 => ["1" "1" "1"]`,
	"numbers": `
INCR n                     => :1
INCR n                     => :2
DECR n                     => :1
INCRBY n 41                => :42
DECRBY n 50                => :-8
GET n                      => "-8"
INCRBY n x                 => -ERR value is not an integer or out of range
INCRBY n 1.5               => -ERR value is not an integer or out of range
INCRBY n 9223372036854775808 => -ERR value is not an integer or out of range
SET n 9223372036854775806  => +OK
INCR n                     => :9223372036854775807
INCR n                     => -ERR increment or decrement would overflow
GET n                      => "9223372036854775807"
DECRBY n -9223372036854775808 => -ERR decrement would overflow
SET n -9223372036854775807 => +OK
DECR n                     => :-9223372036854775808
DECR n                     => -ERR increment or decrement would overflow
SET n " 1"                 => +OK
INCR n                     => -ERR value is not an integer or out of range
SET n 01                   => +OK
INCR n                     => -ERR value is not an integer or out of range
SET n ""                   => +OK
INCR n                     => -ERR value is not an integer or out of range
GET n                      => ""
APPEND n 1                 => :1
INCR n                     => :2
APPEND n 3                 => :2
GET n                      => "23"
APPEND new ""              => :0
EXISTS new                 => :1`,
	"databases": `
SET a 0                    => +OK
SELECT 1                   => +OK
GET a                      => nil
SET a 1                    => +OK
SET "" empty               => +OK
SET "\xff\x00redy\x00d\x02a" x => +OK
DBSIZE                     => :3
HSET h f v                 => :1
HGETALL h                  => ["f" "v"]
MSETNX a 2 b 2             => :0
MSETNX b 2 c 2             => :1
MGET a b ""                => ["1" "2" "empty"]
RENAME b d                 => +OK
MOVE a 0                   => :0
MOVE a 1                   => -ERR source and destination objects are the same
MOVE a 16                  => -ERR DB index is out of range
MOVE a x                   => -ERR value is not an integer or out of range
MOVE none 2                => :0
MOVE a 2                   => :1
EXISTS a b c d h           => :3
COPY d d                   => -ERR source and destination objects are the same
COPY d d DB 1              => -ERR source and destination objects are the same
COPY d a DB 2              => :0
COPY d a DB 2 REPLACE      => :1
COPY d a DB 16             => -ERR DB index is out of range
COPY d a DB x              => -ERR value is not an integer or out of range
COPY d a DB                => -ERR syntax error
SELECT 2                   => +OK
KEYS *                     => ["a"]
GET a                      => "2"
RANDOMKEY                  => "a"
EXPIRE a 1000              => :1
MOVE a 3                   => :1
SELECT 3                   => +OK
EXPIRE a 1000 NX           => :0
FLUSHDB nonsense           => -ERR syntax error
FLUSHDB                    => +OK
DBSIZE                     => :0
RANDOMKEY                  => nil
SELECT 1                   => +OK
DBSIZE                     => :5
GET "\xff\x00redy\x00d\x02a" => "x"
SELECT 0                   => +OK
EXISTS "\xff\x00redy\x00d\x01a" => :0
FLUSHDB                    => +OK
SELECT 15                  => +OK
HELLO 2                    => ["server" "redis" "version" "7.0.15" "proto" :2 "id" :ID "mode" "standalone" "role" "master" "modules" []]
SET a 15                   => +OK
RESET                      => +RESET
GET a                      => nil
FLUSHALL                   => +OK
SELECT 1                   => +OK
DBSIZE                     => :0
CONFIG GET databases       => ["databases" "16"]
CONFIG SET databases 2     => -ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config
SWAPDB 0 1                 => -ERR unknown command 'SWAPDB', with args beginning with: '0' '1' 
SELECT 16                  => -ERR DB index is out of range
SELECT -1                  => -ERR DB index is out of range`,
	"clusters and replication": `
ROLE                       => ["master" :0 []]
CLUSTER                    => -ERR wrong number of arguments for 'cluster' command
CLUSTER INFO               => -ERR This instance has cluster support disabled
CLUSTER SLOTS              => -ERR This instance has cluster support disabled
CLUSTER KEYSLOT a          => -ERR This instance has cluster support disabled
CLUSTER KEYSLOT            => -ERR wrong number of arguments for 'cluster|keyslot' command
CLUSTER nonsense           => -ERR unknown subcommand 'nonsense'. Try CLUSTER HELP.
READONLY                   => -ERR This instance has cluster support disabled
READWRITE                  => -ERR This instance has cluster support disabled
ASKING                     => -ERR This instance has cluster support disabled
INFO cluster               => "# Cluster\r\ncluster_enabled:0\r\n"`,
	"connection": `
PING                       => +PONG
PING hello                 => "hello"
PING a b                   => -ERR wrong number of arguments for 'ping' command
ECHO "a b"                 => "a b"
SELECT 0                   => +OK
SELECT 99                  => -ERR DB index is out of range
SELECT x                   => -ERR value is not an integer or out of range
SELECT 4294967296          => -ERR value is out of range, value must between -2147483648 and 2147483647
CLIENT                     => -ERR wrong number of arguments for 'client' command
CLIENT GETNAME             => nil
CLIENT SETNAME me          => +OK
CLIENT GETNAME             => "me"
CLIENT SETNAME "a b"       => -ERR Client names cannot contain spaces, newlines or special characters.
CLIENT SETNAME             => -ERR wrong number of arguments for 'client|setname' command
CLIENT SETINFO lib-name me => +OK
CLIENT NONSENSE            => -ERR unknown subcommand 'NONSENSE'. Try CLIENT HELP.
COMMAND DOCS none          => []
COMMAND DOCS echo          => ["echo" ["summary" "Get the argument" "since" "1.0.0" "group" "connection"]]
COMMAND INFO get none      => [["get" :2 [+readonly +fast] :1 :1 :1 [+@read +@string +@fast] [] [["flags" [+RO +access] "begin_search" ["type" "index" "spec" ["index" :1]] "find_keys" ["type" "range" "spec" ["lastkey" :0 "keystep" :1 "limit" :0]]]] []] nil]
COMMAND GETKEYS mset a 1 b 2 => ["a" "b"]
COMMAND GETKEYS sort a store b by store alpha => ["a" "b"]
COMMAND GETKEYS sort a limit store store get store store c => ["a" "c"]
COMMAND GETKEYS sort a store store => ["a" "store"]
COMMAND GETKEYS sort a by store => ["a"]
COMMAND GETKEYS ping 1 => -ERR The command has no key arguments
COMMAND COUNT 1            => -ERR wrong number of arguments for 'command|count' command
CONFIG GET save            => ["save" ""]
CONFIG GET appendo* nothing => ["appendonly" "no"]
CONFIG GET [               => []
CONFIG GET                 => -ERR wrong number of arguments for 'config|get' command
CONFIG SET save ""         => -ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config
CONFIG SET nonsense 1      => -ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'
CONFIG SET slowlog-max-len x => -ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument couldn't be parsed into an integer
CONFIG SET slowlog-max-len 1 slowlog-log-slower-than -1 => +OK
CONFIG GET slowlog*        => ["slowlog-log-slower-than" "-1" "slowlog-max-len" "1"]
INFO nothing               => ""
XADD a b                   => -ERR unknown command 'XADD', with args beginning with: 'a' 'b' 
"ba\r\nd" "x\r\n"          => -ERR unknown command 'ba  d', with args beginning with: 'x  ' 
averylongcommandthatthereisnot => -ERR unknown command 'averylongcommandthatthereisnot', with args beginning with: 
HELLO x                    => -ERR Protocol version is not an integer or out of range
HELLO 4                    => -NOPROTO unsupported protocol version
HELLO 3 AUTH a b           => -WRONGPASS invalid username-password pair or user is disabled.
AUTH a                     => -ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?
ACL WHOAMI                 => "default"
HELLO 3 AUTH a             => -ERR Syntax error in HELLO option 'AUTH'
HELLO 3 SETNAME "a b"      => -ERR Client names cannot contain spaces, newlines or special characters.
GET none                   => nil
HELLO 3 SETNAME you        => {"server" "redis" "version" "7.0.15" "proto" :3 "id" :ID "mode" "standalone" "role" "master" "modules" []}
GET none                   => null
MGET none                  => [null]
CLIENT GETNAME             => "you"
CONFIG GET save            => {"save" ""}
INFO nothing               => text"txt:"
HELLO                      => {"server" "redis" "version" "7.0.15" "proto" :3 "id" :ID "mode" "standalone" "role" "master" "modules" []}
HELLO 2                    => ["server" "redis" "version" "7.0.15" "proto" :2 "id" :ID "mode" "standalone" "role" "master" "modules" []]
GET none                   => nil
QUIT                       => +OK`,
}

func TestCommands(t *testing.T) {
	for name, script := range scripts {
		for where, options := range map[string]func() kv.Options{"memory": inMemory, "cold": cold} {
			for _, pipeline := range []bool{false, true} {
				mode := "inline"
				if pipeline {
					mode = "pipeline"
				}
				t.Run(strings.Join([]string{name, where, mode}, "/"), func(t *testing.T) {
					runScript(t, script, options(), pipeline)
				})
			}
		}
	}
}

func runScript(t *testing.T, script string, store kv.Options, pipeline bool) {
	_, addr := start(t, store, Options{})
	p := dial(t, addr)
	id := strings.TrimPrefix(p.do("CLIENT", "ID"), ":")
	other := dial(t, addr)
	var lines, wants []string
	for line := range strings.Lines(strings.TrimSpace(script)) {
		line, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=>")
		if !ok {
			t.Fatalf("no reply in %q", line)
		}
		lines = append(lines, strings.TrimSpace(line))
		wants = append(wants, strings.ReplaceAll(want[1:], ":ID", ":"+id))
	}
	if pipeline {
		var all strings.Builder
		for _, line := range lines {
			all.WriteString(encode(words(t, line)...))
		}
		p.send(all.String())
	}
	for i, line := range lines {
		if !pipeline {
			p.send(line + "\r\n")
		}
		if got := p.reply(); got != wants[i] {
			t.Errorf("%s\n got %s\nwant %s", line, got, wants[i])
		}
		if store.PageSize != 0 && !pipeline {
			other.coolDown()
		}
	}
}

// words splits an inline command.
func words(t *testing.T, line string) (words []string) {
	p := parser{maxBulk: DefaultMaxBulk, maxRequest: maxRequest}
	data := []byte(line + "\n")
	if _, err := p.next(data); err != nil {
		t.Fatal(err)
	}
	r := request{data, p.args}
	for i := range r.len() {
		words = append(words, string(r.arg(i)))
	}
	return words
}

// coolDown writes so much that a cold store's earlier records are on the device only.
func (p *peer) coolDown() {
	value := strings.Repeat("v", 10_000)
	var all strings.Builder
	for i := range 10 {
		all.WriteString(encode("SET", "filler"+strconv.Itoa(i), value))
	}
	p.send(all.String())
	for range 10 {
		if got := p.reply(); got != "+OK" {
			p.t.Fatal(got)
		}
	}
}

// warmUp deletes the keys of coolDown.
func (p *peer) warmUp() {
	keys := []string{"DEL"}
	for i := range 10 {
		keys = append(keys, "filler"+strconv.Itoa(i))
	}
	if got := p.do(keys...); got != ":10" {
		p.t.Fatal(got)
	}
}
