package resp

// The commands of publish and subscribe. SUBSCRIBE and UNSUBSCRIBE reply once for each name.

// subscribeTo returns the implementation of SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE.
func subscribeTo(kind topicKind) func(*client, request) {
	return func(c *client, r request) {
		if kind == shardChannels && c.executing {
			c.fail(errShardInMulti)
			return
		}
		c.reply()
		for i := 1; i < r.len(); i++ {
			if err := c.subscribe(kind, r.arg(i)); err != nil {
				c.error("ERR " + err.Error())
				return
			}
			c.confirm(kind, topicWords[kind].subscribe, r.arg(i))
		}
	}
}

// unsubscribeFrom returns the implementation of UNSUBSCRIBE, PUNSUBSCRIBE and SUNSUBSCRIBE,
// which without arguments remove all subscriptions of their kind.
func unsubscribeFrom(kind topicKind) func(*client, request) {
	return func(c *client, r request) {
		c.reply()
		word := topicWords[kind].unsubscribe
		for i := 1; i < r.len(); i++ {
			c.unsubscribe(kind, string(r.arg(i)))
			c.confirm(kind, word, r.arg(i))
		}
		switch {
		case r.len() > 1:
		case c.sub == nil || len(c.sub.names[kind]) == 0:
			c.confirm(kind, word, nil)
		default:
			for name := range c.sub.names[kind] {
				c.unsubscribe(kind, name)
				c.confirm(kind, word, []byte(name))
			}
		}
	}
}

// confirm replies to a change of a subscription. A nil name stands for none.
func (c *client) confirm(kind topicKind, word string, name []byte) {
	count := 0
	switch {
	case c.sub == nil:
	case kind == shardChannels:
		count = len(c.sub.names[shardChannels])
	default:
		count = len(c.sub.names[channels]) + len(c.sub.names[patterns])
	}
	out := appendBulk(appendPush(c.out, c.resp3, 3), word)
	if name == nil {
		out = appendNull(out, c.resp3)
	} else {
		out = appendBulk(out, name)
	}
	c.out = appendInt(out, int64(count))
}

// publishTo returns the implementation of PUBLISH and SPUBLISH. A client that receives its own
// message receives it after the reply.
func publishTo(kind topicKind) func(*client, request) {
	return func(c *client, r request) {
		c.reply() // earlier commands have run
		n := c.server.pubsub.publish(kind, r.arg(1), r.arg(2), c.loop)
		c.out = appendInt(c.out, n)
		c.collect()
	}
}

// pubsubNames returns the implementation of PUBSUB CHANNELS and PUBSUB SHARDCHANNELS.
func pubsubNames(kind topicKind) func(*client, request) {
	return func(c *client, r request) {
		var pattern []byte
		switch r.len() {
		case 2:
		case 3:
			pattern = r.arg(2)
		default:
			c.fail(subcommandSyntax(r))
			return
		}
		c.out = appendStrings(c.reply(), c.server.pubsub.names(kind, pattern))
	}
}

// pubsubCounts returns the implementation of PUBSUB NUMSUB and PUBSUB SHARDNUMSUB.
func pubsubCounts(kind topicKind) func(*client, request) {
	return func(c *client, r request) {
		out := appendArray(c.reply(), 2*(r.len()-2))
		for i := 2; i < r.len(); i++ {
			out = appendInt(appendBulk(out, r.arg(i)), int64(c.server.pubsub.subscribed(kind, r.arg(i))))
		}
		c.out = out
	}
}

func pubsubNumPat(c *client, _ request) {
	c.out = appendInt(c.reply(), int64(c.server.pubsub.count(patterns)))
}
