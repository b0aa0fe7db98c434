package resp

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands on one sorted set. Those on ranges are in commands_zrange.go.

func sortedCommands() []command {
	const waitsFast = waits | flagFast
	return of(groupSorted, []command{
		{name: "zadd", arity: -4, run: zadd, flags: storesFast, keys: oneKey, since: "1.2.0", about: "Set the scores of members of a sorted set"},
		{name: "zincrby", arity: 4, run: zincrBy, flags: storesFast, keys: oneKey, since: "1.2.0", about: "Add to the score of a member"},
		{name: "zrem", arity: -3, run: changingSorted(zrem), flags: writesFast, keys: oneKey, since: "1.2.0", about: "Remove members of a sorted set"},
		{name: "zcard", arity: 2, run: readingSorted(zcard), flags: readsFast, keys: oneKey, since: "1.2.0", about: "Get the number of members of a sorted set"},
		{name: "zscore", arity: 3, run: readingSorted(zscore), flags: readsFast, keys: oneKey, since: "1.2.0", about: "Get the score of a member"},
		{name: "zmscore", arity: -3, run: readingSorted(zmscore), flags: readsFast, keys: oneKey, since: "6.2.0", about: "Get the scores of several members"},
		{name: "zrank", arity: -3, run: zrank(false), flags: readsFast, keys: oneKey, since: "2.0.0", about: "Get the number of members before a member"},
		{name: "zrevrank", arity: -3, run: zrank(true), flags: readsFast, keys: oneKey, since: "2.0.0", about: "Get the number of members behind a member"},
		{name: "zcount", arity: 4, run: zcount, flags: readsFast, keys: oneKey, since: "2.0.0", about: "Count the members with scores of a range"},
		{name: "zlexcount", arity: 4, run: zlexCount, flags: readsFast, keys: oneKey, since: "2.8.9", about: "Count the members of a range, if all have the same score"},
		{name: "zrange", arity: -4, run: zrange(rangeOptions{}), flags: reads, keys: oneKey, since: "1.2.0", about: "Get a range of a sorted set by index, score or member"},
		{name: "zrevrange", arity: -4, run: zrange(rangeOptions{fixed: true, reverse: true}), flags: reads, keys: oneKey, since: "1.2.0", about: "Get a range of a sorted set by index, in reverse"},
		{name: "zrangebyscore", arity: -4, run: zrange(rangeOptions{fixed: true, by: byScore}), flags: reads, keys: oneKey, since: "1.0.5", about: "Get a range of a sorted set by score"},
		{name: "zrevrangebyscore", arity: -4, run: zrange(rangeOptions{fixed: true, by: byScore, reverse: true}), flags: reads, keys: oneKey, since: "2.2.0", about: "Get a range of a sorted set by score, in reverse"},
		{name: "zrangebylex", arity: -4, run: zrange(rangeOptions{fixed: true, by: byMember}), flags: reads, keys: oneKey, since: "2.8.9", about: "Get a range of a sorted set by member"},
		{name: "zrevrangebylex", arity: -4, run: zrange(rangeOptions{fixed: true, by: byMember, reverse: true}), flags: reads, keys: oneKey, since: "2.8.9", about: "Get a range of a sorted set by member, in reverse"},
		{name: "zrangestore", arity: -5, run: zrangeStore, flags: stores, keys: twoKeys, since: "6.2.0", about: "Store a range of a sorted set"},
		{name: "zremrangebyrank", arity: 4, run: zremRange(byIndex), flags: writes, keys: oneKey, since: "2.0.0", about: "Remove a range of a sorted set by index"},
		{name: "zremrangebyscore", arity: 4, run: zremRange(byScore), flags: writes, keys: oneKey, since: "1.2.0", about: "Remove a range of a sorted set by score"},
		{name: "zremrangebylex", arity: 4, run: zremRange(byMember), flags: writes, keys: oneKey, since: "2.8.9", about: "Remove a range of a sorted set by member"},
		{name: "zpopmin", arity: -2, run: zpop(true), flags: writesFast, keys: oneKey, since: "5.0.0", about: "Take the members with the lowest scores"},
		{name: "zpopmax", arity: -2, run: zpop(false), flags: writesFast, keys: oneKey, since: "5.0.0", about: "Take the members with the highest scores"},
		{name: "zmpop", arity: -4, run: zmpop, flags: writes | flagMovableKeys, keys: manyKeys, since: "7.0.0", about: "Take members of the first of several sorted sets that has any"},
		{name: "bzpopmin", arity: -3, run: blockingPop(popping{sorted: true, front: true, form: popPair}), flags: waitsFast, keys: firstKeys, since: "5.0.0", about: "Take the member with the lowest score, or wait for one"},
		{name: "bzpopmax", arity: -3, run: blockingPop(popping{sorted: true, form: popPair}), flags: waitsFast, keys: firstKeys, since: "5.0.0", about: "Take the member with the highest score, or wait for one"},
		{name: "bzmpop", arity: -5, run: bzmpop, flags: waits&^flagNoScript | flagMovableKeys, keys: lateKeys, since: "7.0.0", about: "Take members of the first of several sorted sets that has any, or wait for one"},
		{name: "zrandmember", arity: -2, run: zrandMember, flags: reads | flagChooses, keys: oneKey, since: "6.2.0", about: "Get random members of a sorted set"},
		{name: "zscan", arity: -3, run: zscan, flags: reads, keys: oneKey, since: "2.8.0", about: "Go through the members of a sorted set, step by step"},
		{name: "zunion", arity: -3, run: combine(union, 1), flags: reads | flagMovableKeys, keys: manyKeys, since: "6.2.0", about: "Get the union of sorted sets"},
		{name: "zinter", arity: -3, run: combine(intersection, 1), flags: reads | flagMovableKeys, keys: manyKeys, since: "6.2.0", about: "Get the intersection of sorted sets"},
		{name: "zdiff", arity: -3, run: combine(difference, 1), flags: reads | flagMovableKeys, keys: manyKeys, since: "6.2.0", about: "Get the members of a sorted set that others do not have"},
		{name: "zunionstore", arity: -4, run: combine(union, 2), flags: stores | flagMovableKeys, keys: toManyKeys, since: "2.0.0", about: "Store the union of sorted sets"},
		{name: "zinterstore", arity: -4, run: combine(intersection, 2), flags: stores | flagMovableKeys, keys: toManyKeys, since: "2.0.0", about: "Store the intersection of sorted sets"},
		{name: "zdiffstore", arity: -4, run: combine(difference, 2), flags: stores | flagMovableKeys, keys: toManyKeys, since: "6.2.0", about: "Store the members of a sorted set that others do not have"},
		{name: "zintercard", arity: -3, run: zinterCard, flags: reads | flagMovableKeys, keys: manyKeys, since: "7.0.0", about: "Count the members of the intersection of sorted sets"},
	})
}

// readingSorted returns a command that reads one sorted set.
func readingSorted(f sortedCall) func(*client, request) {
	return func(c *client, r request) { c.readSorted(r, f) }
}

// changingSorted returns a command that changes one sorted set.
func changingSorted(f sortedCall) func(*client, request) {
	return func(c *client, r request) { c.modifySorted(r, f) }
}

// double appends a number, which is a string in RESP2.
func (k *call) double(f float64) { k.out = appendDouble(k.out, k.resp3, f) }

// adding are the options of ZADD.
type adding struct {
	nx, xx, gt, lt, changed, increment bool
}

// option sets an option and reports whether there is such an option.
func (o *adding) option(arg []byte) bool {
	for _, known := range []struct {
		name string
		flag *bool
	}{{"nx", &o.nx}, {"xx", &o.xx}, {"gt", &o.gt}, {"lt", &o.lt}, {"ch", &o.changed}, {"incr", &o.increment}} {
		if is(arg, known.name) {
			*known.flag = true
			return true
		}
	}
	return false
}

// refusal returns the error of ZADD with pairs of scores and members.
func (o *adding) refusal(pairs [][]byte) string {
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		return errSyntax
	case o.nx && o.xx:
		return "ERR XX and NX options at the same time are not compatible"
	case o.gt && o.nx, o.lt && o.nx, o.gt && o.lt:
		return "ERR GT, LT, and/or NX options at the same time are not compatible"
	case o.increment && len(pairs) > 2:
		return "ERR INCR option supports a single increment-element pair"
	}
	for i := 0; i < len(pairs); i += 2 {
		if _, ok := parseScore(pairs[i]); !ok {
			return errNotFloat
		}
	}
	return ""
}

func zadd(c *client, r request) {
	var o adding
	first := 2
	for first < r.len() && o.option(r.arg(first)) {
		first++
	}
	c.zadd(r, o, first)
}

func zincrBy(c *client, r request) { c.zadd(r, adding{increment: true}, 2) }

// zadd runs ZADD, whose pairs begin at an argument.
func (c *client) zadd(r request, o adding, first int) {
	var buf [8][]byte
	pairs := buf[:0]
	for i := first; i < r.len(); i++ {
		pairs = append(pairs, r.arg(i))
	}
	if refusal := o.refusal(pairs); refusal != "" {
		c.fail(refusal)
		return
	}
	if o == (adding{}) {
		c.modifySorted(r, addPlainly)
		return
	}
	m := c.modifyCall(r, typeSorted, changeSorted)
	if o.increment {
		m.event = "zincr"
	}
	m.calls.onSorted = func(k *call, s sortedSet) { o.add(k, s, k.args[first-2:]) }
}

func addPlainly(k *call, s sortedSet) { (&adding{}).add(k, s, k.args) }

func (o *adding) add(k *call, s sortedSet, pairs [][]byte) {
	added, updated, done, last := 0, 0, false, 0.0
	for i := 0; i < len(pairs); i += 2 {
		score, _ := parseScore(pairs[i])
		old, exists := s.score(pairs[i+1])
		if exists && o.increment {
			score += old
		}
		if exists && o.nx || !exists && o.xx {
			continue
		}
		if math.IsNaN(score) {
			k.refuse(errNotANumber)
			return
		}
		if exists && (o.gt && score <= old || o.lt && score >= old) {
			continue
		}
		done, last = true, score
		switch {
		case !exists:
			added++
		case score != old:
			updated++
		default:
			continue
		}
		s.put(pairs[i+1], score)
	}
	switch {
	case o.increment && done:
		k.double(last)
	case o.increment:
		k.null()
	case o.changed:
		k.int(added + updated)
	default:
		k.int(added)
	}
}

func zrem(k *call, s sortedSet) {
	n := 0
	for _, member := range k.args {
		if s.remove(member) {
			n++
		}
	}
	k.int(n)
}

func zcard(k *call, s sortedSet) { k.int(s.count()) }

func zscore(k *call, s sortedSet) { k.scoreOf(s, k.args[0]) }

func zmscore(k *call, s sortedSet) {
	k.array(len(k.args))
	for members := range slices.Chunk(k.args, chunk) {
		if spread, ok := s.(*spreadSorted); ok {
			spread.members.fetchOf(members)
		}
		if s.fault() != "" { // which is the reply
			return
		}
		for _, member := range members {
			k.scoreOf(s, member)
		}
	}
}

// scoreOf appends the score of a member, or null.
func (k *call) scoreOf(s sortedSet, member []byte) {
	if score, ok := s.score(member); ok {
		k.double(score)
	} else {
		k.null()
	}
}

// zrank returns ZRANK or ZREVRANK.
func zrank(reverse bool) func(*client, request) {
	return func(c *client, r request) {
		withScore := r.len() == 4
		switch {
		case r.len() > 4:
			c.fail(wrongArity(lowerName(r)))
			return
		case withScore && !is(r.arg(3), "withscore"):
			c.fail(errSyntax)
			return
		}
		c.readSorted(r, func(k *call, s sortedSet) {
			rank, score, ok := rankOf(s, k.args[0])
			if reverse {
				rank = s.count() - 1 - rank
			}
			switch {
			case !ok && withScore:
				k.nullArray()
			case !ok:
				k.null()
			case withScore:
				k.array(2)
				k.int(rank)
				k.double(score)
			default:
				k.int(rank)
			}
		})
	}
}

// pairForm is the form of members with their scores in a reply.
type pairForm uint8

const (
	noScores    pairForm = iota
	flatPairs            // the member, then its score
	nestedPairs          // an array of both
)

// withScores returns the usual form of a reply with scores, or without.
func (k *call) withScores(scores bool) pairForm {
	switch {
	case !scores:
		return noScores
	case k.resp3:
		return nestedPairs
	}
	return flatPairs
}

// arrayOf appends the head of an array of n entries.
func (k *call) arrayOf(n int, form pairForm) {
	if form == flatPairs {
		n *= 2
	}
	k.array(n)
}

func (k *call) entry(score float64, member []byte, form pairForm) {
	if form == nestedPairs {
		k.array(2)
	}
	if k.bulk(member); form != noScores {
		k.double(score)
	}
}

// zpop returns ZPOPMIN or ZPOPMAX.
func zpop(least bool) func(*client, request) {
	one := func(k *call, s sortedSet) {
		n := min(1, s.count())
		k.arrayOf(n, flatPairs)
		popEntries(k, s, least, int64(n), flatPairs)
	}
	several := func(k *call, s sortedSet) {
		n, _ := parseInt(k.args[0])
		n = min(n, int64(s.count()))
		form := k.withScores(true)
		k.arrayOf(int(n), form)
		popEntries(k, s, least, n, form)
	}
	return func(c *client, r request) {
		switch {
		case r.len() == 2:
			c.modifySorted(r, one)
		case r.len() > 3:
			c.fail(errSyntax)
		case !isCount(r.arg(2)):
			c.fail(errNotPositive)
		default:
			c.modifySorted(r, several)
		}
	}
}

// popEntries removes up to n entries and appends them.
func popEntries(k *call, s sortedSet, least bool, n int64, form pairForm) {
	count := s.count()
	taken := int(min(n, int64(count)))
	if taken == 0 {
		return
	}
	from, left := 0, taken
	if !least {
		from = count - 1
	}
	s.each(from, !least, func(score float64, member []byte) bool {
		k.entry(score, member, form)
		left--
		return left > 0 && !k.full()
	})
	if k.refused != "" {
		return
	}
	if least {
		s.cut(0, taken)
	} else {
		s.cut(count-taken, count)
	}
}

// zrandMember implements ZRANDMEMBER.
func zrandMember(c *client, r request) {
	if r.len() == 2 {
		c.readSorted(r, func(k *call, s sortedSet) {
			if s.count() == 0 {
				k.null()
				return
			}
			k.entryAt(s, rand.IntN(s.count()), noScores)
		})
		return
	}
	n, ok := parseInt(r.arg(2))
	withScores := r.len() == 4 && is(r.arg(3), "withscores")
	switch {
	case !ok:
		c.fail(errNotInteger)
		return
	case n == math.MinInt64:
		c.fail(errNotLong)
		return
	case r.len() > 3 && !withScores:
		c.fail(errSyntax)
		return
	case withScores && (n > math.MaxInt64/2 || n < -math.MaxInt64/2):
		c.fail(errOutOfRange)
		return
	}
	c.readSorted(r, func(k *call, s sortedSet) { someEntries(k, s, n, k.withScores(withScores)) })
}

// entryAt appends the i-th entry.
func (k *call) entryAt(s sortedSet, i int, form pairForm) {
	s.each(i, false, func(score float64, member []byte) bool {
		k.entry(score, member, form)
		return false
	})
}

// someEntries appends n random entries, all different; or if n is negative, -n random ones.
func someEntries(k *call, s sortedSet, n int64, form pairForm) {
	count := s.count()
	switch {
	case count == 0:
		k.array(0)
	case n < 0:
		if -n > k.most {
			k.refuse(errMemory)
			return
		}
		k.arrayOf(int(-n), form)
		for ; n < 0 && !k.full() && s.fault() == ""; n++ {
			k.entryAt(s, rand.IntN(count), form)
		}
	default:
		n = min(n, int64(count))
		if k.arrayOf(int(n), form); n < int64(count/fewOfMany) {
			for i := range differentIndexes(int(n), count) {
				if k.entryAt(s, i, form); k.full() || s.fault() != "" {
					break
				}
			}
			return
		}
		if n == 0 {
			return
		}
		// Each entry is taken with the probability that gives n of all.
		left := count
		s.each(0, false, func(score float64, member []byte) bool {
			if int64(rand.IntN(left)) < n {
				k.entry(score, member, form)
				n--
			}
			left--
			return n > 0 && !k.full()
		})
	}
}

// fewOfMany is how many times more entries than wanted there are for these to be chosen one by one.
const fewOfMany = 16

// differentIndexes returns n different random indexes below most, which is much larger.
func differentIndexes(n, most int) map[int]struct{} {
	indexes := make(map[int]struct{}, n)
	for len(indexes) < n {
		indexes[rand.IntN(most)] = struct{}{}
	}
	return indexes
}

// zscan returns all matching members of a small set in one step.
func zscan(c *client, r request) {
	cursor, o, refusal := elementScanOf(r)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	match := bytes.Clone(o.match)
	c.readSorted(r, func(k *call, s sortedSet) {
		var found, score []byte
		n, next := 0, uint64(0)
		if s.count() > 0 {
			next = s.scan(cursor, o.count, func(of float64, member []byte) {
				if int64(len(found)) <= k.most && (match == nil || glob.Match(match, member)) {
					n += 2
					score = appendScore(score[:0], of)
					found = appendBulk(appendBulk(found, member), score)
				}
			})
		}
		if int64(len(found)) > k.most {
			k.refuse(errMemory)
			return
		}
		k.array(2)
		k.bulk(strconv.AppendUint(nil, next, 10))
		k.array(n)
		k.out = append(k.out, found...)
	})
}
