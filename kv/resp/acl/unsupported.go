package acl

import "strings"

// Categories and commands of Redis, up to version 8, that this server lacks. Rules about
// them have no effect, so that a user's rules can be copied from Redis. Any other unknown
// name is an error, since it may be a misspelt one.

// unsupportedCategories are categories without a command in this server.
var unsupportedCategories = setOf(`set sortedset list bitmap hyperloglog geo stream pubsub blocking scripting`)

// unsupportedCommands are commands, and subcommands as in config|get.
var unsupportedCommands = setOf(`
	acl|deluser acl|dryrun acl|genpass acl|getuser acl|list acl|load acl|log acl|save acl|setuser acl|users
	asking bgrewriteaof bitcount bitfield bitfield_ro bitop bitpos blmove blmpop blpop brpop brpoplpush
	bzmpop bzpopmax bzpopmin client|caching client|getredir client|no-touch client|pause client|reply
	client|tracking client|trackinginfo client|unblock client|unpause cluster cluster|addslots
	cluster|addslotsrange cluster|bumpepoch cluster|count-failure-reports cluster|countkeysinslot
	cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots cluster|forget
	cluster|getkeysinslot cluster|help cluster|info cluster|keyslot cluster|links cluster|meet cluster|myid
	cluster|myshardid cluster|nodes cluster|replicas cluster|replicate cluster|reset cluster|saveconfig
	cluster|set-config-epoch cluster|setslot cluster|shards cluster|slaves cluster|slot-stats cluster|slots
	debug delex digest eval eval_ro evalsha evalsha_ro failover fcall fcall_ro function function|delete
	function|dump function|flush function|help function|kill function|list function|load function|restore
	function|stats geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
	georadiusbymember_ro geosearch geosearchstore getbit hexpire hexpireat hexpiretime hgetdel hgetex
	hpersist hpexpire hpexpireat hpexpiretime hpttl hrandfield hsetex httl latency|doctor latency|graph
	latency|history latency|latest latency|reset lcs lindex linsert llen lmove lmpop lolwut lpop lpos lpush
	lpushx lrange lrem lset ltrim memory|doctor memory|malloc-stats memory|purge memory|stats migrate module
	module|help module|list module|load module|loadex module|unload monitor move msetex object|freq
	object|idletime pfadd pfcount pfdebug pfmerge pfselftest psubscribe psync publish pubsub pubsub|channels
	pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub punsubscribe readonly
	readwrite replconf replicaof restore-asking role rpop rpoplpush rpush rpushx sadd scard script
	script|debug script|exists script|flush script|help script|kill script|load sdiff sdiffstore setbit
	sinter sintercard sinterstore sismember slaveof smembers smismember smove sort sort_ro spop spublish
	srandmember srem sscan ssubscribe subscribe sunion sunionstore sunsubscribe swapdb sync unsubscribe wait
	waitaof xack xadd xautoclaim xclaim xdel xgroup xgroup|create xgroup|createconsumer xgroup|delconsumer
	xgroup|destroy xgroup|help xgroup|setid xinfo xinfo|consumers xinfo|groups xinfo|help xinfo|stream xlen
	xpending xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby
	zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex
	zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange
	zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore
`)

func setOf(words string) map[string]bool {
	set := make(map[string]bool)
	for _, word := range strings.Fields(words) {
		set[word] = true
	}
	return set
}
