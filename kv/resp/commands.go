package resp

// The table of commands, in the groups of Redis's documentation. Clients see it through
// COMMAND. A subcommand follows its command.

func stringCommands() []command {
	return of(groupString, []command{
		{name: "get", arity: 2, run: get, flags: readsFast, keys: oneKey, since: "1.0.0", about: "Get a string"},
		{name: "set", arity: -3, run: set, flags: stores, keys: oneKey, since: "1.0.0", about: "Set a key to a string, whatever it holds"},
		{name: "setnx", arity: 3, run: setNX, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Set a key that does not exist"},
		{name: "setex", arity: 4, run: setEX, flags: stores, keys: oneKey, since: "2.0.0", about: "Set a key for some seconds"},
		{name: "psetex", arity: 4, run: setEX, flags: stores, keys: oneKey, since: "2.6.0", about: "Set a key for some milliseconds"},
		{name: "getset", arity: 3, run: getSet, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Set a key and get what it held"},
		{name: "getdel", arity: 2, run: getDel, flags: writesFast, keys: oneKey, since: "6.2.0", about: "Get a string and delete its key"},
		{name: "getex", arity: -2, run: getEX, flags: writesFast, keys: oneKey, since: "6.2.0", about: "Get a string and change when it expires"},
		{name: "mget", arity: -2, run: mget, flags: readsFast, keys: allKeys, since: "1.0.0", about: "Get the strings of several keys"},
		{name: "mset", arity: -3, run: mset, flags: stores, keys: evenKeys, since: "1.0.1", about: "Set several keys"},
		{name: "msetnx", arity: -3, run: msetNX, flags: stores, keys: evenKeys, since: "1.0.1", about: "Set several keys if none of them exists"},
		{name: "append", arity: 3, run: appendTo, flags: storesFast, keys: oneKey, since: "2.0.0", about: "Append to a string"},
		{name: "strlen", arity: 2, run: strlen, flags: readsFast, keys: oneKey, since: "2.2.0", about: "Get the length of a string"},
		{name: "getrange", arity: 4, run: getRange, flags: reads, keys: oneKey, since: "2.4.0", about: "Get a part of a string"},
		{name: "substr", arity: 4, run: getRange, flags: reads, keys: oneKey, since: "1.0.0", about: "Get a part of a string"},
		{name: "setrange", arity: 4, run: setRange, flags: stores, keys: oneKey, since: "2.2.0", about: "Overwrite a part of a string"},
		{name: "incr", arity: 2, run: incr, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Add 1 to an integer"},
		{name: "decr", arity: 2, run: decr, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Subtract 1 from an integer"},
		{name: "incrby", arity: 3, run: incrBy, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Add to an integer"},
		{name: "decrby", arity: 3, run: decrBy, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Subtract from an integer"},
		{name: "incrbyfloat", arity: 3, run: incrByFloat, flags: storesFast, keys: oneKey, since: "2.6.0", about: "Add to a number"},
		{name: "lcs", arity: -3, run: lcs, flags: reads, keys: twoKeys, since: "7.0.0", about: "Get the longest common subsequence of two strings"},
	})
}

func bitCommands() []command {
	return of(groupBitmap, []command{
		{name: "setbit", arity: 4, run: setBit, flags: stores, keys: oneKey, since: "2.2.0", about: "Set a bit of a string"},
		{name: "getbit", arity: 3, run: getBit, flags: readsFast, keys: oneKey, since: "2.2.0", about: "Get a bit of a string"},
		{name: "bitcount", arity: -2, run: bitCount, flags: reads, keys: oneKey, since: "2.6.0", about: "Count the bits of a string that are set"},
		{name: "bitpos", arity: -3, run: bitPos, flags: reads, keys: oneKey, since: "2.8.7", about: "Find the first bit of a string that is set, or that is not"},
		{name: "bitop", arity: -4, run: bitOp, flags: stores, keys: restKeys, since: "2.6.0", about: "Combine the bits of strings"},
		{name: "bitfield", arity: -2, run: bitField, flags: stores, keys: oneKey, since: "3.2.0", about: "Read and change integers of any width in a string"},
		{name: "bitfield_ro", arity: -2, run: bitField, flags: readsFast, keys: oneKey, since: "6.0.0", about: "Read integers of any width in a string"},
	})
}

func keyCommands() []command {
	const sorts = CategorySet | CategorySortedSet | CategoryList | CategoryDangerous
	return of(groupGeneric, []command{
		{name: "del", arity: -2, run: del, flags: writes, keys: allKeys, since: "1.0.0", about: "Delete keys"},
		{name: "unlink", arity: -2, run: del, flags: writesFast, keys: allKeys, since: "4.0.0", about: "Delete keys"},
		{name: "exists", arity: -2, run: exists, flags: readsFast, keys: allKeys, since: "1.0.0", about: "Count the keys that exist"},
		{name: "touch", arity: -2, run: exists, flags: readsFast, keys: allKeys, since: "3.2.1", about: "Count the keys that exist"},
		{name: "type", arity: 2, run: typeOf, flags: readsFast, keys: oneKey, since: "1.0.0", about: "Get the type of what a key holds"},
		{name: "ttl", arity: 2, run: ttl, flags: readsFast, keys: oneKey, since: "1.0.0", about: "Get the seconds until a key expires"},
		{name: "pttl", arity: 2, run: ttl, flags: readsFast, keys: oneKey, since: "2.6.0", about: "Get the milliseconds until a key expires"},
		{name: "expiretime", arity: 2, run: ttl, flags: readsFast, keys: oneKey, since: "7.0.0", about: "Get the Unix time in seconds at which a key expires"},
		{name: "pexpiretime", arity: 2, run: ttl, flags: readsFast, keys: oneKey, since: "7.0.0", about: "Get the Unix time in milliseconds at which a key expires"},
		{name: "expire", arity: -3, run: expire, flags: writesFast, keys: oneKey, since: "1.0.0", about: "Have a key expire in some seconds"},
		{name: "pexpire", arity: -3, run: expire, flags: writesFast, keys: oneKey, since: "2.6.0", about: "Have a key expire in some milliseconds"},
		{name: "expireat", arity: -3, run: expire, flags: writesFast, keys: oneKey, since: "1.2.0", about: "Have a key expire at a Unix time in seconds"},
		{name: "pexpireat", arity: -3, run: expire, flags: writesFast, keys: oneKey, since: "2.6.0", about: "Have a key expire at a Unix time in milliseconds"},
		{name: "persist", arity: 2, run: persist, flags: writesFast, keys: oneKey, since: "2.2.0", about: "Have a key not expire"},
		{name: "randomkey", arity: 1, run: randomKey, flags: reads | flagSolo | flagWhole, since: "1.0.0", about: "Get some key"},
		{name: "scan", arity: -2, run: scan, flags: reads | flagSolo | flagWhole, since: "2.8.0", about: "Go through the keys, step by step"},
		{name: "keys", arity: 2, run: keys, flags: reads | flagSolo | flagWhole, also: CategoryDangerous, since: "1.0.0", about: "Get all keys that match a pattern"},
		{name: "rename", arity: 3, run: rename, flags: writes, keys: twoKeys, since: "1.0.0", about: "Give what a key holds to another key"},
		{name: "renamenx", arity: 3, run: rename, flags: writesFast, keys: twoKeys, since: "1.0.0", about: "Give what a key holds to a key that does not exist"},
		{name: "copy", arity: -3, run: copyKey, flags: stores, keys: twoKeys, since: "6.2.0", about: "Copy what a key holds to another key"},
		{name: "move", arity: 3, run: move, flags: writesFast, keys: oneKey, since: "1.0.0", about: "Move a key to another database"},
		{name: "sort", arity: -2, run: sortKey(false), flags: stores | flagMovableKeys | flagWhole, keys: sortKeys, also: sorts, but: CategoryKeyspace, since: "1.0.0", about: "Sort the elements of a list, set or sorted set"},
		{name: "sort_ro", arity: -2, run: sortKey(true), flags: reads | flagMovableKeys | flagWhole, keys: sortROKeys, also: sorts, but: CategoryKeyspace, since: "7.0.0", about: "Sort the elements of a list, set or sorted set, for the reply only"},
		{name: "wait", arity: 3, run: waitForReplicas, flags: flagNoScript | flagSolo | flagIdles, also: CategoryConnection, but: CategoryKeyspace, since: "3.0.0", about: "Wait for replicas, of which there are none"},
		{name: "object", arity: -2, since: "2.2.3", about: "Commands about how a key is stored"},
		{name: "object|encoding", arity: 3, run: objectEncoding, flags: reads, keys: subKey, also: CategoryKeyspace, since: "2.2.3", about: "Get the encoding that Redis would have for what a key holds"},
		{name: "object|idletime", arity: 3, run: objectIdle, flags: reads, keys: subKey, also: CategoryKeyspace, since: "2.2.3", about: "Get the seconds since a key was used, as far as the server knows: 0"},
		{name: "object|freq", arity: 3, run: objectFreq, flags: reads, keys: subKey, also: CategoryKeyspace, since: "4.0.0", about: "Refused: the server does not count how often a key is used"},
		{name: "object|refcount", arity: 3, run: objectRefcount, flags: reads, keys: subKey, also: CategoryKeyspace, since: "2.2.3", about: "Get 1 for a key that exists"},
		{name: "dump", arity: 2, run: dump, flags: reads, keys: oneKey, since: "2.6.0", about: "Get what a key holds in Redis's format for RESTORE"},
		{name: "restore", arity: -4, run: restore, flags: stores, keys: oneKey, also: CategoryDangerous, since: "2.6.0", about: "Set a key to what DUMP gave"},
	})
}

func hashCommands() []command {
	return of(groupHash, []command{
		{name: "hset", arity: -4, run: hset, flags: storesFast, keys: oneKey, since: "2.0.0", about: "Set fields of a hash"},
		{name: "hmset", arity: -4, run: hset, flags: storesFast, keys: oneKey, since: "2.0.0", about: "Set fields of a hash"},
		{name: "hsetnx", arity: 4, run: hsetNX, flags: storesFast, keys: oneKey, since: "2.0.0", about: "Set a field of a hash that does not exist"},
		{name: "hget", arity: 3, run: hget, flags: readsFast, keys: oneKey, since: "2.0.0", about: "Get a field of a hash"},
		{name: "hmget", arity: -3, run: hmget, flags: readsFast, keys: oneKey, since: "2.0.0", about: "Get several fields of a hash"},
		{name: "hgetall", arity: 2, run: hgetAll, flags: reads, keys: oneKey, since: "2.0.0", about: "Get all fields of a hash with their values"},
		{name: "hkeys", arity: 2, run: hkeys, flags: reads, keys: oneKey, since: "2.0.0", about: "Get all fields of a hash"},
		{name: "hvals", arity: 2, run: hvals, flags: reads, keys: oneKey, since: "2.0.0", about: "Get the values of all fields of a hash"},
		{name: "hdel", arity: -3, run: hdel, flags: writesFast, keys: oneKey, since: "2.0.0", about: "Delete fields of a hash"},
		{name: "hexists", arity: 3, run: hexists, flags: readsFast, keys: oneKey, since: "2.0.0", about: "Say whether a hash has a field"},
		{name: "hlen", arity: 2, run: hlen, flags: readsFast, keys: oneKey, since: "2.0.0", about: "Get the number of fields of a hash"},
		{name: "hstrlen", arity: 3, run: hstrlen, flags: readsFast, keys: oneKey, since: "3.2.0", about: "Get the length of the value of a hash's field"},
		{name: "hincrby", arity: 4, run: hincrBy, flags: storesFast, keys: oneKey, since: "2.0.0", about: "Add to an integer in a hash"},
		{name: "hincrbyfloat", arity: 4, run: hincrByFloat, flags: storesFast, keys: oneKey, since: "2.6.0", about: "Add to a number in a hash"},
		{name: "hscan", arity: -3, run: hscan, flags: reads, keys: oneKey, since: "2.8.0", about: "Go through the fields of a hash, step by step"},
		{name: "hrandfield", arity: -2, run: hrandfield, flags: reads | flagChooses, keys: oneKey, since: "6.2.0", about: "Get random fields of a hash"},
	})
}

func setCommands() []command {
	return of(groupSet, []command{
		{name: "sadd", arity: -3, run: sadd, flags: storesFast, keys: oneKey, since: "1.0.0", about: "Add members to a set"},
		{name: "srem", arity: -3, run: srem, flags: writesFast, keys: oneKey, since: "1.0.0", about: "Delete members of a set"},
		{name: "smove", arity: 4, run: smove, flags: writesFast, keys: twoKeys, since: "1.0.0", about: "Move a member from one set to another"},
		{name: "sismember", arity: 3, run: sismember, flags: readsFast, keys: oneKey, since: "1.0.0", about: "Say whether a set has a member"},
		{name: "smismember", arity: -3, run: smismember, flags: readsFast, keys: oneKey, since: "6.2.0", about: "Say which of several members a set has"},
		{name: "scard", arity: 2, run: scard, flags: readsFast, keys: oneKey, since: "1.0.0", about: "Get the number of members of a set"},
		{name: "smembers", arity: 2, run: smembers, flags: reads, keys: oneKey, since: "1.0.0", about: "Get all members of a set"},
		{name: "spop", arity: -2, run: spop, flags: writesFast, keys: oneKey, since: "1.0.0", about: "Delete random members of a set and get them"},
		{name: "srandmember", arity: -2, run: srandmember, flags: reads | flagChooses, keys: oneKey, since: "1.0.0", about: "Get random members of a set"},
		{name: "sinter", arity: -2, run: setCommand(intersect), flags: reads, keys: allKeys, since: "1.0.0", about: "Get the members that all sets have"},
		{name: "sintercard", arity: -3, run: sinterCard, flags: reads | flagMovableKeys, keys: manyKeys, since: "7.0.0", about: "Count the members that all sets have"},
		{name: "sinterstore", arity: -3, run: setStoreCommand(intersect), flags: stores, keys: allKeys, since: "1.0.0", about: "Store the members that all sets have"},
		{name: "sunion", arity: -2, run: setCommand(unite), flags: reads, keys: allKeys, since: "1.0.0", about: "Get the members that any of the sets has"},
		{name: "sunionstore", arity: -3, run: setStoreCommand(unite), flags: stores, keys: allKeys, since: "1.0.0", about: "Store the members that any of the sets has"},
		{name: "sdiff", arity: -2, run: setCommand(subtract), flags: reads, keys: allKeys, since: "1.0.0", about: "Get the members of a set that others do not have"},
		{name: "sdiffstore", arity: -3, run: setStoreCommand(subtract), flags: stores, keys: allKeys, since: "1.0.0", about: "Store the members of a set that others do not have"},
		{name: "sscan", arity: -3, run: sscan, flags: reads, keys: oneKey, since: "2.8.0", about: "Go through the members of a set, step by step"},
	})
}

func pubsubCommands() []command {
	const (
		subscribes = flagPubSub | talks | flagListens
		publishes  = flagPubSub | anytime | flagFast
		asks       = flagPubSub | anytime
	)
	return of(groupPubSub, []command{
		{name: "subscribe", arity: -2, run: subscribeTo(channels), flags: subscribes, channels: allKeys, since: "2.0.0", about: "Receive the messages of channels"},
		{name: "unsubscribe", arity: -1, run: unsubscribeFrom(channels), flags: subscribes, since: "2.0.0", about: "Receive no more messages of channels, or of all"},
		{name: "psubscribe", arity: -2, run: subscribeTo(patterns), flags: subscribes, channels: allKeys, since: "2.0.0", about: "Receive the messages of channels that match patterns"},
		{name: "punsubscribe", arity: -1, run: unsubscribeFrom(patterns), flags: subscribes, since: "2.0.0", about: "Receive no more messages by patterns, or by all"},
		{name: "publish", arity: 3, run: publishTo(channels), flags: publishes, channels: oneKey, since: "2.0.0", about: "Send a message to a channel"},
		{name: "ssubscribe", arity: -2, run: subscribeTo(shardChannels), flags: subscribes, channels: allKeys, slots: allKeys, since: "7.0.0", about: "Receive the messages of shard channels"},
		{name: "sunsubscribe", arity: -1, run: unsubscribeFrom(shardChannels), flags: subscribes, slots: allKeys, since: "7.0.0", about: "Receive no more messages of shard channels, or of all"},
		{name: "spublish", arity: 3, run: publishTo(shardChannels), flags: publishes, channels: oneKey, slots: oneKey, since: "7.0.0", about: "Send a message to a shard channel"},
		{name: "pubsub", arity: -2, since: "2.8.0", about: "Commands about subscriptions"},
		{name: "pubsub|channels", arity: -2, run: pubsubNames(channels), flags: asks, since: "2.8.0", about: "List the channels that have subscribers"},
		{name: "pubsub|numpat", arity: 2, run: pubsubNumPat, flags: asks, since: "2.8.0", about: "Get the number of patterns that have subscribers"},
		{name: "pubsub|numsub", arity: -2, run: pubsubCounts(channels), flags: asks, since: "2.8.0", about: "Get the numbers of channels' subscribers"},
		{name: "pubsub|shardchannels", arity: -2, run: pubsubNames(shardChannels), flags: asks, since: "7.0.0", about: "List the shard channels that have subscribers"},
		{name: "pubsub|shardnumsub", arity: -2, run: pubsubCounts(shardChannels), flags: asks, since: "7.0.0", about: "Get the numbers of shard channels' subscribers"},
	})
}

func transactionCommands() []command {
	const opens = talks | flagFast | flagAllowBusy | flagAtOnce
	return of(groupTransactions, []command{
		{name: "multi", arity: 1, run: multi, flags: opens, since: "1.2.0", about: "Begin a transaction"},
		{name: "exec", arity: 1, run: carryOut, flags: talks | flagSkipSlowlog | flagAtOnce | flagSolo, since: "1.2.0", about: "Carry a transaction out"},
		{name: "discard", arity: 1, run: discard, flags: opens, since: "2.0.0", about: "Give a transaction up"},
		{name: "watch", arity: -2, run: watchKeys, flags: opens, keys: allKeys, since: "2.2.0", about: "Have the next transaction fail if one of these keys changes before"},
		{name: "unwatch", arity: 1, run: unwatch, flags: talks | flagFast | flagAllowBusy, since: "2.2.0", about: "Forget the keys of WATCH"},
	})
}

func connectionCommands() []command {
	const enters = talks | flagFast | flagNoAuth | flagAllowBusy
	return of(groupConnection, []command{
		{name: "ping", arity: -1, run: ping, flags: flagFast | flagListens, since: "1.0.0", about: "Get PONG, or the argument"},
		{name: "echo", arity: 2, run: echo, flags: anytime | flagFast, since: "1.0.0", about: "Get the argument"},
		{name: "quit", arity: -1, run: quit, flags: enters | flagAtOnce | flagListens, since: "1.0.0", about: "Close the connection"},
		{name: "reset", arity: 1, run: reset, flags: enters | flagAtOnce | flagListens, since: "6.2.0", about: "Make the connection as it was when it was new"},
		{name: "auth", arity: -2, run: auth, flags: enters, since: "1.0.0", about: "Authenticate with a password, or a name and a password"},
		{name: "hello", arity: -1, run: hello, flags: enters, since: "6.0.0", about: "Choose the protocol, authenticate, name the connection"},
		{name: "select", arity: 2, run: selectDB, flags: anytime | flagFast, since: "1.0.0", about: "Choose a database"},
		{name: "asking", arity: 1, run: noCluster, flags: flagFast, since: "3.0.0", about: "For clusters: refused"},
		{name: "readonly", arity: 1, run: noCluster, flags: anytime | flagFast, since: "3.0.0", about: "For clusters: refused"},
		{name: "readwrite", arity: 1, run: noCluster, flags: anytime | flagFast, since: "3.0.0", about: "For clusters: refused"},
		{name: "client", arity: -2, since: "2.4.0", about: "Commands about connections"},
		{name: "client|id", arity: 2, run: clientID, flags: talks, since: "5.0.0", about: "Get the number of this connection"},
		{name: "client|getname", arity: 2, run: clientGetName, flags: talks, since: "2.6.9", about: "Get the name of this connection"},
		{name: "client|setname", arity: 3, run: clientSetName, flags: talks, since: "2.6.9", about: "Name this connection"},
		{name: "client|setinfo", arity: 4, run: clientSetInfo, flags: talks, since: "7.2.0", about: "Say which library this is"},
		{name: "client|list", arity: -2, run: clientList, flags: governs, since: "2.4.0", about: "List the connections"},
		{name: "client|info", arity: 2, run: clientDescribe, flags: talks, since: "6.2.0", about: "Describe this connection"},
		{name: "client|kill", arity: -3, run: clientKill, flags: governs, since: "2.4.0", about: "Close connections"},
		{name: "client|unblock", arity: -3, run: clientUnblock, flags: governs, since: "5.0.0", about: "End the wait of a connection's blocking command"},
		{name: "client|reply", arity: 3, run: clientReply, flags: talks | flagAtOnce, since: "3.2.0", about: "Send no replies to this connection, or to one command, or send them again"},
		{name: "client|tracking", arity: -3, run: clientTracking, flags: talks, since: "6.0.0", about: "Be told when keys change that this connection has read, or keys with some prefixes"},
		{name: "client|caching", arity: 3, run: clientCaching, flags: talks, since: "6.0.0", about: "Say whether the keys of the next command are tracked"},
		{name: "client|getredir", arity: 2, run: clientGetRedir, flags: talks, since: "6.0.0", about: "Get the number of the connection that is told when tracked keys change"},
		{name: "client|trackinginfo", arity: 2, run: clientTrackingInfo, flags: talks, since: "6.2.0", about: "Describe what this connection tracks"},
		{name: "client|pause", arity: -3, run: clientPause, flags: governs, since: "3.0.0", about: "Have commands, or only those that write, wait for some milliseconds"},
		{name: "client|unpause", arity: 2, run: clientUnpause, flags: governs, since: "6.2.0", about: "Let commands run that CLIENT PAUSE has stopped"},
		{name: "client|no-evict", arity: 3, run: clientNoEvict, flags: governs, since: "7.0.0", about: "Accepted: no connection is evicted"},
		{name: "command", arity: -1, run: commandInfo, flags: anytime, since: "2.8.13", about: "Describe the commands"},
		{name: "command|count", arity: 2, run: commandCount, flags: anytime, since: "2.8.13", about: "Count the commands"},
		{name: "command|list", arity: -2, run: commandList, flags: anytime, since: "7.0.0", about: "List the names of the commands, or of those of a category or pattern"},
		{name: "command|info", arity: -2, run: commandInfo, flags: anytime, since: "2.8.13", about: "Describe some commands"},
		{name: "command|docs", arity: -2, run: commandDocs, flags: anytime, since: "7.0.0", about: "Say what some commands do"},
		{name: "command|getkeys", arity: -4, run: commandGetKeys, flags: anytime, since: "2.8.13", about: "Get the keys of a command"},
		{name: "command|getkeysandflags", arity: -4, run: commandGetKeys, flags: anytime, since: "7.0.0", about: "Get the keys of a command, and what it does with them"},
	})
}

func serverCommands() []command {
	return of(groupServer, []command{
		{name: "info", arity: -1, run: info, flags: anytime, also: CategoryDangerous, since: "1.0.0", about: "Describe the server"},
		{name: "time", arity: 1, run: timeCommand, flags: anytime | flagFast, since: "2.6.0", about: "Get the server's time"},
		{name: "dbsize", arity: 1, run: dbSize, flags: readsFast | flagSolo | flagWhole, also: CategoryKeyspace, since: "1.0.0", about: "Get the number of keys in the database"},
		{name: "flushall", arity: -1, run: flushAll, flags: writes | flagSolo | flagWhole, also: CategoryKeyspace | CategoryDangerous, since: "1.0.0", about: "Delete the keys of all databases"},
		{name: "flushdb", arity: -1, run: flushDB, flags: writes | flagSolo | flagWhole, also: CategoryKeyspace | CategoryDangerous, since: "1.0.0", about: "Delete the keys of the database"},
		{name: "save", arity: 1, run: save, flags: flagAdmin | flagNoScript | flagNoAsyncLoading | flagNoMulti | flagSolo, since: "1.0.0", about: "Make durable what was written"},
		{name: "bgsave", arity: -1, run: bgSave, flags: flagAdmin | flagNoScript | flagNoAsyncLoading, since: "1.0.0", about: "Make durable what was written, meanwhile"},
		{name: "lastsave", arity: 1, run: lastSave, flags: anytime | flagFast, also: CategoryAdmin | CategoryDangerous, since: "1.0.0", about: "Get the Unix time of the last save"},
		{name: "shutdown", arity: -1, run: shutdown, flags: governs | flagNoMulti | flagAllowBusy, since: "1.0.0", about: "End the server"},
		{name: "config", arity: -2, since: "2.0.0", about: "Commands about the server's configuration"},
		{name: "config|get", arity: -3, run: configGet, flags: governs, since: "2.0.0", about: "Get settings"},
		{name: "config|set", arity: -4, run: configSet, flags: governs, since: "2.0.0", about: "Change settings"},
		{name: "config|resetstat", arity: 2, run: configResetStat, flags: governs, since: "2.0.0", about: "Begin INFO's and LATENCY's counts anew"},
		{name: "config|rewrite", arity: 2, run: configRewrite, flags: governs, since: "2.8.0", about: "Write the configuration file, of which there is none"},
		{name: "memory", arity: -2, since: "4.0.0", about: "Commands about memory"},
		{name: "memory|usage", arity: -3, run: memoryUsage, flags: reads, keys: subKey, since: "4.0.0", about: "Get the bytes that a key takes in the log"},
		{name: "slowlog", arity: -2, since: "2.2.12", about: "Commands about the log of slow commands"},
		{name: "slowlog|get", arity: -2, run: slowlogGet, flags: flagAdmin | anytime, since: "2.2.12", about: "Get the newest entries"},
		{name: "slowlog|len", arity: 2, run: slowlogLen, flags: flagAdmin | anytime, since: "2.2.12", about: "Get the number of entries"},
		{name: "slowlog|reset", arity: 2, run: slowlogReset, flags: flagAdmin | anytime, since: "2.2.12", about: "Forget all entries"},
		{name: "latency", arity: -2, since: "2.8.13", about: "Commands about latencies"},
		{name: "latency|histogram", arity: -2, run: latencyHistogram, flags: governs, since: "7.0.0", about: "Get the distribution of commands' latencies"},
		{name: "latency|latest", arity: 2, run: latencyNone, flags: governs, since: "2.8.13", about: "List the latest spikes: there is no monitor of them"},
		{name: "latency|history", arity: 3, run: latencyNone, flags: governs, since: "2.8.13", about: "List the spikes of an event: there is no monitor of them"},
		{name: "latency|reset", arity: -2, run: latencyReset, flags: governs, since: "2.8.13", about: "Forget spikes, of which there are none"},
		{name: "module", arity: -2, since: "4.0.0", about: "Commands about modules"},
		{name: "module|list", arity: 2, run: moduleList, flags: flagAdmin | flagNoScript, since: "4.0.0", about: "List the modules, of which there are none"},
		{name: "role", arity: 1, run: role, flags: talks | flagFast, also: CategoryAdmin | CategoryDangerous, since: "2.8.12", about: "Get the role in replication: master, of no replicas"},
		{name: "acl", arity: -2, since: "6.0.0", about: "Commands about users"},
		{name: "acl|whoami", arity: 2, run: aclWhoami, flags: talks, since: "6.0.0", about: "Get the name of this connection's user"},
		{name: "acl|cat", arity: -2, run: aclCat, flags: talks, since: "6.0.0", about: "List the categories of commands, or the commands of one"},
		{name: "acl|users", arity: 2, run: aclUsers, flags: governs, since: "6.0.0", about: "List the names of the users"},
		{name: "acl|list", arity: 2, run: aclList, flags: governs, since: "6.0.0", about: "List the users with their rules"},
		{name: "acl|getuser", arity: 3, run: aclGetUser, flags: governs, since: "6.0.0", about: "Describe a user"},
		{name: "acl|setuser", arity: -3, run: aclSetUser, flags: governs, since: "6.0.0", about: "Apply rules to a user, who need not exist"},
		{name: "acl|deluser", arity: -3, run: aclDelUser, flags: governs, since: "6.0.0", about: "Delete users and disconnect their clients"},
		{name: "acl|load", arity: 2, run: aclLoad, flags: governs, since: "6.0.0", about: "Read the users from their file again"},
		{name: "acl|save", arity: 2, run: aclSave, flags: governs, since: "6.0.0", about: "Write the users to their file"},
		{name: "acl|genpass", arity: -2, run: aclGenPass, flags: talks, since: "6.0.0", about: "Make up a password of some bits"},
		{name: "acl|dryrun", arity: -4, run: aclDryRun, flags: governs, since: "7.0.0", about: "Say whether a user may run a command, without running it"},
		{name: "acl|log", arity: -2, run: aclLog, flags: governs, since: "6.0.0", about: "List the newest refusals, or forget them"},
	})
}

func clusterCommands() []command {
	return of(groupCluster, []command{
		{name: "cluster", arity: -2, since: "3.0.0", about: "Commands about the cluster: refused"},
		{name: "cluster|info", arity: 2, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|myid", arity: 2, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|nodes", arity: 2, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|slots", arity: 2, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|shards", arity: 2, run: noCluster, flags: flagStale, since: "7.0.0", about: "Refused"},
		{name: "cluster|links", arity: 2, run: noCluster, flags: flagStale, since: "7.0.0", about: "Refused"},
		{name: "cluster|keyslot", arity: 3, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|countkeysinslot", arity: 3, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
		{name: "cluster|getkeysinslot", arity: 4, run: noCluster, flags: flagStale, since: "3.0.0", about: "Refused"},
	})
}

// of sets the group of commands.
func of(group string, list []command) []command {
	for i := range list {
		list[i].group = group
	}
	return list
}
