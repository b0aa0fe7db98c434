package resp

import (
	"math"
	"slices"
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

// of returns the combined score. Redis counts a sum that is not a number as 0, and keeps x if y is equal or
// not a number.
func (a aggregate) of(x, y float64) float64 {
	switch {
	case a == aggregateSum:
		return number(x + y)
	case a == aggregateMin && y < x, a == aggregateMax && y > x:
		return y
	}
	return x
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
	lookups map[*collection]*lookup // of the inputs
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
			sets, refusal := c.sortedInputs(o.keys)
			if refusal == "" { // an error of the options follows one about the keys
				refusal = o.options(r, end, plain)
			}
			if refusal != "" {
				return nil, refusal
			}
			most := int64(math.MaxInt64)
			if plain {
				most = c.server.opts.MaxReplies
			}
			entries, refusal := o.combine(sets, most)
			if failed := c.worker.collections.io.err(); failed != "" {
				refusal = failed
			}
			if refusal != "" {
				return nil, refusal
			}
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
		sets, refusal := c.sortedInputs(o.keys)
		if refusal == "" {
			refusal = o.cardOptions(r, end)
		}
		if refusal != "" {
			return nil, refusal
		}
		n := int64(0)
		if !slices.Contains(sets, nil) {
			o.filter(o.inputsOf(distinct(sets)), func(float64, []byte) bool {
				n++
				return n != o.limit
			})
		}
		return appendInt(nil, n), c.worker.collections.io.err()
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

// sortedInputs returns the sorted sets, or sets, under open keys; nil stands for a key that does not exist.
func (c *client) sortedInputs(keys [][]byte) (sets []*collection, refusal string) {
	for _, key := range keys {
		col := c.worker.collections.of(key)
		switch family := col.typ.family(); {
		case !col.exists():
			c.noteMiss(key)
			col = nil
		case family != typeSorted && family != typeSet:
			return nil, errWrongType
		case col.fault() != "":
			return nil, col.fault()
		default:
			col.table.most = math.MaxInt64 // the result is limited, not what is read
		}
		sets = append(sets, col)
	}
	return sets, ""
}

// sortedInput is a sorted set, or a set, whose members have the score 1.
type sortedInput struct {
	*collection
	*lookup
	weights []float64 // several if the command names the key several times in succession
}

// lookup finds the members of a packed sorted set.
type lookup struct {
	looked int // entries that were compared without scores
	scores map[string]float64
}

// input returns an input. Those of the same set share its lookup.
func (o *combining) input(set *collection, weights ...float64) sortedInput {
	if o.lookups == nil {
		o.lookups = make(map[*collection]*lookup)
	}
	if o.lookups[set] == nil {
		o.lookups[set] = new(lookup)
	}
	return sortedInput{set, o.lookups[set], weights}
}

// inputsOf returns the inputs in the order in which Redis combines their scores: the smallest first.
func (o *combining) inputsOf(sets []*collection) (inputs []sortedInput) {
	var all []sortedInput
	for i, set := range sets {
		if set != nil {
			all = append(all, o.input(set, o.weights[i:i+1:i+1]...))
		}
	}
	slices.SortStableFunc(all, func(a, b sortedInput) int { return a.size() - b.size() })
	for _, in := range all {
		if last := len(inputs) - 1; last >= 0 && inputs[last].collection == in.collection {
			inputs[last].weights = append(inputs[last].weights, in.weights...)
		} else {
			inputs = append(inputs, in)
		}
	}
	return inputs
}

func (in *sortedInput) isSorted() bool { return in.typ.family() == typeSorted }

func (in *sortedInput) size() int {
	if in.isSorted() {
		return in.asSorted().count()
	}
	return in.elements().len()
}

func (in *sortedInput) each(visit func(score float64, member []byte) bool) {
	if in.isSorted() {
		in.asSorted().each(0, false, visit)
	} else {
		in.elements().each(func(member, _ []byte) bool { return visit(1, member) })
	}
}

// score returns the score of a member. It makes a map if a packed sorted set is compared with many.
func (in *sortedInput) score(member []byte) (score float64, ok bool) {
	switch {
	case !in.isSorted():
		_, ok = in.elements().get(member)
		return 1, ok
	case in.spread:
		return in.scored.score(member)
	case in.scores == nil && in.looked > manyLooked:
		in.scores = make(map[string]float64, len(in.sorted.entries))
		for _, e := range in.sorted.entries {
			in.scores[string(e.member)] = e.score
		}
	}
	if in.scores != nil {
		score, ok = in.scores[string(member)]
		return score, ok
	}
	in.looked += len(in.sorted.entries)
	return in.sorted.score(member)
}

// combine returns the entries of the result, in any order. It refuses members that take more than most
// bytes of a reply.
func (o *combining) combine(sets []*collection, most int64) (entries []entry, refusal string) {
	keep := func(score float64, member []byte) bool {
		if most -= int64(leastBulk + len(member)); most < 0 {
			refusal = errMemory
			return false
		}
		entries = append(entries, entry{score, append([]byte{}, member...)})
		return true
	}
	switch {
	case o.what == union:
		at := make(map[string]int) // index in entries
		for _, in := range o.inputsOf(sets) {
			in.each(func(score float64, member []byte) bool {
				weights := in.weights
				n, exists := at[string(member)]
				if !exists {
					if !keep(number(score*weights[0]), member) {
						return false
					}
					n, weights = len(entries)-1, weights[1:]
					at[string(member)] = n
				}
				for _, weight := range weights {
					entries[n].score = o.how.of(entries[n].score, number(score*weight))
				}
				return true
			})
			if refusal != "" {
				break
			}
		}
	case o.what == intersection && !slices.Contains(sets, nil):
		o.filter(o.inputsOf(sets), keep)
	case o.what == difference && sets[0] != nil && !slices.Contains(sets[1:], sets[0]):
		inputs := []sortedInput{o.input(sets[0], 1)}
		for _, set := range distinct(sets[1:]) {
			inputs = append(inputs, o.input(set))
		}
		o.filter(inputs, keep)
	}
	return entries, refusal
}

// candidate is a member of the first input, with its score there, and the combined one so far.
type candidate struct {
	own, score float64
	member     []byte

	// Of the present input:
	found float64
	has   bool
}

// manyCandidates is the most candidates that are kept at a time.
const manyCandidates = 1 << 17

// filter calls emit with the entries of an intersection or a difference, until it returns false. emit must
// not keep the members.
func (o *combining) filter(inputs []sortedInput, emit func(score float64, member []byte) bool) {
	first := &inputs[0]
	var some []candidate
	var memory []byte // of their members
	more, most := true, chunk
	flush := func() {
		for i := 1; i < len(inputs) && len(some) > 0; i++ {
			in := &inputs[i]
			in.find(some, first, len(inputs))
			some = o.filterBy(in, some)
		}
		for i := 0; i < len(some) && more; i++ {
			more = emit(some[i].score, some[i].member)
		}
		some, memory, most = some[:0], memory[:0], min(2*most, manyCandidates)
	}
	first.each(func(score float64, member []byte) bool {
		combined := number(score * first.weights[0])
		for _, weight := range first.weights[1:] {
			combined = o.how.of(combined, score*weight)
		}
		from := len(memory)
		memory = append(memory, member...)
		some = append(some, candidate{own: score, score: combined, member: memory[from:len(memory):len(memory)]})
		if len(some) == most {
			flush()
		}
		return more
	})
	flush()
}

// find notes which candidates an input has, and their scores there. The nodes of the first of the inputs are
// being read.
func (in *sortedInput) find(some []candidate, first *sortedInput, inputs int) {
	switch {
	case in.collection == first.collection:
		for i := range some {
			some[i].found, some[i].has = some[i].own, true
		}
	case !in.spread:
		for i := range some {
			some[i].found, some[i].has = in.score(some[i].member)
		}
	case uint64(len(some)) > in.members().buckets: // most nodes are needed
		at := make(map[string]int, len(some))
		for i := range some {
			at[string(some[i].member)], some[i].has = i, false
		}
		in.each(func(score float64, member []byte) bool {
			if i, ok := at[string(member)]; ok {
				some[i].found, some[i].has = score, true
			}
			return true
		})
	default:
		table := in.members()
		for part := range slices.Chunk(some, chunk) {
			if len(table.all)*inputs > manyNodes {
				table.releaseUnchanged()
			}
			for i := range part {
				table.prefetch(part[i].member)
			}
			table.io.fetch()
			for i := range part {
				part[i].found, part[i].has = in.score(part[i].member)
			}
		}
	}
}

// members returns the table of a spread input's members.
func (in *sortedInput) members() *hashTable {
	if in.isSorted() {
		return &in.scored.members
	}
	return &in.table
}

// filterBy returns the candidates that are left after another input.
func (o *combining) filterBy(in *sortedInput, some []candidate) []candidate {
	left := some[:0]
	for _, m := range some {
		if m.has == (o.what == difference) {
			continue
		}
		for _, weight := range in.weights { // a difference has none
			m.score = o.how.of(m.score, m.found*weight)
		}
		left = append(left, m)
	}
	return left
}
