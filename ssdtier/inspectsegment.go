package ssdtier

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
)

// Problems of a block.
const (
	notTheSum = "does not match its checksum"
	cutShort  = "missing: the file is cut short"
	noSum     = "no checksum, but later blocks have one"
)

// segment inspects one segment and its sums.
func (in *inspector) segment(name string, number int64) {
	f, err := os.Open(in.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return // removed meanwhile
	}
	var info fs.FileInfo
	if err == nil {
		defer func() { _ = f.Close() }() // it was only read
		info, err = f.Stat()
	}
	if err != nil {
		in.problem(name, "%v", err)
		return
	}
	report := SegmentReport{File: name, Number: number, Size: info.Size()}
	defer func() { in.Segments = append(in.Segments, report) }()
	switch {
	case in.below(number):
		in.note(name, "lies below the log's begin; opening the directory removes it")
	case in.SegmentSize > 0 && report.Size > in.SegmentSize:
		in.problem(name, "has %d bytes, more than the %d of a segment", report.Size, in.SegmentSize)
	}
	in.gap(number)
	size := report.Size // of what is inspected
	if in.SegmentSize > 0 {
		size = min(size, in.SegmentSize)
	}
	sums := in.loadSums(number, size)
	if sums == nil {
		report.Unsynced = (size + sumUnit - 1) / sumUnit
		return
	}
	in.blocks(&report, f, size, sums)
}

// gap reports segments that are missing before a segment.
func (in *inspector) gap(number int64) {
	before := int64(-1)
	for n := range in.present {
		if n < number && !in.below(n) {
			before = max(before, n)
		}
	}
	missing := number - before - 1
	switch {
	case before < 0 || missing == 0:
	case missing > 1:
		in.problem(segmentName(before+1), "is missing, and all up to %s: restore them", segmentName(number-1))
	case !in.sums[number-1]: // otherwise onlySums reports it
		in.problem(segmentName(number-1), "is missing, with its checksums: restore it")
	}
}

// newest reports whether there is no later segment.
func (in *inspector) newest(number int64) bool {
	for n := range in.present {
		if n > number {
			return false
		}
	}
	return true
}

// loadSums returns the sums of a segment, in a table of sufficient size even if the size of
// segments is not known; nil if there are none.
func (in *inspector) loadSums(number, size int64) *sumTable {
	name := sumName(number)
	data, err := in.readSums(number)
	switch {
	case errors.Is(err, fs.ErrNotExist) && in.version == 1:
		in.note(name, "does not exist yet; without it the segment is not verified")
		return nil
	case errors.Is(err, fs.ErrNotExist) && size == 0 && in.newest(number):
		in.note(segmentName(number), "is new and empty")
		return nil
	case errors.Is(err, fs.ErrNotExist):
		in.problem(name, "is missing: restore it, unless the segment was never synced")
		return nil
	case err != nil:
		in.problem(name, "%v", err)
		return nil
	case in.newest(number) && neverSynced(data) && in.journal.end(number, in.SegmentSize) == 0:
		in.note(name, "is new: a loss of power left it empty, and nothing of the segment was synced")
		return nil
	}
	t := newSumTable(max(size, int64(len(data))/8*sumUnit, in.journal.end(number, in.SegmentSize), sumUnit))
	if err := parseSums(data, number, t); err != nil && !neverSynced(data) {
		in.problem(name, "%v: restore it", err)
		return nil
	}
	in.journal.setSums(t, number, in.SegmentSize)
	return t
}

// readSums reads the file of sums of a segment.
func (in *inspector) readSums(number int64) ([]byte, error) {
	return readStart(in.path(sumName(number)), sumsEnd(cmp.Or(in.SegmentSize, maxSegmentSize)))
}

// neverSynced reports whether a file of sums holds only zeros. A power cut may leave such a
// file, if its name was stored and its content was not.
func neverSynced(sums []byte) bool { return len(bytes.Trim(sums, "\x00")) == 0 }

// onlySums inspects a file of sums without a segment.
func (in *inspector) onlySums(number int64) {
	data, err := in.readSums(number)
	if err == nil && in.newest(number) && noSums(data, number) {
		in.note(segmentName(number), "is new and empty")
		return
	}
	in.problem(segmentName(number), "is missing, but its checksums exist: restore it")
}

// blocks compares the blocks of a segment, of that size, with their sums.
func (in *inspector) blocks(report *SegmentReport, f *os.File, size int64, sums *sumTable) {
	last := sums.last()
	bad := damage{name: report.File}
	end := max((size+sumUnit-1)/sumUnit, last+1)
	for first := int64(0); first < end; first += inspectChunk / sumUnit {
		n, err := readFull(f, in.buf, first*sumUnit)
		if err != nil {
			bad.add(first*sumUnit, inspectChunk, err.Error())
			report.Damaged += inspectChunk / sumUnit
			continue
		}
		if in.SegmentSize > 0 {
			n = in.journal.overlay(in.buf, n, report.Number*in.SegmentSize+first*sumUnit)
		}
		for block := first; block < min(first+inspectChunk/sumUnit, end); block++ {
			at := int(block-first) * sumUnit
			bytes := in.buf[min(at, n):min(at+sumUnit, n)]
			what := in.block(report, bytes, sums.get(block), block < last)
			if block == last {
				in.settle()
			}
			switch {
			case block == last && what == notTheSum && grown(bytes, sums.get(block), 0):
				report.Damaged--
				report.Rewritten++
				in.suspect = &Finding{File: report.File, Offset: block * sumUnit, Length: sumUnit, What: what}
			case what != "":
				bad.add(block*sumUnit, sumUnit, what)
			}
		}
	}
	in.Problems = append(in.Problems, bad.findings...)
}

// block counts a block of which the file has at least a part, and returns its problem.
func (in *inspector) block(report *SegmentReport, bytes []byte, sum uint64, more bool) (what string) {
	switch {
	case sum == sumUnverified:
		report.Unverified++
	case sum == sumNone && !more:
		report.Unsynced++
	case sum == sumNone:
		report.Unsynced++
		what = noSum
	case len(bytes) < sumUnit:
		report.Damaged++
		what = cutShort
	case sumOf(bytes) != sum:
		report.Damaged++
		what = notTheSum
	default:
		report.Verified++
	}
	return what
}

// settle makes the suspect a problem: blocks of the log follow it.
func (in *inspector) settle() {
	if in.suspect != nil {
		in.Problems = append(in.Problems, *in.suspect)
		in.suspect = nil
	}
}

// last returns the number of the last block that has a sum, or -1.
func (t *sumTable) last() int64 {
	for n := int64(len(t.pages)) - 1; n >= 0; n-- {
		if t.pages[n].Load() == nil {
			continue
		}
		for i := int64(sumsPerPage) - 1; i >= 0; i-- {
			if t.get(n*sumsPerPage+i) != sumNone {
				return n*sumsPerPage + i
			}
		}
	}
	return -1
}
