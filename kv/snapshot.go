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

// restoreSnapshots writes the log that a chain of snapshots holds to the device, which was
// started at tail. The tail is not below the beginning of the last snapshot. It can be
// repeated after an error.
//
// The device has everything below tail. The block that contains tail is written once, when
// its last version is known, since older versions may differ below tail.
func restoreSnapshots(dev device.Device, chain []manifest.LogPart, tail int64) (restored int64, err error) {
	top := chain[len(chain)-1]
	w, err := newLogWriter(dev)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.queue.Close()) }()
	from := restoredFrom(dev, chain, tail)
	var shared []byte // the block that contains tail
	if from < tail {
		shared = make([]byte, min(from+w.alignment, top.To)-from)
	}
	for _, s := range chain {
		err := s.Read(dev, func(addr int64, b []byte) error {
			b = b[min(max(from-addr, 0), int64(len(b))):]
			addr = max(addr, from)
			restored += int64(len(b))
			if at := addr - from; at < int64(len(shared)) {
				n := copy(shared[at:], b)
				addr, b = addr+int64(n), b[n:]
			}
			return w.add(addr, b)
		})
		if err == nil {
			err = w.flush()
		}
		if err != nil {
			return restored, fmt.Errorf("restoring the log from object %q: %w", s.Object, err)
		}
	}
	err = w.add(from, shared)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = dev.Sync()
	}
	if err != nil {
		return restored, fmt.Errorf("restoring the log from object %q: %w", top.Object, err)
	}
	return restored, nil
}

// restoredFrom is the address from which restoreSnapshots writes.
func restoredFrom(dev device.Device, chain []manifest.LogPart, tail int64) int64 {
	return max(chain[len(chain)-1].From, tail&^int64(dev.Alignment()-1))
}

// logWriter writes bytes to the log on a device, in whole blocks.
type logWriter struct {
	queue     device.Queue
	alignment int64
	buffer    []byte
	addr      int64 // where the buffer goes
	n         int   // bytes in the buffer
}

func newLogWriter(dev device.Device) (*logWriter, error) {
	queue, err := dev.NewQueue(1)
	if err != nil {
		return nil, fmt.Errorf("opening a queue on the device: %w", err)
	}
	size := max(manifest.MaxChunk, dev.Alignment())
	return &logWriter{
		queue: queue, alignment: int64(dev.Alignment()), buffer: device.AlignedBuffer(size, dev.Alignment()),
	}, nil
}

// add writes b at addr, which follows what was added before or is the start of a block.
func (w *logWriter) add(addr int64, b []byte) error {
	for len(b) > 0 {
		if w.n > 0 && (addr != w.addr+int64(w.n) || w.n == len(w.buffer)) {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if w.n == 0 {
			w.addr = addr
		}
		n := copy(w.buffer[w.n:], b)
		w.n += n
		addr, b = addr+int64(n), b[n:]
	}
	return nil
}

// flush writes the buffer, and zeros up to the end of its last block. If the log goes on
// there, the block is written again with the rest.
func (w *logWriter) flush() error {
	if w.n == 0 {
		return nil
	}
	n := (w.n + int(w.alignment) - 1) &^ (int(w.alignment) - 1)
	clear(w.buffer[w.n:n])
	w.n = 0
	if err := device.Finish(context.Background(), w.queue, w.queue.Write(w.buffer[:n], w.addr, 0)); err != nil {
		return fmt.Errorf("writing %d bytes at %d: %w", n, w.addr, err)
	}
	return nil
}
