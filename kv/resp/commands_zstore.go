package resp

import (
	"bytes"
	"math"
	"strings"
)

// ZUNION, ZINTER, ZDIFF, their forms that store the result, and ZINTERCARD.

// combination is what is made of several sorted sets.
type combination uint8

const (
	union combination = iota
	intersection
	difference
)

// aggregate says how the scores of a member are combined.
type aggregate uint8

const (
	aggregateSum aggregate = iota
	aggregateMin
	aggregateMax
)

// of returns the combined score. Redis counts a sum that is not a number as 0.
func (a aggregate) of(x, y float64) float64 {
	switch a {
	case aggregateMin:
		return min(x, y)
	case aggregateMax:
		return max(x, y)
	}
	return number(x + y)
}

// number returns f, or 0 if it is not a number.
func number(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// combining are the keys and options of a command.
type combining struct {
	what    combination
	keys    [][]byte  // records' keys
	weights []float64 // of the keys
	how     aggregate
	scores  bool // WITHSCORES
	limit   int64
}

// keysOf parses the number of keys at argument i, and the keys. end is the argument after them.
func (o *combining) keysOf(c *client, r request, i int) (end int, refusal string) {
	n, ok := parseInt(r.arg(i))
	switch {
	case !ok:
		return 0, errNotInteger
	case n < 1:
		return 0, "ERR at least 1 input key is needed for '" + lowerName(r) + "' command"
	case n > int64(r.len()-i-1):
		return 0, errSyntax
	}
	end = i + 1 + int(n)
	for i++; i < end; i++ {
		o.keys = append(o.keys, storedKey(c.db, r.arg(i)))
		o.weights = append(o.weights, 1)
	}
	return end, ""
}

// options parses the options from argument i on. plain is set if the result is not stored.
func (o *combining) options(r request, i int, plain bool) (refusal string) {
	for i < r.len() {
		left := r.len() - i
		switch option := r.arg(i); {
		case o.what != difference && left > len(o.keys) && is(option, "weights"):
			for j := range o.weights {
				i++
				var ok bool
				if o.weights[j], ok = parseScore(r.arg(i)); !ok {
					return errWeight
				}
			}
		case o.what != difference && left >= 2 && is(option, "aggregate"):
			i++
			switch how := strings.ToLower(text(r.arg(i), maxName)); how {
			case "sum":
				o.how = aggregateSum
			case "min":
				o.how = aggregateMin
			case "max":
				o.how = aggregateMax
			default:
				return errSyntax
			}
		case plain && is(option, "withscores"):
			o.scores = true
		default:
			return errSyntax
		}
		i++
	}
	return ""
}

// combine returns a command whose number of keys is argument at. If that is not the first argument,
// the first is the key for the result.
func combine(what combination, at int) func(*client, request) {
	return func(c *client, r request) {
		o := combining{what: what}
		end, refusal := o.keysOf(c, r, at)
		if refusal != "" {
			c.fail(refusal)
			return
		}
		plain := at == 1
		keys := o.keys
		var to []byte
		if !plain {
			to = storedKey(c.db, r.arg(1))
			keys = append([][]byte{to}, keys...)
		}
		c.withOpened(keys, !plain, func() (reply []byte, refusal string) {
			c.keepNodes()
			inputs, refusal := c.sortedInputs(o.keys)
			if refusal == "" { // an error of the options follows one about the keys
				refusal = o.options(r, end, plain)
			}
			if refusal != "" {
				return nil, refusal
			}
			entries := o.combine(inputs)
			if !plain {
				event := []string{union: "zunionstore", intersection: "zinterstore", difference: "zdiffstore"}[what]
				return c.storeSorted(to, entries, event), ""
			}
			var s packedSorted
			s.fill(entries)
			k := call{resp3: c.resp3, most: c.server.opts.MaxReplies}
			form := k.withScores(o.scores)
			k.arrayOf(len(s.entries), form)
			for _, e := range s.entries {
				if k.entry(e.score, e.member, form); k.full() {
					break
				}
			}
			return k.out, k.refused
		})
	}
}

// zinterCard implements ZINTERCARD.
func zinterCard(c *client, r request) {
	o := combining{what: intersection}
	end, refusal := o.keysOf(c, r, 1)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.withOpened(o.keys, false, func() (reply []byte, refusal string) {
		inputs, refusal := c.sortedInputs(o.keys)
		if refusal == "" {
			refusal = o.cardOptions(r, end)
		}
		if refusal != "" {
			return nil, refusal
		}
		n := int64(len(o.combine(inputs)))
		if o.limit > 0 {
			n = min(n, o.limit)
		}
		return appendInt(nil, n), ""
	})
}

// cardOptions parses the options of ZINTERCARD from argument i on.
func (o *combining) cardOptions(r request, i int) (refusal string) {
	for ; i < r.len(); i += 2 {
		if !is(r.arg(i), "limit") || i+1 == r.len() {
			return errSyntax
		}
		var ok bool
		if o.limit, ok = parseInt(r.arg(i + 1)); !ok || o.limit < 0 {
			return errLimit
		}
	}
	return ""
}

// sortedInputs returns the entries of the sorted sets, or sets, under open keys. A member of a set
// has the score 1.
func (c *client) sortedInputs(keys [][]byte) (inputs [][]entry, refusal string) {
	for _, key := range keys {
		col := c.worker.collections.of(key)
		var entries []entry
		switch {
		case !col.exists():
			c.noteMiss(key)
		case col.typ.family() == typeSorted:
			col.asSorted().each(0, false, func(score float64, member []byte) bool {
				entries = append(entries, entry{score, append([]byte{}, member...)})
				return true
			})
		case col.typ.family() == typeSet:
			col.elements().each(func(member, _ []byte) bool {
				entries = append(entries, entry{1, bytes.Clone(member)})
				return true
			})
		default:
			return nil, errWrongType
		}
		if fault := col.fault(); col.exists() && fault != "" {
			return nil, fault
		}
		inputs = append(inputs, entries)
	}
	return inputs, ""
}

// combine returns the entries of the result, in any order.
func (o *combining) combine(inputs [][]entry) (entries []entry) {
	at := make(map[string]int, len(inputs[0])) // index in entries
	count := make([]int, 0, len(inputs[0]))    // number of inputs that have the entry
	for i, input := range inputs {
		for _, e := range input {
			score := number(e.score * o.weights[i])
			n, exists := at[string(e.member)]
			switch {
			case exists:
				if o.what != difference {
					entries[n].score = o.how.of(entries[n].score, score)
				}
				count[n]++
			case i == 0 || o.what == union:
				at[string(e.member)] = len(entries)
				entries = append(entries, entry{score, e.member})
				count = append(count, 1)
			}
		}
	}
	if o.what == union {
		return entries
	}
	want := len(inputs)
	if o.what == difference {
		want = 1
	}
	kept := entries[:0]
	for i, e := range entries {
		if count[i] == want {
			kept = append(kept, e)
		}
	}
	return kept
}
