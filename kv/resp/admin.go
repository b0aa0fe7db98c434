package resp

import (
	"context"
	"time"

	"github.com/redykv/redykv/kv"
)

// The commands about durability and the server's end, and MEMORY USAGE.

// commit makes everything durable that was written.
func (s *Server) commit() error {
	err := s.store.Commit(context.Background())
	s.unsaved.Store(err != nil)
	if err == nil {
		s.saved.Store(time.Now().Unix())
	}
	return err
}

// save is SAVE: it returns when everything is durable. Others go on meanwhile.
func save(c *client, _ request) {
	c.flush()
	c.giveBack()
	if err := c.server.commit(); err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.out = appendSimple(c.reply(), "OK")
}

func bgSave(c *client, r request) {
	s := c.server
	switch {
	case r.len() > 2 || r.len() == 2 && !is(r.arg(1), "schedule"):
		c.fail(errSyntax)
		return
	case !s.saving.CompareAndSwap(false, true):
		c.fail("ERR Background save already in progress")
		return
	}
	c.flush()
	s.saves.Go(func() {
		defer s.saving.Store(false)
		if err := s.commit(); err != nil {
			s.opts.Logger.Error("a save in the background failed", "err", err)
		}
	})
	c.out = appendSimple(c.out, "Background saving started")
}

// giveSpaceBack sees to the commit that takes the disk space of a FLUSHALL, where no reply
// waits for one.
func (s *Server) giveSpaceBack() {
	if s.opts.Durability != DurabilityNone || s.emptied.Add(1) > 1 {
		return
	}
	s.saves.Go(func() {
		for emptied := int64(1); ; {
			if err := s.commit(); err != nil {
				s.opts.Logger.Warn("FLUSHALL has not given space back yet", "err", err)
			}
			if s.emptied.CompareAndSwap(emptied, 0) {
				return
			}
			emptied = s.emptied.Load() // there was another one meanwhile
		}
	})
}

func lastSave(c *client, _ request) { c.out = appendInt(c.reply(), c.server.saved.Load()) }

// shutdown asks the program to end the server, which it does as for a signal: it
// always saves.
func shutdown(c *client, r request) {
	asked := make(map[string]bool)
	for i := 1; i < r.len(); i++ {
		var buf [maxName]byte
		switch option := string(lower(&buf, r.arg(i))); option {
		case "save", "nosave", "now", "force", "abort":
			asked[option] = true
		default:
			c.fail(errSyntax)
			return
		}
	}
	switch {
	case asked["abort"] && len(asked) > 1, asked["save"] && asked["nosave"]:
		c.fail(errSyntax)
		return
	case asked["abort"]:
		c.fail("ERR No shutdown in progress.")
		return
	}
	if c.server.opts.Shutdown == nil {
		c.fail("ERR Errors trying to SHUTDOWN. Check logs.")
		return
	}
	c.flush()
	c.server.opts.Logger.Info("a client asks the server to end", "client", c.id, "address", c.conn.RemoteAddr())
	c.quit = true
	c.server.opts.Shutdown()
}

func memoryUsage(c *client, r request) {
	if r.len() != 3 && (r.len() != 5 || !is(r.arg(3), "samples")) {
		c.fail(errSyntax)
		return
	}
	if r.len() == 5 {
		if n, ok := parseInt(r.arg(4)); !ok {
			c.fail(errNotInteger)
			return
		} else if n < 0 {
			c.fail(errSyntax)
			return
		}
	}
	c.read(replyUsage, r.arg(2))
}

// usageOf is how many bytes of the log a record takes, and of the index with the
// room that it leaves.
func usageOf(op *kv.Op) int64 {
	const head, lengths, expiry, entry = 8, 8, 8, 16
	n := head + lengths + (len(op.Key)+7)&^7 + (len(op.Value)+7)&^7 + entry
	if op.Expires != 0 {
		n += expiry
	}
	return int64(n)
}
