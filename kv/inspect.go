package kv

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// InspectSource is a store's files, which nobody has open: an ssdtier.Reader. The
// log is read by its addresses, and begins at Begin.
type InspectSource interface {
	io.ReaderAt
	Begin() int64
	// LostSums tells of what between two addresses has no checksum.
	LostSums(from, until int64, tell func(from, until int64, err error))
	ReadMeta(name string) ([]byte, error)
	OpenObject(name string) (device.Object, error)
	ListObjects() ([]string, error)
}

// InspectOptions say what is looked at besides.
type InspectOptions struct {
	// Record, if set, is shown the records from one address to another, in order; To
	// 0: to the tail.
	Record   func(InspectedRecord)
	From, To int64
}

// InspectedRecord is a record of the log. Its bytes are valid during the call.
type InspectedRecord struct {
	Address  int64     `json:"address"`
	Previous int64     `json:"previous"`         // 0: none
	Deleted  bool      `json:"deleted"`          // it says that the key is deleted
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Key      []byte    `json:"key"`
	Value    []byte    `json:"value"`
}

// Inspection is what [Inspect] found.
type Inspection struct {
	// Time is when it was looked at.
	Time time.Time `json:"time"`
	// Layout of the records ("8+8 bytes"), PageSize, and the size of the index when
	// it was largest. "" and 0 without a manifest.
	Layout    string `json:"layout"`
	PageSize  int    `json:"page_size"`
	IndexBits int    `json:"index_bits"`
	// Opens is what the store is recovered to when it is opened: "commit" or the
	// name of a checkpoint.
	Opens string `json:"opens"`
	// Commit is the last one, without a name or a time; Checkpoints are those that
	// are kept, oldest first.
	Commit      CheckpointInfo   `json:"commit"`
	Checkpoints []CheckpointInfo `json:"checkpoints"`
	Sessions    int              `json:"sessions"` // with a commit point in what is opened

	Log       InspectedLog        `json:"log"`
	Indexes   []InspectedIndex    `json:"indexes"`
	Snapshots []InspectedSnapshot `json:"snapshots"`

	// Problems are what is wrong. Notes are what is odd and harmless.
	Problems []InspectProblem `json:"problems"`
	Notes    []string         `json:"notes"`
}

// InspectedLog is the log from the lowest address that anything needs to the tail
// of what is opened.
type InspectedLog struct {
	Begin    int64 `json:"begin"`
	Tail     int64 `json:"tail"`
	Records  int64 `json:"records"` // that were reachable once; Deleted are tombstones among them
	Deleted  int64 `json:"deleted"`
	Expiring int64 `json:"expiring"`
	Bytes    int64 `json:"bytes"` // of keys and values
	Damaged  int64 `json:"damaged_pages"`
}

// InspectedIndex is a copy of the index.
type InspectedIndex struct {
	Object   string `json:"object"`
	Buckets  int64  `json:"buckets"`
	Overflow int64  `json:"overflow_buckets"`
	Start    int64  `json:"start"` // records below are in it, those from there on may be
	Entries  int64  `json:"entries"`
	Checked  int64  `json:"checked"` // entries that lead to a record of their hash
}

// InspectedSnapshot is a part of the log that a checkpoint keeps.
type InspectedSnapshot struct {
	Object     string `json:"object"`
	Checkpoint string `json:"checkpoint"`
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	Bytes      int64  `json:"bytes"`
}

// InspectProblem is one thing that is wrong.
type InspectProblem struct {
	Where  string `json:"where"` // an object, the manifest, or addresses of the log
	What   string `json:"what"`
	Advice string `json:"advice"` // what can be done
}

func (p InspectProblem) String() string { return fmt.Sprintf("%s: %s: %s", p.Where, p.What, p.Advice) }

// OK says whether nothing is wrong.
func (i *Inspection) OK() bool { return len(i.Problems) == 0 }

// maxProblems is how many are kept; there may be one for each page.
const maxProblems = 1000

func (i *Inspection) problem(where, advice string, err error) {
	if n := len(i.Problems); n < maxProblems {
		i.Problems = append(i.Problems, InspectProblem{where, err.Error(), advice})
	} else if n == maxProblems {
		i.Problems = append(i.Problems, InspectProblem{"more", "there are more problems than these", "mend these first"})
	}
}

// Inspect looks at a store that nobody has open, without changing anything, as
// far as its files allow: at the manifest, the objects that it names, and every
// record of the log; at whether the records' links lead back, and the entries of
// every copy of the index to records of their hashes. Copies of the index are
// held in memory meanwhile. It does not fail: what cannot be read is a problem.
func Inspect(src InspectSource, opts InspectOptions) *Inspection {
	in := &inspector{Inspection: Inspection{Time: time.Now()}, src: src, opts: opts}
	m, err := manifest.Read(src)
	switch {
	case errors.Is(err, ErrMismatch):
		in.problem("the manifest", "use the program that wrote it", err)
	case err != nil:
		in.problem("the manifest", "restore it: without it the store cannot be opened", err)
	case m == nil:
		in.manifestMissing()
	default:
		in.manifest, in.hash = m, newKeyHash(m.HashSeed)
		in.states()
		in.objects()
		in.log()
	}
	return &in.Inspection
}

type inspector struct {
	Inspection
	src      InspectSource
	opts     InspectOptions
	manifest *manifest.Manifest
	hash     keyHash
	state    *manifest.State      // that is opened
	from     *manifest.Checkpoint // it is that of; nil: the last commit
	tables   []*indexCheck        // copies of the index that could be loaded

	damagedFrom, damagedTo int64 // of the log, as told of last
}

func (in *inspector) manifestMissing() {
	objects, err := in.src.ListObjects()
	_, noLog := in.src.ReadAt(make([]byte, 1), hlog.FirstAddress)
	if err != nil || len(objects) > 0 || in.src.Begin() > 0 || noLog == nil {
		in.problem(fmt.Sprintf("the manifest, metadata %q", manifest.Name), "restore it: without it the store cannot be opened", device.ErrNoMeta)
		return
	}
	in.Notes = append(in.Notes, "there is no store here, or one that was never opened whole")
}

// states are what the manifest says.
func (in *inspector) states() {
	m := in.manifest
	in.Layout, in.PageSize, in.IndexBits = manifest.Layout(m.KeySize, m.ValueSize), m.PageSize, m.IndexBits
	commit := manifest.Checkpoint{State: m.Commit}
	in.Commit = checkpointInfo(m, &commit)
	in.Checkpoints = checkpointInfos(m)
	in.state, in.Opens = &m.Commit, LastCommit
	if in.from = m.Newest(); in.from != nil {
		in.state, in.Opens = &in.from.State, in.from.Name
	}
	in.Sessions = len(in.state.Sessions)
	in.Log.Begin, in.Log.Tail = m.Begin(), in.state.Tail
	if begin := in.src.Begin(); begin > in.Log.Begin {
		in.problem("the log", "restore the segments in front",
			fmt.Errorf("its files begin at %d, the manifest needs it from %d on", begin, in.Log.Begin))
	}
	in.Log.Begin = max(in.Log.Begin, min(in.src.Begin(), in.Log.Tail))
}

// objects looks at those that the manifest names.
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
		in.problem("the objects", "see to it that the directory can be read", err)
	}
	for _, name := range objects {
		if !named[name] {
			in.Notes = append(in.Notes, fmt.Sprintf("object %q belongs to nothing; opening the store removes it", name))
		}
	}
}

func (in *inspector) snapshot(c *manifest.Checkpoint) {
	s := InspectedSnapshot{Object: c.Snapshot, Checkpoint: c.Name, From: c.Flushed, To: c.Tail}
	err := manifest.LogPart{Object: c.Snapshot, From: c.Flushed, To: c.Tail}.Read(in.src, func(_ int64, b []byte) error {
		s.Bytes += int64(len(b))
		return nil
	})
	if err != nil {
		in.problem(fmt.Sprintf("checkpoint %q", c.Name), "restore the object; "+in.manifest.Others(c.Sequence, c.Snapshot), err)
	}
	in.Snapshots = append(in.Snapshots, s)
}

// record takes one of the log's records.
func (in *inspector) record(address int64, im hlog.Image) {
	l := &in.Log
	l.Records++
	l.Bytes += int64(len(im.Key) + len(im.Value))
	if im.Header.Tombstone() {
		l.Deleted++
	}
	r := InspectedRecord{
		Address: address, Previous: im.Header.Previous(), Deleted: im.Header.Tombstone(), Key: im.Key, Value: im.Value,
	}
	if im.Header.Expires() {
		l.Expiring++
		r.Expires = time.UnixMilli(im.Expires)
	}
	for _, t := range in.tables {
		t.record(in.hash.of(im.Key), address)
	}
	if in.opts.Record != nil && address >= in.opts.From && (in.opts.To == 0 || address < in.opts.To) {
		in.opts.Record(r)
	}
}
