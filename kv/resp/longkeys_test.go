package resp

import (
	"strings"
	"testing"
)

// longKey is a key that no record can have.
var longKey = strings.Repeat("k", 70_000)

// readsOfLong are commands that read the key LONG, which does not exist, beside others.
const readsOfLong = `
	GET LONG
	GETRANGE LONG 0 -1
	SUBSTR LONG 0 -1
	STRLEN LONG
	MGET a LONG b
	LCS a LONG
	LCS LONG b LEN
	GETBIT LONG 7
	BITCOUNT LONG
	BITPOS LONG 1
	BITPOS LONG 0
	BITFIELD_RO LONG GET u8 0
	EXISTS a LONG b
	TOUCH LONG a
	TYPE LONG
	TTL LONG
	PTTL LONG
	EXPIRETIME LONG
	PEXPIRETIME LONG
	DUMP LONG
	OBJECT ENCODING LONG
	OBJECT REFCOUNT LONG
	OBJECT IDLETIME LONG
	MEMORY USAGE LONG
	SORT LONG
	SORT_RO LONG
	SORT l BY LONG-* GET LONG-* GET LONG-*->f ALPHA
	HGET LONG f
	HMGET LONG f g
	HGETALL LONG
	HKEYS LONG
	HVALS LONG
	HLEN LONG
	HEXISTS LONG f
	HSTRLEN LONG f
	HSCAN LONG 0
	HRANDFIELD LONG
	HRANDFIELD LONG 2
	SMEMBERS LONG
	SCARD LONG
	SISMEMBER LONG x
	SMISMEMBER LONG x y
	SRANDMEMBER LONG
	SRANDMEMBER LONG 2
	SSCAN LONG 0
	SINTER s LONG
	SINTERCARD 2 s LONG
	SUNION LONG
	SDIFF LONG s
	LLEN LONG
	LINDEX LONG 0
	LRANGE LONG 0 -1
	LPOS LONG x
	LPOS LONG x COUNT 0
	ZCARD LONG
	ZSCORE LONG m
	ZMSCORE LONG m n
	ZRANK LONG m
	ZREVRANK LONG m
	ZCOUNT LONG -inf +inf
	ZLEXCOUNT LONG - +
	ZRANGE LONG 0 -1
	ZREVRANGE LONG 0 -1
	ZRANGEBYSCORE LONG 0 1
	ZRANGEBYLEX LONG - +
	ZRANDMEMBER LONG
	ZSCAN LONG 0
	ZUNION 1 LONG
	ZINTER 2 z LONG
	ZDIFF 2 LONG z
	ZINTERCARD 2 z LONG
	COPY LONG p
	SINTERSTORE p s LONG
	SUNIONSTORE p LONG
	SDIFFSTORE p LONG s
	ZUNIONSTORE p 1 LONG
	ZINTERSTORE p 2 z LONG
	ZDIFFSTORE p 2 LONG z
	ZRANGESTORE p LONG 0 -1
	SORT LONG STORE p
	BITOP OR p LONG
	EXISTS p
	WATCH LONG
	MULTI
	GET LONG
	MGET LONG a
	HGETALL LONG
	EXEC
	EVAL return{redis.call("get",KEYS[1]),redis.call("exists",KEYS[1],"a"),redis.call("zrange",KEYS[1],0,-1)} 1 LONG
	EVAL_RO return(redis.call("hlen",KEYS[1])) 1 LONG
`

// TestLongKeysAsRedis: a key that no record can have does not exist, for all commands that read it.
func TestLongKeysAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, memory := start(t, inMemory(), Options{})
	_, small := start(t, cold(), Options{}) // whose pages have no room for 20,000 bytes
	for name, c := range map[string]struct{ addr, db, key string }{
		"database 0": {memory, "0", longKey}, "database 1": {memory, "1", longKey[:65_530]}, "small pages": {small, "0", longKey[:20_000]},
	} {
		for _, protocol := range []string{"2", "3"} {
			ours := dial(t, c.addr)
			both := func(args ...string) {
				if got, want := ours.do(args...), redis.do(args...); got != want && args[0] != "HELLO" {
					t.Errorf("%s, RESP%s, %.100s\n  got %.300s\nRedis %.300s", name, protocol, strings.Join(args, " "), got, want)
				}
			}
			both("HELLO", protocol)
			both("SELECT", c.db)
			both("FLUSHALL")
			for _, command := range []string{"SET a 1", "SET b 2", "HSET h f 1", "SADD s x y", "RPUSH l 1 2", "ZADD z 1 m"} {
				both(strings.Fields(command)...)
			}
			for line := range strings.Lines(strings.TrimSpace(readsOfLong)) {
				both(strings.Fields(strings.ReplaceAll(line, "LONG", c.key))...)
			}
		}
	}
}
