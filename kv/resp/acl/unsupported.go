package acl

import "strings"

// Categories and commands of Redis, up to version 8, that this server lacks. Rules about
// them have no effect, so that a user's rules can be copied from Redis. Any other unknown
// name is an error, since it may be a misspelt one.

// unsupportedCategories are categories without a command in this server.
var unsupportedCategories = setOf(`hyperloglog geo stream`)

// unsupportedCommands are commands, and subcommands as in config|get.
var unsupportedCommands = setOf(`
	asking bgrewriteaof client|no-touch client|reply cluster cluster|addslots
	cluster|addslotsrange cluster|bumpepoch cluster|count-failure-reports cluster|countkeysinslot
	cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots cluster|forget
	cluster|getkeysinslot cluster|help cluster|info cluster|keyslot cluster|links cluster|meet cluster|myid
	cluster|myshardid cluster|nodes cluster|replicas cluster|replicate cluster|reset cluster|saveconfig
	cluster|set-config-epoch cluster|setslot cluster|shards cluster|slaves cluster|slot-stats cluster|slots
	debug delex digest failover fcall fcall_ro function function|delete
	function|dump function|flush function|help function|kill function|list function|load function|restore
	function|stats geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
	georadiusbymember_ro geosearch geosearchstore hexpire hexpireat hexpiretime hgetdel hgetex
	hpersist hpexpire hpexpireat hpexpiretime hpttl hsetex httl latency|doctor latency|graph lolwut
	memory|doctor memory|malloc-stats memory|purge memory|stats migrate module
	module|help module|list module|load module|loadex module|unload monitor move msetex
	pfadd pfcount pfdebug pfmerge pfselftest psync readonly readwrite replconf replicaof
	restore-asking script|debug slaveof
	swapdb sync wait waitaof xack xadd xautoclaim xclaim xdel xgroup xgroup|create xgroup|createconsumer
	xgroup|delconsumer xgroup|destroy xgroup|help xgroup|setid xinfo xinfo|consumers xinfo|groups xinfo|help
	xinfo|stream xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim
`)

func setOf(words string) map[string]bool {
	set := make(map[string]bool)
	for _, word := range strings.Fields(words) {
		set[word] = true
	}
	return set
}
