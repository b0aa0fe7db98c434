package missratio

import "github.com/redykv/redykv/hlog"

// logSim is a hybrid log with a certain memory. Addresses are as in the log: the record of a key
// that is written again stays at its address while it is in the mutable part, and moves to the tail
// otherwise. Reads move nothing. Memory holds whole pages, as in package hlog: so the mutable part and
// the memory are a page longer when a page is almost full than when it has just begun.
type logSim struct {
	memory  int64
	frames  pages
	tail    int64
	sealed  int64   // the tail at the last commit, below which nothing is updated in place
	commits float64 // since the counts began, decayed
	written float64 // bytes appended since the counts began, decayed
	reads   tally   // by distance
	updates tally   // accesses that need the old record, by distance
	caches  [len(cacheRatios)]cacheSim
}

// pages are the sizes of a log's memory in pages.
type pages struct {
	bytes    int64 // of a page
	resident int64
	mutable  int64
}

// tailStart is the address at which the tail of every simulated log starts. Records that are older
// than the simulation have lower addresses.
const tailStart = 1 << 50

// pagesOf returns the pages of a log in memory bytes: of the given size, or if those are too few, of
// the size that a new log of so little memory would have.
func pagesOf(memory, pageSize int64, fraction float64) pages {
	for pageSize > hlog.MinPageSize && memory/pageSize < 2*hlog.MinFrames {
		pageSize /= 2
	}
	resident := max(memory/pageSize, hlog.MinFrames)
	return pages{pageSize, resident, hlog.MutablePages(resident, fraction)}
}

// head returns the lowest address in memory: see the flusher's evict in package hlog.
func (p *pages) head(tail int64) int64 { return (tail/p.bytes + 2 - p.resident) * p.bytes }

// readOnly returns the lowest address that is updated in place, if there are no commits.
func (p *pages) readOnly(tail int64) int64 { return (tail/p.bytes - p.mutable) * p.bytes }

// meanMemory and meanMutable are the mean sizes of the memory and of its mutable part in bytes.
func (p *pages) meanMemory() float64  { return (float64(p.resident) - 1.5) * float64(p.bytes) }
func (p *pages) meanMutable() float64 { return (float64(p.mutable) + 0.5) * float64(p.bytes) }

// append moves the tail by a record of size bytes that stands for weight records, and returns the
// record's address.
func (l *logSim) append(size int, weight float64) int64 {
	at := l.tail
	l.tail += int64(float64(size) * weight)
	return at
}

// inPlace reports whether a record at an address is updated in place.
func (l *logSim) inPlace(address int64) bool {
	return address >= l.sealed && address >= l.frames.readOnly(l.tail)
}

// mutable returns the mean size of the part that is updated in place, in bytes: less than the log
// allows if commits come more often than so much is appended.
func (l *logSim) mutable() float64 {
	if l.commits < 1 {
		return l.frames.meanMutable()
	}
	return min(l.frames.meanMutable(), l.written/l.commits)
}
