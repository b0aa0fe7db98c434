package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// A node is a record that holds a part of a spread collection: about 4 KiB. Its key is the mark,
// 'n', the collection's generation, and the node's number; its value is the length of the content
// in 4 bytes, the content, and spare room, so that a node that grows a little is updated in
// place. A node without content has no record.
//
// Nodes are inner records of the store (kv.Options.Inner). The lock of the key that has the
// collection's header guards them.

// nodeID is a node's number in its collection. The type of the collection divides the numbers
// among kinds of nodes, if it has several.
type nodeID uint64

const (
	nodeMark  = mark + "n"
	ownerMark = mark + "o"

	nodeKeySize = len(nodeMark) + len(generation{}) + 8
	nodeHead    = 4
)

// Inner reports whether a record's key is that of a node of a large collection, or of its owner. A
// program sets it as [kv.Options.Inner], and [Orphans] as Orphans, so that hashes and sets can be
// large.
func Inner(key []byte) bool {
	return len(key) > markSize && key[0] == mark[0] && (string(key[:markSize]) == nodeMark || string(key[:markSize]) == ownerMark)
}

func appendNodeKey(dst []byte, g generation, id nodeID) []byte {
	dst = append(append(dst, nodeMark...), g[:]...)
	return binary.BigEndian.AppendUint64(dst, uint64(id))
}

// node is a node in memory.
type node struct {
	id      nodeID
	content []byte // may be changed, with changed set; empty: there is no record
	changed bool
	value   []byte // memory of the record's value
	before  []byte // the record's value when it was read, if nodeIO.changes was set
	size    int    // length of the record's value, 0 if there is none
	loaded  bool
}

// nodes are the nodes of one generation that a command uses. After an error, io.failed, all results
// are undefined.
type nodes struct {
	io  *nodeIO
	gen generation
	all map[nodeID]*node
}

// nodeIO reads and writes nodes in batches. A worker has one.
type nodeIO struct {
	session *kv.Session
	store   *kv.Store // of the session
	wanted  []*node
	reads   []kv.Op      // of wanted
	changes bool         // nodes that are read may be changed
	many    *atomic.Bool // set when there is a sorted set of which very many entries may be removed
	writes  nodeWrites
	shrinks nodeWrites // which need less room than what undoes them, and are run last
	keys    []byte
	free    []*node
	failed  error
}

// nodeWrites are a batch of writes. undo[i] undoes ops[i], which has no error once it has taken effect.
type nodeWrites struct{ ops, undo []kv.Op }

// keptNodes is the most nodes whose memory a worker keeps, and keptNode the most bytes of one.
const (
	keptNodes = 64
	keptNode  = 16 << 10
)

// beginNodes prepares the worker for a command that uses nodes. changes is set if it may change those that it
// reads.
func (c *client) beginNodes(changes bool) *nodeIO {
	io := &c.worker.collections.io
	io.session, io.store, io.failed, io.changes = c.worker.session, c.server.store, nil, changes
	io.many = &c.server.pool.manySorted
	return io
}

// noteSorted notes the number of entries of a sorted set.
func (io *nodeIO) noteSorted(n uint64) {
	if n >= manyRemoved && io.many != nil && !io.many.Load() {
		io.many.Store(true)
	}
}

// keepNodes notes that the command only makes nodes, and changes none of those that it reads.
func (c *client) keepNodes() { c.worker.collections.io.changes = false }

func (n *nodes) begin(io *nodeIO, g generation) {
	n.io, n.gen = io, g
	if n.all == nil {
		n.all = make(map[nodeID]*node)
	}
}

// err returns the error reply of a failure, or "".
func (io *nodeIO) err() string {
	if io.failed == nil {
		return ""
	}
	return "ERR " + io.failed.Error()
}

func (io *nodeIO) fail(err error) {
	if io.failed == nil {
		io.failed = err
	}
}

// refuse is fail with the error reply to a client; "": there is no error.
func (io *nodeIO) refuse(reply string) {
	if reply != "" {
		io.fail(errors.New(strings.TrimPrefix(reply, "ERR ")))
	}
}

// want has the next call of fetch read a node.
func (n *nodes) want(id nodeID) {
	if _, ok := n.all[id]; ok {
		return
	}
	var nd *node
	if io := n.io; len(io.free) > 0 {
		nd = io.free[len(io.free)-1]
		io.free = io.free[:len(io.free)-1]
	} else {
		nd = new(node)
	}
	*nd = node{id: id, value: nd.value[:0], before: nd.before[:0]}
	n.all[id] = nd
	from := len(n.io.keys)
	n.io.keys = appendNodeKey(n.io.keys, n.gen, id)
	n.io.wanted = append(n.io.wanted, nd)
	n.io.reads = append(n.io.reads, kv.Op{Kind: kv.OpRead, Key: n.io.keys[from:len(n.io.keys):len(n.io.keys)], Value: nd.value})
}

// fetch reads the wanted nodes, of all generations, in one batch.
func (io *nodeIO) fetch() {
	if len(io.reads) == 0 {
		return
	}
	io.do(io.reads)
	for i, nd := range io.wanted {
		op := &io.reads[i]
		nd.value, nd.loaded = op.Value, true
		if io.changes && op.Err == nil {
			nd.before = append(nd.before, op.Value...)
		}
		switch {
		case op.Err != nil: // there is no such node, or io has failed
			nd.value = nd.value[:0]
		case !nd.take(op.Value):
			io.fail(errDamagedNode)
		}
	}
	clear(io.reads)
	clear(io.wanted)
	io.reads, io.wanted, io.keys = io.reads[:0], io.wanted[:0], io.keys[:0]
}

var errDamagedNode = errors.New("a node of this collection is damaged")

// take sets the content from a record's value, and reports whether that is well formed.
func (nd *node) take(value []byte) bool {
	if len(value) <= nodeHead {
		return false
	}
	n := binary.LittleEndian.Uint32(value)
	if n == 0 || uint64(n) > uint64(len(value)-nodeHead) {
		return false
	}
	nd.content, nd.size = value[nodeHead:nodeHead+n], len(value)
	return true
}

// do runs a batch. ErrNotFound is no failure.
func (io *nodeIO) do(ops []kv.Op) {
	if err := absent(ops, io.session.Do(context.Background(), ops)); err != nil {
		io.fail(err)
	}
}

// node returns a node, which it reads if it was not wanted before.
func (n *nodes) node(id nodeID) *node {
	nd := n.all[id]
	if nd == nil || !nd.loaded {
		n.want(id)
		n.io.fetch()
		nd = n.all[id]
	}
	return nd
}

// fresh returns a node that is known to have no record, or one that was emptied before.
func (n *nodes) fresh(id nodeID) *node {
	if nd := n.all[id]; nd != nil {
		return nd
	}
	nd := &node{id: id, loaded: true}
	n.all[id] = nd
	return nd
}

// release forgets a node without changes.
func (n *nodes) release(id nodeID) {
	if nd := n.all[id]; nd != nil && !nd.changed {
		delete(n.all, id)
		n.io.keep(nd)
	}
}

func (io *nodeIO) keep(nd *node) {
	if len(io.free) < keptNodes && max(cap(nd.value), cap(nd.before)) <= keptNode {
		io.free = append(io.free, nd)
	}
}

// releaseUnchanged forgets the nodes without changes.
func (n *nodes) releaseUnchanged() {
	for id := range n.all {
		n.release(id)
	}
}

// releaseAll forgets all nodes, with their changes.
func (n *nodes) releaseAll() {
	for id, nd := range n.all {
		delete(n.all, id)
		n.io.keep(nd)
	}
}

// room returns the length of the value for a node: if possible that of the record, so that it is
// updated in place, or else one with spare room, or without if that does not fit the store.
func (n *nodes) room(nd *node) int {
	need := nodeHead + len(nd.content)
	if need <= nd.size && need > nd.size/4 {
		return nd.size
	}
	if spare := (need + need/4 + 63) &^ 63; n.io.session.CheckSize(nodeKeySize, spare) == nil {
		return spare
	}
	return need
}

// fits reports whether the store takes a node with a content of this size.
func (n *nodes) fits(content int) bool {
	return n.io.session.CheckSize(nodeKeySize, nodeHead+content) == nil
}

// check returns an error if a changed node is too large for the store.
func (n *nodes) check() error {
	for _, nd := range n.all {
		if !nd.changed {
			continue
		}
		if err := n.io.session.CheckSize(nodeKeySize, n.room(nd)); err != nil {
			return err
		}
	}
	return nil
}

// store adds the writes of all changed nodes to the batch that flush runs.
func (n *nodes) store() {
	for id, nd := range n.all {
		if !nd.changed {
			continue
		}
		io, from := n.io, len(n.io.keys)
		io.keys = appendNodeKey(io.keys, n.gen, id)
		key := io.keys[from:len(io.keys):len(io.keys)]
		op, undo := kv.Op{Kind: kv.OpDelete, Key: key}, kv.Op{Kind: kv.OpDelete, Key: key}
		if len(nd.before) > 0 {
			undo.Kind, undo.Value = kv.OpUpsert, nd.before
		}
		if size := n.room(nd); len(nd.content) > 0 {
			value := nd.value[:0]
			if cap(value) < size {
				value = make([]byte, 0, size)
			}
			value = value[:size]
			copy(value[nodeHead:], nd.content) // which may overlap, in the same place
			clear(value[nodeHead+len(nd.content):])
			binary.LittleEndian.PutUint32(value, uint32(len(nd.content)))
			op.Kind, op.Value = kv.OpUpsert, value
			nd.value, nd.content, nd.size = value, value[nodeHead:nodeHead+len(nd.content)], size
		} else {
			nd.size = 0
		}
		nd.changed = false
		io.put(op, undo)
	}
}

// put adds the write of a record to the batch, and what undoes it.
func (io *nodeIO) put(op, undo kv.Op) {
	w := &io.writes
	if len(op.Value) < len(undo.Value) || op.Expires == 0 && undo.Expires != 0 {
		w = &io.shrinks
	}
	op.Err = errNotRun
	w.ops, w.undo = append(w.ops, op), append(w.undo, undo)
}

// undoOf returns what restores the record that was read.
func undoOf(read *kv.Op) kv.Op {
	if read.Err != nil {
		return kv.Op{Kind: kv.OpDelete, Key: read.Key}
	}
	return kv.Op{Kind: kv.OpUpsert, Key: read.Key, Value: read.Value, Expires: read.Expires}
}

var errNotRun = errors.New("this write has not run")

// flush runs the batch of writes: either all take effect, or none if it returns an error that is not
// errTorn.
func (io *nodeIO) flush() error {
	if io.failed == nil {
		if err := io.session.Whole(context.Background(), io.write); err != nil {
			io.fail(err)
		}
	}
	io.writes.reset()
	io.shrinks.reset()
	io.keys = io.keys[:0]
	if io.failed != nil {
		return fmt.Errorf("writing a collection: %w", io.failed)
	}
	return nil
}

// write runs the writes. If one fails, it undoes the others. While the log has no room, only writes in
// place succeed; what was just written is undone in place if it has the room.
func (io *nodeIO) write() error {
	ctx := context.Background()
	err := io.session.Do(ctx, io.writes.ops)
	if err == nil {
		err = io.warm()
	}
	if err == nil {
		err = io.session.Do(ctx, io.shrinks.ops)
	}
	if err == nil || io.session.Err() != nil {
		return err
	}
	if undone := io.session.Do(ctx, io.shrinks.undoing(io.writes.undoing(nil))); undone != nil {
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	return err
}

// warm writes the records of several shrinks as they are, while the log has no room. Either it fails, or all
// shrinks succeed in place. A record that was deleted in place could not be brought back.
func (io *nodeIO) warm() error {
	if len(io.shrinks.ops) < 2 || io.store.WriteError() == nil {
		return nil
	}
	return io.session.Do(context.Background(), slices.Clone(io.shrinks.undo))
}

// errTorn is the error of writes of which some have taken effect and could not be undone.
var errTorn = errors.New("only a part of the change was written, and could not be undone")

// undoing appends what undoes those writes that have taken effect.
func (w *nodeWrites) undoing(ops []kv.Op) []kv.Op {
	for i := range w.ops {
		if w.ops[i].Err == nil {
			ops = append(ops, w.undo[i])
		}
	}
	return ops
}

func (w *nodeWrites) reset() {
	clear(w.ops)
	clear(w.undo)
	w.ops, w.undo = w.ops[:0], w.undo[:0]
}
