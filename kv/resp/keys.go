package resp

// The commands on keys, whatever their values.

// del looks for each key and removes it right behind: the same key a second time
// is not found any more, as operations on one key keep their order.
func del(c *client, r request) {
	for i := 1; i < r.len(); i++ {
		c.read(replyTally, r.arg(i))
		c.remove(replyPart, r.arg(i))
	}
	c.mark(replySum, 0)
}

func exists(c *client, r request) {
	for i := 1; i < r.len(); i++ {
		c.read(replyTally, r.arg(i))
	}
	c.mark(replySum, 0)
}

func typeOf(c *client, r request) { c.read(replyType, r.arg(1)) }
