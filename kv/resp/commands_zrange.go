package resp

import (
	"context"

	"github.com/redykv/redykv/kv"
)

// Commands on ranges of one sorted set: ZRANGE in all its forms, ZCOUNT, ZREMRANGEBY….

// rangeKind says what the ends of a range are.
type rangeKind uint8

const (
	byIndex rangeKind = iota
	byScore
	byMember
)

// rangeOptions are the options of ZRANGE, or of an older command in its place.
type rangeOptions struct {
	fixed   bool // an older command: options must not say which range it is
	by      rangeKind
	reverse bool
	scores  bool
	limited bool
	offset  int64
	limit   int64 // negative: none
	ends    sortedRange
}

// sortedRange is a range of a sorted set.
type sortedRange struct {
	by       rangeKind
	reverse  bool  // the positions of a range by index are counted from the end
	from, to int64 // of a range by index
	low, top bound // of other ranges
}

// in returns the positions of the range in a set.
func (r *sortedRange) in(s sortedSet) (from, to int) {
	n := s.count()
	if r.by == byIndex {
		from, to = spanOf(r.from, r.to, n)
		if r.reverse {
			from, to = n-to, n-from
		}
		return from, to
	}
	from = s.before(r.low)
	return from, max(from, s.before(r.top))
}

// parse parses the ends of the range.
func (r *sortedRange) parse(from, to []byte) (refusal string) {
	if r.by == byIndex {
		var okFrom, okTo bool
		r.from, okFrom = parseInt(from)
		r.to, okTo = parseInt(to)
		if !okFrom || !okTo {
			return errNotInteger
		}
		return ""
	}
	if r.reverse {
		from, to = to, from
	}
	parse, refusal := scoreBound, errScoreRange
	if r.by == byMember {
		parse, refusal = memberBound, errLexRange
	}
	var okLow, okTop bool
	r.low, okLow = parse(from, false)
	r.top, okTop = parse(to, true)
	if !okLow || !okTop {
		return refusal
	}
	return ""
}

// scoreBound parses one end of a range of scores: the upper end, or else the lower one.
func scoreBound(arg []byte, upper bool) (b bound, ok bool) {
	exclusive := len(arg) > 0 && arg[0] == '('
	if exclusive {
		arg = arg[1:]
	}
	b = bound{kind: boundScore, after: upper != exclusive}
	b.score, ok = parseBound(arg)
	return b, ok
}

// memberBound parses one end of a range of members.
func memberBound(arg []byte, upper bool) (b bound, ok bool) {
	b.kind = boundMember
	switch {
	case len(arg) == 1 && arg[0] == '-':
		b.infinite = -1
	case len(arg) == 1 && arg[0] == '+':
		b.infinite = 1
	case len(arg) > 0 && (arg[0] == '(' || arg[0] == '['):
		b.member, b.after = arg[1:], upper != (arg[0] == '(')
	default:
		return b, false
	}
	return b, true
}

// parse parses a range from argument i on, and the options behind it. stores is set for
// ZRANGESTORE.
func (o *rangeOptions) parse(r request, i int, stores bool) (refusal string) {
	o.limit = -1
	for j := i + 2; j < r.len(); j++ {
		switch option := r.arg(j); {
		case !stores && is(option, "withscores"):
			o.scores = true
		case is(option, "limit") && j+2 < r.len():
			var ok, okLimit bool
			o.offset, ok = parseInt(r.arg(j + 1))
			if o.limit, okLimit = parseInt(r.arg(j + 2)); !ok || !okLimit {
				return errNotInteger
			}
			o.limited = true
			j += 2
		case !o.fixed && !o.reverse && is(option, "rev"):
			o.reverse = true
		case !o.fixed && o.by == byIndex && is(option, "bylex"):
			o.by = byMember
		case !o.fixed && o.by == byIndex && is(option, "byscore"):
			o.by = byScore
		default:
			return errSyntax
		}
	}
	switch {
	case o.limit != -1 && o.by == byIndex:
		return "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	case o.scores && o.by == byMember:
		return "ERR syntax error, WITHSCORES not supported in combination with BYLEX"
	}
	o.ends.by, o.ends.reverse = o.by, o.reverse
	return o.ends.parse(r.arg(i), r.arg(i+1))
}

// in returns the positions of the range in a set, within the limit.
func (o *rangeOptions) in(s sortedSet) (from, to int) {
	from, to = o.ends.in(s)
	n := int64(to - from)
	if !o.limited || o.by == byIndex || n == 0 { // Redis ignores the offset of a range by index
		return from, to
	}
	offset, limit := o.offset, o.limit
	if offset < 0 || offset > n {
		offset = n
	}
	if limit < 0 || limit > n-offset {
		limit = n - offset
	}
	if o.reverse {
		return to - int(offset+limit), to - int(offset)
	}
	return from + int(offset), from + int(offset+limit)
}

// each visits the entries from one position up to another in the order of the command, until visit
// returns false.
func (o *rangeOptions) each(s sortedSet, from, to int, visit func(score float64, member []byte) bool) {
	left, first := to-from, from
	if left == 0 {
		return
	}
	if o.reverse {
		first = to - 1
	}
	s.each(first, o.reverse, func(score float64, member []byte) bool {
		left--
		return visit(score, member) && left > 0
	})
}

// zrange returns ZRANGE or an older command.
func zrange(command rangeOptions) func(*client, request) {
	return func(c *client, r request) {
		o := command
		if refusal := o.parse(r, 2, false); refusal != "" {
			c.fail(refusal)
			return
		}
		c.readSorted(r, func(k *call, s sortedSet) {
			form := k.withScores(o.scores)
			from, to := o.in(s)
			k.arrayOf(to-from, form)
			o.each(s, from, to, func(score float64, member []byte) bool {
				k.entry(score, member, form)
				return !k.full()
			})
		})
	}
}

func zrangeStore(c *client, r request) {
	var o rangeOptions
	if refusal := o.parse(r, 3, true); refusal != "" {
		c.fail(refusal)
		return
	}
	to, from := storedKey(c.db, r.arg(1)), storedKey(c.db, r.arg(2))
	c.withOpened([][]byte{to, from}, true, func() (reply []byte, refusal string) {
		c.keepNodes()
		entries, refusal := c.entriesIn(from, &o)
		if refusal != "" {
			return nil, refusal
		}
		return c.storeSorted(to, entries, "zrangestore"), ""
	})
}

// entriesIn returns the entries of a range of the sorted set under an open key.
func (c *client) entriesIn(key []byte, o *rangeOptions) (entries []entry, refusal string) {
	col := c.worker.collections.of(key)
	switch {
	case !col.exists():
		c.noteMiss(key)
		return nil, ""
	case col.typ.family() != typeSorted:
		return nil, errWrongType
	}
	s := col.asSorted()
	first, end := o.in(s)
	o.each(s, first, end, func(score float64, member []byte) bool {
		entries = append(entries, entry{score, append([]byte{}, member...)})
		return true
	})
	return entries, col.fault()
}

// storeSorted sets an open key to a sorted set, or deletes it if the set is empty, and returns the
// reply with the number of entries.
func (c *client) storeSorted(key []byte, entries []entry, event string) (reply []byte) {
	col := c.worker.collections.of(key)
	col.reset(typeSorted)
	col.sorted.fill(entries)
	col.changed = true
	c.noteStored(col, classSortedSet, event)
	return appendInt(nil, int64(len(entries)))
}

func zcount(c *client, r request) { c.countRange(r, byScore) }

func zlexCount(c *client, r request) { c.countRange(r, byMember) }

func (c *client) countRange(r request, by rangeKind) {
	ends := sortedRange{by: by}
	if refusal := ends.parse(r.arg(2), r.arg(3)); refusal != "" {
		c.fail(refusal)
		return
	}
	c.readSorted(r, func(k *call, s sortedSet) {
		from, to := ends.in(s)
		k.int(to - from)
	})
}

// zremRange returns ZREMRANGEBYRANK, ZREMRANGEBYSCORE or ZREMRANGEBYLEX.
func zremRange(by rangeKind) func(*client, request) {
	return func(c *client, r request) {
		ends := sortedRange{by: by}
		if refusal := ends.parse(r.arg(2), r.arg(3)); refusal != "" {
			c.fail(refusal)
			return
		}
		c.modifySorted(r, func(k *call, s sortedSet) {
			from, to := ends.in(s)
			s.cut(from, to)
			k.int(to - from)
		})
	}
}

// manyRemoved is the number of entries that a loop does not remove at once, and fewDigits that of digits of a
// smaller number.
const (
	manyRemoved = 1 << 13
	fewDigits   = 3
)

// removesMany reports whether a command may remove very many entries of a sorted set, as there are so many.
func (c *client) removesMany(cmd *command, r request) bool {
	if !c.server.pool.manySorted.Load() {
		return false
	}
	switch cmd.name {
	case "zpopmin", "zpopmax":
		if r.len() < 3 || len(r.arg(2)) <= fewDigits {
			return false
		}
	case "zremrangebyrank", "zremrangebyscore", "zremrangebylex":
	default:
		return false
	}
	w := c.borrow()
	op := []kv.Op{{Kind: kv.OpRead, Key: storedKey(c.db, r.arg(1)), Value: w.peeked[:0]}}
	if w.session.Do(context.Background(), op) != nil {
		return false // the command will tell
	}
	if w.peeked = op[0].Value[:0]; cap(w.peeked) > keptNode {
		w.peeked = nil
	}
	t, h, ok := headerIn(op[0].Value)
	return ok && t == typeSpreadSorted && h.count >= manyRemoved
}
