package ssdtier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// The file JOURNAL has commits that are not in other files yet. It has two halves. A half has
// the records of one generation, from its start on, without gaps. The valid half of the higher
// generation counts; the other is the one before.
//
// A record is a multiple of the device's block:
//
//	magic       8 bytes
//	checksum    8  of the record with zeros here
//	generation  8
//	number      4  in the generation, from 0
//	length      4  of the record
//	metas       4  and for each: length of the name 2, length of the data 4, name, data
//	blocks      4  and for each: address 8, length of the block 4, length of the data 4, data
//
// Generations begin at a random number, so that no value in the log can look like a record.
// Numbers are little endian. A block's data has no zeros at its end. The first record of a
// generation has all metadata of the journal, and the blocks that are not in the segments yet.
const (
	journalName   = "JOURNAL"
	journalMagic  = "rkvjrnl1"
	journalHeader = 8 + 8 + 8 + 4 + 4
)

// journalHalf is the size of a half: some hundred small commits. Tests lower it.
var journalHalf int64 = 2 << 20

// journalRecord is one record.
type journalRecord struct {
	generation uint64
	number     uint32
	metas      map[string][]byte
	blocks     []journalBlock
}

// journalBlock is a block of the log. Without what was trimmed: zeros at its end.
type journalBlock struct {
	addr int64
	size int // of the whole block
	data []byte
}

// whole is the block with the zeros at its end.
func (b journalBlock) whole() []byte {
	block := make([]byte, b.size)
	copy(block, b.data)
	return block
}

// appendTo appends the record to dst, which is empty, with zeros up to a multiple of unit.
func (r *journalRecord) appendTo(dst []byte, unit int) []byte {
	dst = append(dst, journalMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, r.generation)
	dst = binary.LittleEndian.AppendUint32(dst, r.number)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.metas)))
	for name, data := range r.metas {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(name)))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(data)))
		dst = append(append(dst, name...), data...)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.blocks)))
	for _, b := range r.blocks {
		data := bytes.TrimRight(b.data, "\x00")
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.addr))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(b.size))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(data)))
		dst = append(dst, data...)
	}
	dst = append(dst, make([]byte, int(alignUp(int64(len(dst)), int64(unit)))-len(dst))...)
	binary.LittleEndian.PutUint32(dst[28:], uint32(len(dst)))
	binary.LittleEndian.PutUint64(dst[8:], xxhash.Sum64(dst))
	return dst
}

// journalSize is an upper bound of the size of a record, without its last zeros.
func journalSize(metas map[string][]byte, blocks []journalBlock) int {
	n := journalHeader + 4 + 4
	for name, data := range metas {
		n += 2 + 4 + len(name) + len(data)
	}
	for _, b := range blocks {
		n += 8 + 4 + 4 + len(b.data)
	}
	return n
}

// parseRecord parses the record at the start of data, and returns its length. It is not ok if
// there is none, or a torn or damaged one.
func parseRecord(data []byte) (r journalRecord, length int, ok bool) {
	if len(data) < journalHeader || string(data[:8]) != journalMagic {
		return r, 0, false
	}
	length = int(binary.LittleEndian.Uint32(data[28:]))
	if length < journalHeader || length > len(data) {
		return r, 0, false
	}
	data = data[:length]
	sum := xxhash.New()
	// Write never fails.
	_, _ = sum.Write(data[:8])
	_, _ = sum.Write(make([]byte, 8))
	_, _ = sum.Write(data[16:])
	if sum.Sum64() != binary.LittleEndian.Uint64(data[8:]) {
		return r, 0, false
	}
	r.generation, r.number = binary.LittleEndian.Uint64(data[16:]), binary.LittleEndian.Uint32(data[24:])
	p := recordParser{data: data[journalHeader:]}
	r.metas = make(map[string][]byte)
	for range p.number(4) {
		name, size := p.number(2), p.number(4)
		key := string(p.take(name))
		r.metas[key] = p.take(size)
		if p.failed || device.CheckName(key) != nil {
			return r, 0, false
		}
	}
	for range p.number(4) {
		b := journalBlock{addr: int64(p.number(8)), size: int(p.number(4))}
		b.data = p.take(p.number(4))
		if p.failed || b.addr < 0 || b.size < sumUnit || b.size > maxBlock || b.size&(b.size-1) != 0 || b.addr%int64(b.size) != 0 || len(b.data) > b.size {
			return r, 0, false
		}
		r.blocks = append(r.blocks, b)
	}
	return r, length, !p.failed
}

// recordParser takes numbers and bytes off the start of data. Once one is missing it has
// failed, and returns zeros.
type recordParser struct {
	data   []byte
	failed bool
}

func (p *recordParser) take(n uint64) []byte {
	if p.failed || n > uint64(len(p.data)) {
		p.failed = true
		return nil
	}
	b := p.data[:n]
	p.data = p.data[n:]
	return b
}

// number takes a number of size bytes. A failed parser returns 0.
func (p *recordParser) number(size int) uint64 {
	var wide [8]byte
	copy(wide[:], p.take(uint64(size)))
	return binary.LittleEndian.Uint64(wide[:])
}

// journalState is what a journal's file has.
type journalState struct {
	generation uint64
	half       int    // the half that counts
	records    uint32 // in it
	metas      map[string][]byte
	blocks     map[int64]journalBlock // by address, the newest of each
	isAway     bool                   // further records are in the memory of that name
	away       string
}

// readJournal reads the journal in a file. It returns nil if there is none, or one without a
// commit. Damage of a record that others follow is an error; a damaged last record was never
// acknowledged, as far as the file tells.
func readJournal(path string) (*journalState, error) {
	data, err := readStart(path, 2*journalHalf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err)
	}
	j, ok := parseJournal(data)
	if !ok {
		return nil, fmt.Errorf("%w: a record of %s is damaged, and later ones are not: restore it: %w", ErrFormat, path, device.ErrCorrupt)
	}
	return j, nil
}

// parseJournal parses a journal's file. It is not ok if a record is damaged that others follow.
func parseJournal(data []byte) (_ *journalState, ok bool) {
	var best *journalState
	var others []uint64
	for half := range 2 {
		n := min(int64(len(data)), journalHalf)
		j, rest := parseHalf(data[:n])
		data = data[n:]
		others = append(others, rest...)
		if j != nil && (best == nil || j.generation > best.generation) {
			j.half = half
			best = j
		}
	}
	if best == nil {
		return nil, len(others) == 0
	}
	// Others are of earlier uses of the halves, or values in the log that look like records.
	return best, !slices.Contains(others, best.generation) && !slices.Contains(others, best.generation+1)
}

// parseHalf parses the records from the start of a half on. It returns nil if the first one is
// not valid. Others are the generations of the intact records after those.
func parseHalf(half []byte) (j *journalState, others []uint64) {
	at := 0
	if r, _, ok := parseRecord(half); ok && r.number == 0 {
		j = &journalState{generation: r.generation, metas: make(map[string][]byte), blocks: make(map[int64]journalBlock)}
		at = len(half) - len(j.take(half))
	}
	for at = int(alignUp(int64(at), sumUnit)); at < len(half); at += sumUnit {
		if r, _, ok := parseRecord(half[at:]); ok {
			others = append(others, r.generation)
		}
	}
	return j, others
}

// take takes the next records of the generation from the start of data, and returns the rest.
func (j *journalState) take(data []byte) (rest []byte) {
	for {
		r, length, ok := parseRecord(data)
		if !ok || r.generation != j.generation || r.number != j.records {
			return data
		}
		j.records++
		if name, ok := r.metas[awayMeta]; ok {
			j.isAway, j.away = true, string(name)
			delete(r.metas, awayMeta)
		}
		maps.Copy(j.metas, r.metas)
		for _, b := range r.blocks {
			j.blocks[b.addr] = b
		}
		data = data[length:]
	}
}

// bySegment returns the blocks by the number of their segment.
func (j *journalState) bySegment(size int64) map[int64][]journalBlock {
	all := make(map[int64][]journalBlock)
	for addr, b := range j.blocks {
		all[addr/size] = append(all[addr/size], b)
	}
	return all
}

// overlay copies the journal's blocks over p, of which n bytes were read from an address of a
// segment, and returns how many p has now from its start on. j may be nil.
func (j *journalState) overlay(p []byte, n int, addr int64) int {
	if j == nil {
		return n
	}
	end := addr + int64(len(p))
	for at := addr &^ (maxBlock - 1); at < end; at += sumUnit {
		b, ok := j.blocks[at]
		from, to := max(at, addr), min(at+int64(b.size), end)
		if !ok || from >= to || from > addr+int64(n) {
			continue
		}
		copy(p[from-addr:to-addr], b.whole()[from-at:])
		n = max(n, int(to-addr))
	}
	return n
}

// setSums sets the sums of the journal's blocks in a segment. j may be nil.
func (j *journalState) setSums(t *sumTable, number, segmentSize int64) {
	if j == nil || segmentSize == 0 {
		return
	}
	for _, b := range j.bySegment(segmentSize)[number] {
		t.fill(b.addr%segmentSize/sumUnit, b.whole())
	}
}

// end returns the offset in a segment up to which the journal has blocks; 0 if there are none.
// j may be nil.
func (j *journalState) end(number, segmentSize int64) (end int64) {
	if j == nil || segmentSize == 0 {
		return 0
	}
	for _, b := range j.bySegment(segmentSize)[number] {
		end = max(end, b.addr%segmentSize+int64(b.size))
	}
	return end
}
