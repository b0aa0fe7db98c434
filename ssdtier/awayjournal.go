package ssdtier

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/redykv/redykv/device"
)

// ErrJournalAway means that the last commits are in memory outside the directory, see
// [Device.JournalAway].
var ErrJournalAway = errors.New("ssdtier: the last commits are not in the directory")

// Journal is memory outside the directory, such as another machine's, for the journal's records. A
// small commit is durable when it is there: it needs no sync of the disk, and survives a failure of
// this machine as long as the memory does. One opening of a directory uses it at a time.
type Journal interface {
	// Name tells a later process where the memory is; "": it ends with this process.
	Name() string
	// Size is the number of bytes.
	Size() int64
	// Begin makes the memory ready for new records. What it has is not needed any more. It fails
	// if the memory is not there now, or if an earlier write may still arrive.
	Begin() error
	// WriterAt waits for a fraction of a second at most: commits wait for it. It also fails if something
	// that was written since Begin may have been lost.
	io.WriterAt
	io.ReaderAt
}

// The journal goes away: from a record in the file that names the memory on, the records of the
// generation are in the memory. The first one there has nothing; without it the memory has been
// lost. All is in the directory again with the next generation, which begins when the memory is
// full or fails, when something that an older commit needs is to be removed, and a second after the
// first record. So a machine and its memory that fail together lose about a second.
type away struct {
	memory    Journal // nil: there is none
	on        bool    // the next record goes there
	at        int64   // of the next record
	notBefore time.Time
	refused   bool        // it failed when it was to take records last, and that was logged
	homing    *time.Timer // calls comeHome; nil: not now
}

const (
	// awayMeta is the name of a record's metadata that the memory's name is the content of.
	awayMeta = "ssdtier.journal"
	// awayUnit is the unit of records in the memory.
	awayUnit = 64
)

// awayTime is how long commits may be in memory only, and the time between two attempts to use it.
// Tests change it.
var awayTime = time.Second

// JournalAway returns the name of the memory that has the last commits, which [Device.FetchJournal]
// takes from there before the device can be used; "" if the directory has all of them.
func (d *Device) JournalAway() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal.lacking == nil {
		return ""
	}
	return d.journal.lacking.away
}

// FetchJournal takes the last commits from the memory that has them, which is not needed for them
// any more when it returns. If they are not there, the error is ErrJournalAway, and the device stays
// as it was. From nil it takes none: the commits of about the last second are lost.
func (d *Device) FetchJournal(from Journal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	state := d.journal.lacking
	if state == nil {
		return nil
	}
	if from == nil {
		d.opts.Logger.Warn("the last commits are lost with the memory that had them", "dir", d.dir, "memory", state.away)
	} else {
		data := make([]byte, from.Size())
		if _, err := from.ReadAt(data, 0); err != nil {
			return fmt.Errorf("%w but in %s: %w", ErrJournalAway, state.away, err)
		}
		extended := *state
		extended.metas, extended.blocks = maps.Clone(state.metas), maps.Clone(state.blocks)
		if state = &extended; !state.extend(data) {
			return fmt.Errorf("%w, and %s has lost them", ErrJournalAway, state.away)
		}
	}
	if err := d.restoreJournal(state); err != nil {
		return err
	}
	if from == nil {
		return nil
	}
	// Not with Start only: until then a second crash would need the memory again.
	if err := d.syncAll(); err != nil {
		return err
	}
	if err := d.voidJournal(); err != nil {
		return err
	}
	d.opts.Logger.Info("the last commits were in memory, and are in the directory now", "memory", state.away)
	return nil
}

// UseJournal makes small commits durable in memory from now on; nil: in the directory.
func (d *Device) UseJournal(memory Journal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if err := d.comeHome(); err != nil {
		return err
	}
	d.journal.away.stop()
	d.journal.away = away{memory: memory}
	return nil
}

// lacks returns an error if the directory lacks the last commits. The caller holds mu.
func (d *Device) lacks() error {
	if s := d.journal.lacking; s != nil {
		return fmt.Errorf("ssdtier: %s: %w but in %s", d.dir, ErrJournalAway, s.away)
	}
	return nil
}

// goAway makes the memory take the next records, if there is one, with metadata of that name. The
// caller holds mu, and the journal takes a record, unless it is stale afterwards.
func (d *Device) goAway(metadata string) {
	j := &d.journal
	a := &j.away
	if a.memory == nil || a.on || !j.inFile(metadata) || time.Now().Before(a.notBefore) {
		return
	}
	name := map[string][]byte{awayMeta: []byte(a.memory.Name())}
	if j.at.offset+alignUp(int64(journalSize(name, nil)), int64(d.block)) > journalHalf {
		return // the next generation can
	}
	err := a.memory.Begin()
	if err == nil {
		first := journalRecord{generation: j.at.generation, number: j.at.number + 1}
		err = a.write(first.appendTo(nil, awayUnit), 0)
	}
	if err != nil {
		a.failed()
		if !a.refused {
			a.refused = true
			d.opts.Logger.Warn("commits are synced to the disk, as the memory for them cannot be used", "err", err)
		}
		return
	}
	if err := d.writeNext(j.record(name, nil, d.block)); err != nil {
		return // stale now: the next generation can
	}
	j.at.number++
	j.isAway = true
	if a.on, a.at = true, awayUnit; a.refused {
		a.refused = false
		d.opts.Logger.Info("commits are durable in memory", "memory", a.memory.Name())
	}
}

// write writes a record to the memory.
func (a *away) write(record []byte, at int64) error {
	if at+int64(len(record)) > a.memory.Size() {
		return fmt.Errorf("no room for %d bytes", len(record))
	}
	_, err := a.memory.WriteAt(record, at)
	return err
}

// failed notes that the memory cannot be used for a while.
func (a *away) failed() { a.on, a.notBefore = false, time.Now().Add(awayTime) }

// inFile reports whether the file has metadata of a name. Without the memory, that is what counts.
func (j *journal) inFile(name string) bool {
	_, has := j.metas[name]
	return has && j.at.number > 0
}

// writeAway makes a record durable in the memory. After an error the journal is stale. The caller
// holds mu.
func (d *Device) writeAway(record []byte) error {
	j := &d.journal
	a := &j.away
	if err := a.write(record, a.at); err != nil {
		j.stale = true
		a.failed()
		return fmt.Errorf("in memory %s: %w", a.memory.Name(), err)
	}
	j.at.number++
	a.at += int64(len(record))
	d.homeLater()
	return nil
}

// homeLater makes the commits come home in time. The caller holds mu.
func (d *Device) homeLater() {
	if a := &d.journal.away; a.homing == nil {
		a.homing = time.AfterFunc(awayTime, d.homeInTime)
	}
}

// stop stops what homeLater has begun. The caller holds mu.
func (a *away) stop() {
	if a.homing != nil {
		a.homing.Stop()
		a.homing = nil
	}
}

// homeInTime is comeHome a while after the first commit in memory. Commits wait for the second sync
// only, which has little left to write.
func (d *Device) homeInTime() {
	d.syncEarly()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.journal.away.homing = nil
	if d.closed.Load() {
		return
	}
	if !d.journal.isAway {
		return
	}
	if err := d.comeHome(); err != nil {
		d.opts.Logger.Warn("the last commits stay in memory", "dir", d.dir, "memory", d.journal.away.memory.Name(), "err", err)
		d.homeLater()
	}
}

// syncEarly syncs what was written to segments, while commits go on. They stay dirty, so that the next
// Sync has its errors.
func (d *Device) syncEarly() {
	for _, s := range d.segments.all() {
		if s.dirty.Load() && s.acquire() {
			_ = s.sync()
			s.release()
		}
	}
}

// comeHome makes what is in the memory durable in the directory. The caller holds mu.
func (d *Device) comeHome() error {
	if !d.journal.isAway {
		return nil
	}
	if err := d.syncAll(); err != nil {
		return err
	}
	d.journal.stale = true // the memory's records are void, too
	return d.voidJournal()
}

// extend adds the records in the memory. It returns false if that has not all of them: the first one
// is missing, or another one that others follow.
func (j *journalState) extend(memory []byte) bool {
	n := j.records
	rest := j.take(memory)
	for at := 0; at+awayUnit <= len(rest); at += awayUnit {
		if r, _, ok := parseRecord(rest[at:]); ok && r.generation == j.generation {
			return false
		}
	}
	return j.records > n
}
