package ssdtier

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/redykv/redykv/device"
)

// A small commit is one write to the journal: the blocks of the log that were written since the
// last commit, or are being written, and the metadata. Their segments and sums are synced when
// the journal turns over: its half is full, or a commit is too large for it, or there is a plain
// Sync. Then a first record in the other half, of the next generation, makes those before it void.
//
// Metadata of a commit lives in the journal from then on, and has no file until Close writes it there
// and removes the journal.
//
// After a crash Open writes the journal's blocks to their segments again, each in its newest
// version. That is the version of the last commit: a block that was written again later, and
// synced, is not in the journal's current generation.
type journal struct {
	recent recentBlocks

	// All else is guarded by Device.mu.
	file       *os.File // nil: there is no journal
	impossible bool     // it could not be made; that was logged
	at         place    // of the next record
	stale      bool     // a record may be torn, or older than its segment: the journal turns over before the next one
	hasBlocks  bool     // a record of this generation has blocks
	metas      map[string][]byte
	buf        []byte // the record that is written, aligned
	away       away
	isAway     bool          // the file says that further records are in the memory, or may be
	lacking    *journalState // what the file has, while the records after that were not fetched; or nil
}

// place is where a record is.
type place struct {
	generation uint64
	half       int
	number     uint32 // of the record in the half
	offset     int64  // in the half
}

// Limits of what a record has. More is synced in its own files.
const (
	journalBlocks = 256 << 10
	journalMetas  = 256 << 10
)

// recentBlocks are the blocks that were written since the last commit or Sync, until they are
// too many.
type recentBlocks struct {
	mu     sync.Mutex
	blocks []journalBlock
	size   int
	// lost: blocks are missing. They are from the start, until the first Sync.
	lost bool
	// end is the end of the highest block that was written, last its bytes, and synced what end
	// was when the last Sync began.
	end, synced int64
	last        []byte
	// owed are blocks of CommitWith whose writes have not ended, by address: only the journal
	// has them. keep are those that were owed when the last Sync began, which does not cover
	// them even if they are written now.
	owed map[int64]journalBlock
	keep []journalBlock
}

// add notes that whole blocks of some size were written.
func (r *recentBlocks) add(data []byte, addr int64, unit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end := addr + int64(len(data)); end >= r.end {
		r.end = end
		r.last = append(r.last[:0], data[len(data)-unit:]...)
	}
	for at := 0; at < len(data) && len(r.owed) > 0; at += unit {
		if b, ok := r.owed[addr+int64(at)]; ok && !older(data[at:at+unit], b.data) {
			delete(r.owed, addr+int64(at))
		}
	}
	if r.lost {
		return
	}
	for ; len(data) > 0; data, addr = data[unit:], addr+int64(unit) {
		i := len(r.blocks) - 1
		for i >= 0 && r.blocks[i].addr != addr {
			i--
		}
		if i < 0 {
			if r.size += unit; r.size > journalBlocks {
				r.forget()
				r.lost = true
				return
			}
			i = len(r.blocks)
			if i < cap(r.blocks) { // its memory is used again
				r.blocks = r.blocks[:i+1]
			} else {
				r.blocks = append(r.blocks, journalBlock{})
			}
			r.blocks[i].addr, r.blocks[i].size = addr, unit
		}
		r.blocks[i].data = append(r.blocks[i].data[:0], data[:unit]...)
	}
}

// older reports whether a block has less of the log than another version of it. A log appends to
// its last block; of what it has in it, it changes at most flags.
func older(block, than []byte) bool {
	return len(bytes.TrimRight(block, "\x00")) < len(bytes.TrimRight(than, "\x00"))
}

// forget forgets the blocks. The caller holds mu.
func (r *recentBlocks) forget() { r.blocks, r.size = r.blocks[:0], 0 }

// begin begins a Sync: it forgets the blocks, and notes all that are written from now on.
func (r *recentBlocks) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	r.lost = false
	r.synced = r.end
	r.keep = slices.Collect(maps.Values(r.owed))
}

// lose makes the next commit sync everything.
func (r *recentBlocks) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	r.lost = true
}

// truncate forgets what is owed below begin.
func (r *recentBlocks) truncate(begin int64, unit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endOwed(begin, unit)
}

// start forgets all blocks, and what is owed from tail on.
func (r *recentBlocks) start(tail int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	r.lost = true
	maps.DeleteFunc(r.owed, func(addr int64, _ journalBlock) bool { return addr >= tail })
	r.end, r.synced, r.last = 0, tail, nil
}

// Commit implements device.Committer.
func (d *Device) Commit(name string, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.mayCommit(name, data); err != nil {
		return err
	}
	if done, err := d.commitSmall(nil, 0, name, data); done {
		return err
	}
	return d.commitAll(name, data)
}

// CommitWith implements device.Committer.
func (d *Device) CommitWith(src []byte, addr int64, name string, data []byte) (done bool, err error) {
	if addr < 0 || addr%int64(d.block) != 0 || len(src)%d.block != 0 {
		return true, fmt.Errorf("ssdtier: %s: commit of %d bytes at %d is not aligned to %d", d.dir, len(src), addr, d.block)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.mayCommit(name, data); err != nil {
		return true, err
	}
	if done, err := d.commitSmall(src, addr, name, data); done {
		return true, err
	}
	if !d.hasJournal() || !d.oweEnd(src, addr) {
		return false, nil
	}
	if err := d.commitAll(name, data); err != nil {
		d.opts.Logger.Warn("the journal cannot turn over with the log's end, which is written first", "dir", d.dir, "err", err)
		return false, nil
	}
	return true, nil
}

// oweEnd makes the next generation of the journal have the blocks of src whose writes have not
// ended. It returns false if it cannot. They stay owed if the commit then fails, which does no harm:
// the log has these bytes.
func (d *Device) oweEnd(src []byte, addr int64) bool {
	if !d.hasRoom(src, addr) {
		return false
	}
	r := &d.journal.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mayBeOlder(src, addr, d.block) {
		return false
	}
	r.endOwed(addr, d.block)
	_, owed := r.with(src, addr, d.block)
	return r.addOwed(owed, d.block)
}

// mayCommit returns the error of a commit that cannot begin. The caller holds mu.
func (d *Device) mayCommit(name string, data []byte) error {
	if err := checkMeta(name, data); err != nil {
		return err
	}
	if d.closed.Load() {
		return device.ErrClosed
	}
	return cmp.Or(d.syncErr, d.lacks())
}

// commitAll syncs everything, and stores metadata. The caller holds mu.
func (d *Device) commitAll(name string, data []byte) error {
	if err := d.syncAll(); err != nil {
		return err
	}
	return d.turnOver(name, data)
}

// commitSmall commits by one record, with src of CommitWith. It returns false if a record cannot
// have all of it. The caller holds mu.
func (d *Device) commitSmall(src []byte, addr int64, name string, data []byte) (done bool, err error) {
	if d.newFiles || !d.mayAppend() || !d.hasRoom(src, addr) {
		return false, nil
	}
	if d.goAway(name); d.journal.stale {
		return false, nil
	}
	r := &d.journal.recent
	record, segments := d.takeRecent(src, addr, name, data)
	if record == nil {
		return false, nil
	}
	for _, number := range segments {
		s := d.segments.get(number)
		if s == nil {
			continue // it has been truncated
		}
		if err := s.checkNames(); err != nil {
			r.lose()
			return true, err
		}
		if s.newSums { // all of them have to be stored again
			r.lose()
			return false, nil
		}
	}
	d.journal.hasBlocks = d.journal.hasBlocks || len(segments) > 0
	return d.writeRecord(record, name, data), nil
}

// takeRecent makes a record of the recent blocks and those of src, and forgets the former. It
// returns nil if the record cannot have all of them, and the numbers of their segments.
func (d *Device) takeRecent(src []byte, addr int64, name string, data []byte) (record []byte, segments []int64) {
	r := &d.journal.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mayBeOlder(src, addr, d.block) {
		return nil, nil
	}
	r.endOwed(addr, d.block)
	blocks, owed := r.with(src, addr, d.block)
	if r.lost {
		return nil, nil
	}
	if record = d.encode(name, data, blocks); record == nil || !r.addOwed(owed, d.block) {
		return nil, nil
	}
	segments = d.segmentsOf(blocks)
	r.forget()
	return record, segments
}

// mayBeOlder reports whether a block of src was written, perhaps with more of the log than src has,
// and is no recent block, of which with takes the newer version. The caller holds mu.
func (r *recentBlocks) mayBeOlder(src []byte, addr int64, unit int) bool {
	for at := addr; at < min(addr+int64(len(src)), max(r.synced, r.end)); at += int64(unit) {
		if slices.ContainsFunc(r.blocks, func(b journalBlock) bool { return b.addr == at }) {
			continue
		}
		if at != r.end-int64(unit) || older(src[at-addr:at-addr+int64(unit)], r.last) {
			return true
		}
	}
	return false
}

// endOwed notes that the log below addr was written. The caller holds mu.
func (r *recentBlocks) endOwed(addr int64, unit int) {
	maps.DeleteFunc(r.owed, func(at int64, _ journalBlock) bool { return at+int64(unit) <= addr })
}

// addOwed adds blocks to those owed, unless they are too many. The caller holds mu.
func (r *recentBlocks) addOwed(blocks []journalBlock, unit int) bool {
	if unit*(len(r.owed)+len(blocks)) > journalBlocks {
		return false
	}
	for _, b := range blocks {
		b.data = bytes.Clone(b.data)
		r.owed[b.addr] = b
	}
	return true
}

// hasRoom reports whether the segments exist, and have space, for blocks whose write has not ended:
// after a crash Open writes them there.
func (d *Device) hasRoom(src []byte, addr int64) bool {
	size := d.opts.SegmentSize
	for end := addr + int64(len(src)); addr < end; addr = (addr/size + 1) * size {
		s := d.segments.get(addr / size)
		if s == nil || !s.reserved.hasRoom(min(end-addr/size*size, size)) {
			return false
		}
	}
	return true
}

// with returns the blocks and those of src, each in its newest version, and of those of src the ones
// whose writes have not ended. The caller holds mu.
func (r *recentBlocks) with(src []byte, addr int64, unit int) (all, owed []journalBlock) {
	given := func(at int64) []byte {
		if at < addr || at >= addr+int64(len(src)) {
			return nil
		}
		return bytes.TrimRight(src[at-addr:at-addr+int64(unit)], "\x00")
	}
	written := make(map[int64]bool)
	for _, b := range r.blocks {
		newest := given(b.addr)
		if newest == nil {
			newest = r.owed[b.addr].data // the journal has it
		}
		if !older(b.data, newest) {
			all = append(all, b)
			written[b.addr] = true
		}
	}
	for at := addr; at < addr+int64(len(src)); at += int64(unit) {
		// The last block that was written needs no other write: its segment has it.
		if !written[at] && (at != r.end-int64(unit) || older(r.last, given(at))) {
			owed = append(owed, journalBlock{at, unit, given(at)})
		}
	}
	return append(all, owed...), owed
}

// segmentsOf returns the numbers of the segments of blocks.
func (d *Device) segmentsOf(blocks []journalBlock) (numbers []int64) {
	for _, b := range blocks {
		if n := b.addr / d.opts.SegmentSize; !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// mayAppend reports whether there is a journal that takes a record.
func (d *Device) mayAppend() bool { return d.hasJournal() && !d.journal.stale }

// hasJournal reports whether there is a journal. If its file was removed, there is none any more.
func (d *Device) hasJournal() bool {
	j := &d.journal
	if j.file == nil {
		return false
	}
	if err := checkName(j.file); errors.Is(err, device.ErrCorrupt) { // others tell nothing of the file
		d.opts.Logger.Warn("the journal was removed or replaced while in use, it is made anew", "dir", d.dir, "err", err)
		_ = j.file.Close() // it has no name
		j.file, j.stale, j.away.on = nil, true, false
		return false
	}
	return true
}

// encode makes the next record of the half; nil if it does not fit.
func (d *Device) encode(name string, data []byte, blocks []journalBlock) []byte {
	j := &d.journal
	metas := map[string][]byte{name: data}
	unit, at, end := int64(d.block), j.at.offset, journalHalf
	if a := &j.away; a.on {
		if !j.inFile(name) {
			return nil
		}
		unit, at, end = awayUnit, a.at, a.memory.Size()
	}
	if len(data) > journalMetas || at+alignUp(int64(journalSize(metas, blocks)), unit) > end {
		return nil
	}
	return j.record(metas, blocks, int(unit))
}

// record makes the record for the place where the next one is, of units.
func (j *journal) record(metas map[string][]byte, blocks []journalBlock, unit int) []byte {
	if size := int(alignUp(int64(journalSize(metas, blocks)), int64(unit))); cap(j.buf) < size {
		j.buf = device.AlignedBuffer(2*size, maxBlock)
	}
	r := journalRecord{generation: j.at.generation, number: j.at.number, metas: metas, blocks: blocks}
	return r.appendTo(j.buf[:0], unit)
}

// writeRecord writes a record with metadata. It returns false if that fails.
func (d *Device) writeRecord(record []byte, name string, data []byte) bool {
	j := &d.journal
	if err := d.writeNext(record); err != nil {
		j.recent.lose()
		d.opts.Logger.Warn("the journal cannot be written, all files are synced instead", "dir", d.dir, "err", err)
		return false
	}
	if _, has := j.metas[name]; !has {
		d.removeMeta(name)
	}
	j.metas[name] = bytes.Clone(data)
	return true
}

// removeMeta removes the file of metadata that the journal has: a directory with both that loses its
// journal would be opened in an earlier state. After a crash the file may be there again, until the
// journal turns over.
func (d *Device) removeMeta(name string) {
	if err := os.Remove(d.path(metaPrefix + name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.opts.Logger.Warn("an earlier version of metadata that the journal has cannot be removed", "dir", d.dir, "name", name, "err", err)
	}
}

// writeNext makes a record durable in the journal's next place.
func (d *Device) writeNext(record []byte) error {
	j := &d.journal
	if j.away.on {
		return d.writeAway(record)
	}
	err := d.withSpace(func() error {
		return writeDurably(j.file, record, int64(j.at.half)*journalHalf+j.at.offset)
	})
	if err != nil {
		j.stale = true
		return err
	}
	j.at.number++
	j.at.offset += int64(len(record))
	return nil
}

// syncAll makes durable what was written to segments, and their sums. The caller holds mu.
func (d *Device) syncAll() error {
	if d.syncErr != nil {
		return d.syncErr
	}
	d.journal.recent.begin()
	if err := d.syncFiles(); err != nil {
		d.journal.recent.lose()
		return err
	}
	// The segments now have newer versions of the journal's blocks, which no commit may follow.
	d.journal.stale = d.journal.restores()
	return nil
}

// turnOver makes the journal's records void, after syncAll, and stores metadata. The caller
// holds mu.
func (d *Device) turnOver(name string, data []byte) error {
	metas := maps.Clone(d.journal.metas)
	metas[name] = bytes.Clone(data)
	if !d.openJournal() {
		return d.leaveJournal(metas)
	}
	if len(data) > journalMetas || int64(journalSize(metas, d.journal.recent.keep)) > journalHalf {
		if len(d.journal.recent.keep) > 0 { // the file would be there before them
			return fmt.Errorf("ssdtier: %s: the journal has no room for metadata beside blocks that are not in their segments yet: %w", d.dir, device.ErrTransient)
		}
		if err := d.replaceFile(metaPrefix+name, data); err != nil {
			return err
		}
		delete(metas, name) // after the file is there
	}
	return d.beginGeneration(metas)
}

// restores reports whether the next Open would write blocks to segments.
func (j *journal) restores() bool { return j.stale || j.hasBlocks }

// voidJournal makes the journal's records void, after syncAll, if any has blocks. The caller
// holds mu.
func (d *Device) voidJournal() error {
	if !d.journal.restores() {
		return nil
	}
	if !d.openJournal() {
		return d.leaveJournal(d.journal.metas)
	}
	return d.beginGeneration(d.journal.metas)
}

// beginGeneration writes the first record of the journal's next generation, with the blocks that
// syncAll did not cover.
func (d *Device) beginGeneration(metas map[string][]byte) error {
	j := &d.journal
	keep := j.recent.keep
	if int64(journalSize(metas, keep)) > journalHalf {
		return d.leaveJournal(metas)
	}
	before := j.at
	j.at = place{generation: before.generation + 1, half: 1 - before.half}
	j.away.on = false
	if err := d.writeNext(j.record(metas, keep, d.block)); err != nil {
		j.at = before
		if errors.Is(err, device.ErrTransient) {
			return fmt.Errorf("ssdtier: journal: %w", err)
		}
		d.opts.Logger.Warn("the journal cannot be written, all files are synced instead", "dir", d.dir, "err", err)
		return d.leaveJournal(metas)
	}
	j.metas, j.stale, j.hasBlocks, j.isAway = metas, false, len(keep) > 0, false
	for name := range metas {
		d.removeMeta(name)
	}
	return nil
}

// leaveJournal writes metadata to files in place of the journal, after syncAll, and removes it.
func (d *Device) leaveJournal(metas map[string][]byte) error {
	j := &d.journal
	if len(j.recent.keep) > 0 {
		return fmt.Errorf("ssdtier: %s: the journal cannot be written, and has blocks that are not in their segments yet: %w", d.dir, device.ErrTransient)
	}
	if err := d.storeMetas(metas); err != nil {
		return err
	}
	j.impossible = j.impossible || j.file != nil
	if err := d.removeJournal(); err != nil {
		return err
	}
	j.metas, j.stale, j.hasBlocks, j.isAway = make(map[string][]byte), false, false, false
	return nil
}

// storeMetas writes metadata to its files.
func (d *Device) storeMetas(metas map[string][]byte) error {
	for name, data := range metas {
		if err := d.replaceFile(metaPrefix+name, data); err != nil {
			return err
		}
	}
	return nil
}

// removeJournal removes the journal's file, durably.
func (d *Device) removeJournal() error {
	j := &d.journal
	if j.file != nil {
		_ = j.file.Close() // all that counts was synced
		j.file = nil
	}
	if err := os.Remove(d.path(journalName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap(err)
	}
	// A name that may come back after a crash would make an old journal count.
	return cmp.Or(d.syncNames(), d.syncErr)
}

// openJournal makes the journal unless there is one, and reports whether there is one now.
// Older versions, which do not know it, cannot open the directory afterwards.
func (d *Device) openJournal() bool {
	j := &d.journal
	if d.hasJournal() || j.impossible {
		return j.file != nil
	}
	if err := device.MarkTransient(d.makeJournal()); err != nil {
		d.opts.Logger.Warn("there is no journal: each commit syncs all files", "dir", d.dir, "err", err)
		j.impossible = !errors.Is(err, device.ErrTransient)
		return false
	}
	j.at.generation = max(j.at.generation, rand.Uint64()>>2)
	return true
}

func (d *Device) makeJournal() (err error) {
	if d.version < formatVersion {
		if err := d.storeFormat(); err != nil {
			return err
		}
		d.version = formatVersion
	}
	f, err := openFile(d.path(journalName), os.O_RDWR|os.O_CREATE|os.O_TRUNC|d.directFlag|openDurable, 0o666)
	if err != nil {
		return err
	}
	// The space is there from the start: no commit, and no metadata, finds the disk full.
	err = d.withSpace(func() error { return preallocate(f, 0, 2*journalHalf) })
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil
	}
	if err = errors.Join(err, d.syncNames()); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	d.journal.file = f
	return nil
}

// loadJournal writes the blocks of a journal to their segments, which a crash may have
// prevented.
func (d *Device) loadJournal() error {
	j := &d.journal
	j.metas = make(map[string][]byte)
	j.recent.lost, j.recent.owed = true, make(map[int64]journalBlock)
	path := d.path(journalName)
	state, err := readJournal(path)
	if err != nil {
		return err
	}
	if state == nil { // no commit was made with it
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wrap(err)
		}
		return nil
	}
	if state.isAway && state.away != "" {
		j.lacking = state
		return nil
	}
	if state.isAway {
		d.opts.Logger.Warn("the commits of about the last second are lost: they were in memory that ended with the process", "dir", d.dir)
	}
	return d.restoreJournal(state)
}

// restoreJournal makes the state of a journal that of the directory. The caller holds mu, or opens the directory.
func (d *Device) restoreJournal(state *journalState) (err error) {
	j, path := &d.journal, d.path(journalName)
	for number, blocks := range state.bySegment(d.opts.SegmentSize) {
		s := d.segments.get(number)
		switch {
		case s != nil:
			err = s.restore(blocks)
		case number >= d.begin.Load()/d.opts.SegmentSize:
			err = fmt.Errorf("ssdtier: %s has blocks of it: %w", path, d.noSegment(number))
		}
		if err != nil {
			return err
		}
	}
	if j.file, err = openFile(path, os.O_RDWR|d.directFlag|openDurable, 0); err != nil {
		return wrap(err)
	}
	j.at = place{generation: state.generation, half: state.half}
	j.metas, j.stale = state.metas, true // Start syncs what was restored
	j.lacking = nil
	return nil
}

// restore writes blocks through the page cache, as they may not be aligned.
func (s *segment) restore(blocks []journalBlock) error {
	f, err := openFile(s.file.Name(), os.O_WRONLY, 0)
	if err != nil {
		return wrap(err)
	}
	for _, b := range blocks {
		off := b.addr % s.d.opts.SegmentSize
		err = s.d.withSpace(func() error {
			_, err := f.WriteAt(b.whole(), off)
			return err
		})
		if err != nil {
			break
		}
		s.has(b.whole(), off)
	}
	return wrap(errors.Join(err, f.Close()))
}

// closeJournal makes durable what was written and the journal's metadata, and removes the journal. The
// caller holds mu, and no write is pending.
func (d *Device) closeJournal() error {
	j := &d.journal
	j.away.stop()
	// The memory may end with its user, while the journal's file has space.
	err := cmp.Or(d.comeHome(), d.syncFiles())
	if j.file == nil && len(j.metas) == 0 {
		return err
	}
	if err == nil && len(j.recent.owed) == 0 {
		if err = d.storeMetas(j.metas); err == nil {
			return d.removeJournal()
		}
		if isFull(err) && j.file != nil && !j.stale {
			err = nil // as after a crash, without damage
		}
	}
	// A write or a Sync has failed, or the disk is full: the next Open needs the journal.
	if j.file != nil {
		_ = j.file.Close() // all that counts was synced
	}
	return err
}
