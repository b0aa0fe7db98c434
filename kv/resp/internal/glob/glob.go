// Package glob matches strings of bytes with patterns as Redis has them: * is any
// bytes, ? is one, [ab-x] and [^a] are one of a set or not of it, and a backslash
// takes the next byte as it is.
package glob

// Match says whether all of s matches the pattern. It allocates nothing, and takes
// time in the product of the lengths at most.
func Match(pattern, s []byte) bool {
	// Where the last * stood, to which the search goes back, and where in s it went on
	// then. What came before that star is matched for good.
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

// one matches one byte with what stands at p, and says where the pattern goes on.
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

// set matches a byte with a set of them, which begins at p. A set that is not closed
// ends with the pattern.
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
