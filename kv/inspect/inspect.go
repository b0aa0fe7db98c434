// Package inspect reads the files of a store that no program has open, and reports what is
// wrong with them. It changes nothing.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Source is the files of a store that is not open: an ssdtier.Reader. ReadAt reads the log
// by its addresses, from Begin on.
type Source interface {
	io.ReaderAt
	Begin() int64
	// LostSums calls tell for the parts of the log between two addresses whose checksums
	// are missing.
	LostSums(from, until int64, tell func(from, until int64, err error))
	ReadMeta(name string) ([]byte, error)
	OpenObject(name string) (device.Object, error)
	ListObjects() ([]string, error)
}

// Options say what [Store] also does.
type Options struct {
	// Record, if set, is called for the records from address From up to To, in order. A To
	// of 0 is the tail.
	Record   func(Record)
	From, To int64
}

// Record is a record of the log. Its bytes are valid during the call.
type Record struct {
	Address  int64     `json:"address"`
	Previous int64     `json:"previous"`         // the record before it in its chain; 0: none
	Deleted  bool      `json:"deleted"`          // the record is a tombstone
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Key      []byte    `json:"key"`
	Value    []byte    `json:"value"`
}

// Report is what [Store] found.
type Report struct {
	// Time is when the inspection began.
	Time time.Time `json:"time"`
	// Layout is the layout of the records ("8+8 bytes"). Layout, PageSize and IndexBits are
	// zero if the manifest could not be read.
	Layout    string `json:"layout"`
	PageSize  int    `json:"page_size"`
	IndexBits int    `json:"index_bits"` // of the largest index that the store has had
	// Opens is the state that the store is recovered to when it is opened: "commit" or the
	// name of a checkpoint.
	Opens string `json:"opens"`
	// Commit is the last commit; it has no name and no time. Checkpoints are oldest first.
	Commit      State   `json:"commit"`
	Checkpoints []State `json:"checkpoints"`
	Sessions    int     `json:"sessions"` // sessions with a commit point in the state that is opened

	Log       Log        `json:"log"`
	Indexes   []Index    `json:"indexes"`
	Snapshots []Snapshot `json:"snapshots"`

	// Problems are what is wrong. Notes are unusual but harmless.
	Problems []Problem `json:"problems"`
	Notes    []string  `json:"notes"`
}

// State is a commit or a checkpoint. It has the fields of kv.CheckpointInfo.
type State = manifest.Info

// Log is the log from the lowest address that a state needs to the tail of the state that
// is opened.
type Log struct {
	Begin    int64 `json:"begin"`
	Tail     int64 `json:"tail"`
	Flushed  int64 `json:"flushed"` // the device has the log up to here, and a snapshot the rest
	Records  int64 `json:"records"` // older ones of the same key and tombstones included
	Deleted  int64 `json:"deleted"` // tombstones
	Expiring int64 `json:"expiring"`
	Bytes    int64 `json:"bytes"` // of keys and values
	Damaged  int64 `json:"damaged_pages"`
}

// Index is a copy of the index.
type Index struct {
	Object   string `json:"object"`
	Buckets  int64  `json:"buckets"`
	Overflow int64  `json:"overflow_buckets"`
	Start    int64  `json:"start"` // it has all records below, and perhaps some from there on
	Entries  int64  `json:"entries"`
	Checked  int64  `json:"checked"` // entries that lead to a record of their hash
}

// Snapshot is a part of the log in an object of a checkpoint.
type Snapshot struct {
	Object     string `json:"object"`
	Checkpoint string `json:"checkpoint"`
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	Bytes      int64  `json:"bytes"`
}

// Problem is one thing that is wrong.
type Problem struct {
	Where  string `json:"where"` // an object, the manifest, or addresses of the log
	What   string `json:"what"`
	Advice string `json:"advice"` // what to do about it
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Where, p.What, p.Advice) }

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// maxProblems is how many problems a report keeps; there may be one per page.
const maxProblems = 1000

func (r *Report) problem(where, advice string, err error) {
	if n := len(r.Problems); n < maxProblems {
		r.Problems = append(r.Problems, Problem{where, err.Error(), advice})
	} else if n == maxProblems {
		r.Problems = append(r.Problems, Problem{"more", "there are more problems than these", "solve these first"})
	}
}

// Store inspects a store as far as its files can be read: the manifest, the objects that
// it names, and every record of the log. It checks that the records' links lead back to
// records, and that the entries of every copy of the index lead to records of their
// hashes; the copies of the index are held in memory for that. It does not fail: what
// cannot be read is a problem in the report.
func Store(src Source, opts Options) *Report {
	in := &inspector{Report: Report{Time: time.Now()}, src: src, opts: opts}
	m, err := manifest.Read(src)
	switch {
	case errors.Is(err, manifest.ErrMismatch):
		in.problem("the manifest", "use the program that wrote it", err)
	case err != nil:
		in.problem("the manifest", "restore it: without it the store cannot be opened", err)
	case m == nil:
		in.manifestMissing()
	default:
		in.manifest, in.hash = m, index.NewHash(m.HashSeed)
		in.states()
		in.objects()
		in.log()
	}
	return &in.Report
}

type inspector struct {
	Report
	src      Source
	opts     Options
	manifest *manifest.Manifest
	hash     index.Hash
	state    *manifest.State      // the state that is opened
	from     *manifest.Checkpoint // its checkpoint; nil: the last commit
	tables   []*indexCheck        // the copies of the index that could be loaded

	damagedFrom, damagedTo int64 // the last damaged part of the log
}

func (in *inspector) manifestMissing() {
	objects, err := in.src.ListObjects()
	_, noLog := in.src.ReadAt(make([]byte, 1), hlog.FirstAddress)
	if err != nil || len(objects) > 0 || in.src.Begin() > 0 || noLog == nil {
		in.problem(fmt.Sprintf("the manifest, metadata %q", manifest.Name), "restore it: without it the store cannot be opened", device.ErrNoMeta)
		return
	}
	in.Notes = append(in.Notes, "there is no store here, or its first opening did not finish")
}

// states reports what the manifest says.
func (in *inspector) states() {
	m := in.manifest
	in.Layout, in.PageSize, in.IndexBits = manifest.Layout(m.KeySize, m.ValueSize), m.PageSize, m.IndexBits
	in.Commit = m.Info(&manifest.Checkpoint{State: m.Commit})
	for i := range m.Checkpoints {
		in.Checkpoints = append(in.Checkpoints, m.Info(&m.Checkpoints[i]))
	}
	in.state, in.Opens = &m.Commit, manifest.LastCommit
	if in.from = m.Newest(); in.from != nil {
		in.state, in.Opens = &in.from.State, in.from.Name
	}
	in.Sessions = len(in.state.Sessions)
	in.Log.Begin, in.Log.Tail = m.Begin(), in.state.Tail
	if begin := in.src.Begin(); begin > in.Log.Begin {
		in.problem("the log", "restore its first segments",
			fmt.Errorf("its files begin at %d, but the manifest needs it from %d on", begin, in.Log.Begin))
	}
	in.Log.Begin = max(in.Log.Begin, min(in.src.Begin(), in.Log.Tail))
}

// objects inspects the objects that the manifest names.
func (in *inspector) objects() {
	m := in.manifest
	for i := range m.Checkpoints {
		if c := &m.Checkpoints[i]; c.Snapshot != "" {
			in.snapshot(c)
		}
	}
	in.indexes()
	named := m.Objects()
	objects, err := in.src.ListObjects()
	if err != nil {
		in.problem("the objects", "make the directory readable", err)
	}
	for _, name := range objects {
		if !named[name] {
			in.Notes = append(in.Notes, fmt.Sprintf("object %q is not in use; opening the store removes it", name))
		}
	}
}

func (in *inspector) snapshot(c *manifest.Checkpoint) {
	s := Snapshot{Object: c.Snapshot, Checkpoint: c.Name, From: c.Flushed, To: c.Tail}
	err := manifest.LogPart{Object: c.Snapshot, From: c.Flushed, To: c.Tail}.Read(in.src, func(_ int64, b []byte) error {
		s.Bytes += int64(len(b))
		return nil
	})
	if err != nil {
		in.problem(fmt.Sprintf("checkpoint %q", c.Name), "restore the object; "+in.manifest.Others(c.Sequence, c.Snapshot), err)
	}
	in.Snapshots = append(in.Snapshots, s)
}

// record counts and checks one record of the log.
func (in *inspector) record(address int64, im hlog.Image) {
	l := &in.Log
	l.Records++
	l.Bytes += int64(len(im.Key) + len(im.Value))
	if im.Header.Tombstone() {
		l.Deleted++
	}
	r := Record{
		Address: address, Previous: im.Header.Previous(), Deleted: im.Header.Tombstone(), Key: im.Key, Value: im.Value,
	}
	if im.Header.Expires() {
		l.Expiring++
		r.Expires = time.UnixMilli(im.Expires)
	}
	for _, t := range in.tables {
		t.record(in.hash.Of(im.Key), address)
	}
	if in.opts.Record != nil && address >= in.opts.From && (in.opts.To == 0 || address < in.opts.To) {
		in.opts.Record(r)
	}
}
