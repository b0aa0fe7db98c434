package kv

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// A snapshot is a copy of the part of the log that the device may not have: the memory
// from the address Flushed to the tail. While it is written, records below its tail are
// not updated in place: sessions use Store.snapshotTail as their read-only address.
// Afterwards the log is as mutable as before.

// minBlock is the block size of incremental snapshots, in bytes. A device with a larger
// alignment has larger blocks.
const minBlock = 4096

// blockHash is a collision-resistant hash of the bytes of one block that are in a snapshot,
// and of the address where they start. Equal hashes mean unchanged bytes.
type blockHash [16]byte

const addressSize = 8

// blockHashes are the hashes of all blocks of a snapshot.
type blockHashes struct {
	sequence uint64 // of its checkpoint
	first    int64  // number of the first block
	hashes   []blockHash
}

// holds reports whether the snapshot has the block with that hash; h may be nil.
func (h *blockHashes) holds(block int64, hash blockHash) bool {
	if h == nil {
		return false
	}
	i := block - h.first
	return i >= 0 && i < int64(len(h.hashes)) && h.hashes[i] == hash
}

// snapshot makes the state of a Snapshot or an Incremental durable: the device has the log
// up to Flushed, and an object has the rest. It returns the hashes of the object's blocks.
func (st *Store) snapshot(ctx context.Context, c *manifest.Checkpoint, m *manifest.Manifest) (*blockHashes, error) {
	base := st.checkpointer.blocks
	if c.Kind == Incremental && (base == nil || m.Numbered(base.sequence) == nil) {
		c.Kind = Snapshot
	}
	if c.Kind == Incremental {
		c.Base = base.sequence
	} else {
		base = nil
	}
	c.Snapshot = st.newObject(snapshotObject)
	w, err := manifest.CreateObject(ctx, st.dev, c.Snapshot, manifest.LogChunk)
	if err != nil {
		return nil, err
	}
	err = st.exclusive(ctx, func() {
		st.enterState(&c.State)
		c.Flushed = st.log.Hold()
		st.snapshotTail = c.Tail
	})
	if err != nil {
		return nil, w.Abort(err)
	}
	hashes, err := st.writeSnapshot(ctx, w, c.Flushed, c.Tail, base)
	st.log.UnholdAll()
	err = errors.Join(err, st.exclusive(context.WithoutCancel(ctx), func() { st.snapshotTail = 0 }))
	if err != nil {
		return nil, w.Abort(err)
	}
	c.Bytes += w.Bytes()
	if err := device.Retry(ctx, st.dev.Sync); err != nil { // what is below Flushed
		return nil, fmt.Errorf("syncing the log up to %d: %w", c.Flushed, err)
	}
	return hashes, nil
}

// writeSnapshot writes the memory from one address to another to an object. The memory is
// on hold, and nothing in it is updated in place. Blocks that base holds are left out. It
// returns the hashes of all blocks.
func (st *Store) writeSnapshot(ctx context.Context, w *manifest.ObjectWriter, from, to int64, base *blockHashes) (*blockHashes, error) {
	size := max(minBlock, int64(st.dev.Alignment()))
	hashes := &blockHashes{first: from / size}
	block := make([]byte, addressSize, addressSize+size) // begins with its address; it may span pages
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start, end := at, min((at/size+1)*size, to)
		binary.LittleEndian.PutUint64(block, uint64(start))
		block = block[:addressSize]
		for at < end {
			block = st.log.AppendHeld(block, at, end)
			at = start + int64(len(block)-addressSize)
		}
		sum := sha256.Sum256(block)
		hash := blockHash(sum[:len(blockHash{})])
		hashes.hashes = append(hashes.hashes, hash)
		if !base.holds(start/size, hash) {
			if err := w.Add(start, 1, block[addressSize:]); err != nil {
				return nil, err
			}
		}
		st.log.Unhold(at)
	}
	return hashes, w.Commit()
}
