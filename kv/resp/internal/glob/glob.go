// Package glob matches byte strings with Redis's patterns: * matches any bytes, ? one byte,
// [ab-x] and [^a] a byte in or outside a set, and a backslash makes the next byte literal.
package glob

// Match reports whether all of s matches the pattern. It allocates nothing. Its time is at
// most proportional to the product of the lengths.
func Match(pattern, s []byte) bool {
	// star is the position of the last * in the pattern, and resume the position in s at which
	// its match ends. On a mismatch, the match of that * grows by one byte.
	star, resume := -1, 0
	p, at := 0, 0
	for at < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, at
			p++
			continue
		}
		if p < len(pattern) {
			if next, ok := one(pattern, p, s[at]); ok {
				p = next
				at++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, at = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one matches c with the pattern's element at p, and returns the position of the next element.
func one(pattern []byte, p int, c byte) (next int, ok bool) {
	switch {
	case pattern[p] == '?':
		return p + 1, true
	case pattern[p] == '[':
		return set(pattern, p+1, c)
	case pattern[p] == '\\' && p+1 < len(pattern):
		p++
	}
	return p + 1, pattern[p] == c
}

// set matches c with the set whose contents begin at p. An unclosed set ends with the pattern.
func set(pattern []byte, p int, c byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == c
		case p+2 < len(pattern) && pattern[p+1] == '-':
			from, to := min(pattern[p], pattern[p+2]), max(pattern[p], pattern[p+2])
			ok = ok || from <= c && c <= to
			p += 2
		default:
			ok = ok || pattern[p] == c
		}
	}
	return min(p+1, len(pattern)), ok != not
}
