package resp

import "slices"

// LCS: the longest common subsequence of two strings.

const (
	errLCSBoth    = "ERR If you want both the length and indexes, please just use IDX."
	errLCSStrings = "ERR The specified keys must contain string values"
	errLCSMemory  = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
)

// lcsOptions are the options of LCS.
type lcsOptions struct {
	length, indexes, withLength bool
	least                       int64 // the shortest match that is told
}

func lcs(c *client, r request) {
	o, refusal := lcsOptionsOf(r)
	keys := [][]byte{storedKey(c.db, r.arg(1)), storedKey(c.db, r.arg(2))}
	c.atomically(keys, func() {
		var strings [2][]byte
		areStrings := true
		for i, key := range keys {
			value, _, found, ok := c.take(key)
			if !ok {
				return
			}
			if !found {
				continue
			}
			strings[i], ok = stringOf(value)
			areStrings = areStrings && ok
		}
		if !areStrings {
			c.fail(errLCSStrings)
			return
		}
		if refusal != "" {
			c.fail(refusal)
			return
		}
		a, b := strings[0], strings[1]
		if int64(len(a)+1) > int64(c.server.opts.MaxBulk)/4/int64(len(b)+1) {
			c.fail(errLCSMemory)
			return
		}
		c.reply()
		c.answerLCS(o, a, b)
	})
}

func lcsOptionsOf(r request) (o lcsOptions, refusal string) {
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "len"):
			o.length = true
		case is(option, "idx"):
			o.indexes = true
		case is(option, "withmatchlen"):
			o.withLength = true
		case is(option, "minmatchlen") && i+1 < r.len():
			i++
			n, ok := parseInt(r.arg(i))
			if !ok {
				return o, errNotInteger
			}
			o.least = max(n, 0)
		default:
			return o, errSyntax
		}
	}
	if o.length && o.indexes {
		return o, errLCSBoth
	}
	return o, ""
}

// lcsTable holds the lengths of the longest common subsequences of all beginnings of two strings.
type lcsTable struct {
	lengths []uint32
	width   int
}

func (t *lcsTable) at(i, j int) *uint32 { return &t.lengths[i*t.width+j] }

func newLCSTable(a, b []byte) *lcsTable {
	t := &lcsTable{make([]uint32, (len(a)+1)*(len(b)+1)), len(b) + 1}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			if a[i-1] == b[j-1] {
				*t.at(i, j) = *t.at(i-1, j-1) + 1
			} else {
				*t.at(i, j) = max(*t.at(i-1, j), *t.at(i, j-1))
			}
		}
	}
	return t
}

// lcsMatch is a common part, which ends before a[aEnd] and b[bEnd].
type lcsMatch struct{ aEnd, bEnd, length int }

// matches returns the common subsequence, and its parts, the last one first.
func (t *lcsTable) matches(a, b []byte) (common []byte, all []lcsMatch) {
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch {
		case a[i-1] == b[j-1]:
			common = append(common, a[i-1])
			if n := len(all) - 1; n >= 0 && all[n].aEnd-all[n].length == i && all[n].bEnd-all[n].length == j {
				all[n].length++
			} else {
				all = append(all, lcsMatch{i, j, 1})
			}
			i, j = i-1, j-1
		case *t.at(i-1, j) > *t.at(i, j-1):
			i--
		default:
			j--
		}
	}
	slices.Reverse(common)
	return common, all
}

func (c *client) answerLCS(o lcsOptions, a, b []byte) {
	t := newLCSTable(a, b)
	length := int64(*t.at(len(a), len(b)))
	if o.length {
		c.out = appendInt(c.out, length)
		return
	}
	common, all := t.matches(a, b)
	if !o.indexes {
		c.out = appendBulk(c.out, common)
		return
	}
	all = slices.DeleteFunc(all, func(m lcsMatch) bool { return int64(m.length) < o.least })
	out := appendArray(appendBulk(appendMap(c.out, c.resp3, 2), "matches"), len(all))
	for _, m := range all {
		parts := 2
		if o.withLength {
			parts = 3
		}
		out = appendArray(out, parts)
		for _, end := range []int{m.aEnd, m.bEnd} {
			out = appendArray(out, 2)
			out = appendInt(appendInt(out, int64(end-m.length)), int64(end-1))
		}
		if o.withLength {
			out = appendInt(out, int64(m.length))
		}
	}
	c.out = appendInt(appendBulk(out, "len"), length)
}
