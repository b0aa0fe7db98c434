package resp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands about durability, shutdown, configuration and memory.

// commit makes all earlier writes durable.
func (s *Server) commit() error {
	writes := s.writes()
	err := s.store.Commit(context.Background())
	s.unsaved.Store(err != nil)
	if err == nil {
		s.saved.Store(time.Now().Unix())
		s.saveCount.Add(1)
		s.savedWrites.Store(writes)
	}
	return err
}

// save implements SAVE: it replies when all earlier writes are durable. Other clients are
// served meanwhile.
func save(c *client, _ request) {
	c.flush()
	c.giveBack()
	if err := c.server.commit(); err != nil {
		c.fail(storeError(err))
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
			s.opts.Logger.Error("saving in the background", "err", err)
		}
	})
	c.out = appendSimple(c.out, "Background saving started")
}

// giveSpaceBack starts the commit that frees the disk space after FLUSHALL, if no reply waits
// for a commit.
func (s *Server) giveSpaceBack() {
	if s.opts.Durability != DurabilityNone || s.emptied.Add(1) > 1 {
		return
	}
	s.saves.Go(func() {
		for emptied := int64(1); ; {
			if err := s.commit(); err != nil {
				s.opts.Logger.Warn("committing after FLUSHALL, which frees disk space", "err", err)
			}
			if s.emptied.CompareAndSwap(emptied, 0) {
				return
			}
			emptied = s.emptied.Load() // there was another FLUSHALL meanwhile
		}
	})
}

func lastSave(c *client, _ request) { c.out = appendInt(c.reply(), c.server.saved.Load()) }

// shutdown implements SHUTDOWN. It calls Options.Shutdown, which ends the server as a signal
// would. The server always saves.
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
	c.server.opts.Logger.Info("a client shuts the server down", "client", c.id, "address", c.conn.RemoteAddr())
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

// usageOf returns the bytes that a record takes in the log and, including spare entries, in
// the index.
func usageOf(op *kv.Op) int64 {
	const head, lengths, expiry, entry = 8, 8, 8, 16
	n := head + lengths + (len(op.Key)+7)&^7 + (len(op.Value)+7)&^7 + entry
	if op.Expires != 0 {
		n += expiry
	}
	if t, content := typed(op.Value); t.isSpread() {
		return int64(n) + spreadUsage(content)
	}
	return int64(n)
}

// role replies as a master without replicas.
func role(c *client, _ request) {
	out := appendBulk(appendArray(c.reply(), 3), "master")
	c.out = appendArray(appendInt(out, 0), 0)
}

// waitForReplicas implements WAIT. There are no replicas, so it waits for its whole timeout, unless it asks
// for none, or is part of a transaction.
func waitForReplicas(c *client, r request) {
	n, ok := parseInt(r.arg(1))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	timeout, refusal := parseTimeout(r.arg(2))
	if refusal != "" {
		c.fail(refusal)
		return
	}
	if c.flush(); n > 0 && !c.executing {
		c.giveBack()
		if !c.dropping {
			c.write() // earlier replies
		}
		if c.quit { // they could not be given
			return
		}
		c.attend(func(ctx context.Context) {
			var ends <-chan time.Time // never, without a timeout
			if timeout > 0 {
				ends = time.After(timeout)
			}
			select {
			case <-ends:
			case <-ctx.Done():
			case <-c.server.done:
			}
		})
	}
	c.out = appendInt(c.reply(), 0)
}

// moduleList implements MODULE LIST.
func moduleList(c *client, _ request) { c.out = appendArray(c.reply(), 0) }

// noCluster refuses commands for clusters.
func noCluster(c *client, _ request) { c.fail(errNoCluster) }

// Setting is a setting of CONFIG GET and CONFIG SET. Its functions are called concurrently, by
// the goroutines of all connections.
type Setting struct {
	Name string // in lower case
	Get  func() string
	// Set changes the setting until the server ends. It is nil if the setting cannot be
	// changed while the server runs.
	Set func(value string) error

	check func(value string) error // the error of Set, without it; nil: not known before
	same  string                   // another name of the setting
}

// integer is a setting from least to most.
func integer(name string, least, most int64, get func() int64, set func(int64)) Setting {
	return Setting{
		Name: name, Get: func() string { return formatInt(get()) },
		Set:   func(v string) error { return setInt(v, least, most, set) },
		check: func(v string) error { return setInt(v, least, most, func(int64) {}) },
	}
}

// settings returns Options.Settings, and the server's own settings except those of the same
// names.
func (s *Server) settings() []Setting {
	constant := func(name, value string) Setting {
		return Setting{Name: name, Get: func() string { return value }}
	}
	busy := integer("busy-reply-threshold", 0, math.MaxInt32, s.scripts.busyAfter.Load, s.scripts.busyAfter.Store)
	limit := busy
	limit.Name, limit.same = "lua-time-limit", busy.Name // as it was called before
	own := []Setting{
		constant("save", ""),
		constant("appendonly", map[bool]string{false: "no", true: "yes"}[s.opts.Durability != DurabilityNone]),
		constant("appendfsync", map[Durability]string{DurabilityAlways: "always", DurabilityEverySecond: "everysec"}[s.opts.Durability]),
		constant("databases", fmt.Sprint(s.opts.Databases)),
		constant("maxclients", fmt.Sprint(s.opts.MaxClients)),
		constant("timeout", fmt.Sprint(int64(s.opts.IdleTimeout.Seconds()))),
		constant("proto-max-bulk-len", fmt.Sprint(s.opts.MaxBulk)),
		constant("hash-max-listpack-entries", fmt.Sprint(listPairs)),
		constant("hash-max-listpack-value", fmt.Sprint(listBytes)),
		constant("set-max-intset-entries", fmt.Sprint(setInts)),
		constant("set-max-listpack-entries", fmt.Sprint(listMembers)),
		constant("set-max-listpack-value", fmt.Sprint(listBytes)),
		constant("acl-pubsub-default", "resetchannels"),
		integer("acllog-max-len", 0, maxDenials, s.denials.most.Load, s.denials.resize),
		{Name: "notify-keyspace-events", Get: s.changes.classesText, Set: s.changes.setClasses},
		integer("tracking-table-max-keys", 0, math.MaxInt64, s.tracking.most.Load, s.tracking.setMost),
		{Name: "client-output-buffer-limit", Get: s.pubsub.limitsText, Set: s.pubsub.setLimits},
		busy, limit,
		integer("slowlog-log-slower-than", -1, math.MaxInt64, s.slow.slower.Load, s.slow.slower.Store),
		integer("slowlog-max-len", 0, maxSlowlog, s.slow.most.Load, s.slow.resize),
	}
	own = append(s.opts.Cache.settings(), own...)
	given := s.opts.Settings
	own = slices.DeleteFunc(own, func(o Setting) bool {
		return slices.ContainsFunc(given, func(g Setting) bool { return g.Name == o.Name })
	})
	return append(slices.Clone(given), own...)
}

func setInt(text string, least, most int64, set func(int64)) error {
	n, ok := parseInt([]byte(text))
	if !ok {
		return fmt.Errorf("argument couldn't be parsed into an integer")
	}
	if n < least || n > most {
		return fmt.Errorf("argument must be between %d and %d inclusive", least, most)
	}
	set(n)
	return nil
}

func configGet(c *client, r request) {
	var matching []Setting
	for _, s := range c.server.settings() {
		for i := 2; i < r.len(); i++ {
			asked := string(r.arg(i))
			if !glob.Match([]byte(strings.ToLower(asked)), []byte(s.Name)) {
				continue
			}
			if strings.EqualFold(asked, s.Name) {
				s.Name = asked // in the client's spelling, as in Redis: clients look it up by that
			}
			matching = append(matching, s)
			break
		}
	}
	out := appendMap(c.reply(), c.resp3, len(matching))
	for _, s := range matching {
		out = appendBulk(appendBulk(out, s.Name), s.Get())
	}
	c.out = out
}

// configSet implements CONFIG SET. If a setting cannot be changed, those before it are restored. Values
// that can be checked are, before the first change: a log that was cut is not restored.
func configSet(c *client, r request) {
	if r.len()%2 != 0 {
		c.fail(wrongArity("config|set"))
		return
	}
	byName := make(map[string]Setting)
	for _, s := range c.server.settings() {
		byName[s.Name] = s
	}
	asked := make(map[string]bool)
	for i := 2; i < r.len(); i += 2 {
		name := strings.ToLower(string(r.arg(i)))
		s, ok := byName[name]
		switch {
		case !ok:
			c.fail(fmt.Sprintf(errConfigSettings, text(r.arg(i), shown)))
			return
		case s.Set == nil:
			c.fail(fmt.Sprintf(errConfigFailed, name, "can't set immutable config"))
			return
		case asked[cmp.Or(s.same, name)]:
			c.fail(fmt.Sprintf(errConfigFailed, name, "duplicate parameter"))
			return
		}
		asked[cmp.Or(s.same, name)] = true
	}
	for i := 2; i < r.len(); i += 2 {
		s := byName[strings.ToLower(string(r.arg(i)))]
		if s.check == nil {
			continue
		}
		if err := s.check(string(r.arg(i + 1))); err != nil {
			c.fail(fmt.Sprintf(errConfigFailed, s.Name, err.Error()))
			return
		}
	}
	var undo []func() error
	for i := 2; i < r.len(); i += 2 {
		s := byName[strings.ToLower(string(r.arg(i)))]
		before := s.Get()
		if err := s.Set(string(r.arg(i + 1))); err != nil {
			for _, u := range slices.Backward(undo) {
				if err := u(); err != nil {
					c.server.opts.Logger.Error("restoring a setting", "err", err)
				}
			}
			c.fail(fmt.Sprintf(errConfigFailed, s.Name, err.Error()))
			return
		}
		undo = append(undo, func() error { return s.Set(before) })
	}
	c.out = appendSimple(c.reply(), "OK")
}

func configResetStat(c *client, _ request) {
	c.reply()
	c.server.stats.reset()
	c.out = appendSimple(c.out, "OK")
}

func configRewrite(c *client, _ request) {
	c.fail("ERR The server is running without a config file")
}
