package server

import "sync"

// rings divides the memory for message rings among grants. One half is divided by server threads,
// whose number the manager signs: each grant can have its part at any time. The other half is for
// whoever asks first. So no client keeps others from connecting.
type rings struct {
	cores int   // Options.Cores, among which half is divided
	half  int64 // bytes

	mu     sync.Mutex
	used   int64 // bytes
	common int64 // bytes left of the other half; negative while grants with fewer threads than before use more
}

// ringUse is what a grant uses. rings.mu guards it.
type ringUse struct {
	threads     int
	own, common int64 // bytes of its part, and of the common half
}

func newRings(memory int64, cores int) rings {
	return rings{cores: max(cores, 1), half: memory / 2, common: memory - memory/2}
}

// part returns the bytes that a grant can have at any time.
func (r *rings) part(u *ringUse) int64 {
	return int64(float64(r.half) * float64(u.threads) / float64(r.cores))
}

// divide gives a grant the part for a number of threads.
func (r *rings) divide(u *ringUse, threads int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.threads = threads
	more := max(u.own-r.part(u), 0)
	u.own, u.common, r.common = u.own-more, u.common+more, r.common-more
}

// take reserves bytes for a grant, of its part as far as they are free there. It returns false if
// there are too few.
func (r *rings) take(u *ringUse, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := min(bytes, max(r.part(u)-u.own, 0))
	if bytes-own > max(r.common, 0) {
		return false
	}
	u.own, u.common, r.common = u.own+own, u.common+bytes-own, r.common-(bytes-own)
	r.used += bytes
	return true
}

// give returns bytes of a grant, to the common half first.
func (r *rings) give(u *ringUse, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	common := min(bytes, u.common)
	u.own, u.common, r.common = u.own-(bytes-common), u.common-common, r.common+common
	r.used -= bytes
}

func (r *rings) inUse() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
