package manifest

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/redykv/redykv/device"
)

// RestoredLog is the log that recovery makes of a device's files and a chain of snapshots:
// the files up to Flushed, and above it the snapshots.
type RestoredLog struct {
	Files   io.ReaderAt
	Flushed int64
	layers  []snapshotLayer // a later one overrides the ones before
}

// snapshotLayer is the object of one snapshot, and its pieces in ascending order.
type snapshotLayer struct {
	object device.Object
	pieces []snapshotPiece
}

// snapshotPiece is n bytes of the log from addr on, at an offset of the object.
type snapshotPiece struct{ addr, n, off int64 }

// Add adds a snapshot above the ones before.
func (l *RestoredLog) Add(objects Opener, s LogPart) error {
	var layer snapshotLayer
	off := int64(0)
	err := s.Read(objects, func(addr int64, b []byte) error {
		layer.pieces = append(layer.pieces, snapshotPiece{addr, int64(len(b)), off + chunkHeader})
		off += chunkHeader + int64(len(b))
		return nil
	})
	if err == nil {
		layer.object, err = objects.OpenObject(s.Object)
	}
	if err == nil {
		l.layers = append(l.layers, layer)
	}
	return err
}

// ReadAt implements io.ReaderAt.
func (l *RestoredLog) ReadAt(p []byte, addr int64) (int, error) {
	below := int(min(max(l.Flushed-addr, 0), int64(len(p))))
	if below > 0 { // else the files need not have the address
		if n, err := l.Files.ReadAt(p[:below], addr); err != nil {
			return n, err
		}
	}
	p, addr = p[below:], addr+int64(below)
	clear(p)
	for i := range l.layers {
		if err := l.layers[i].read(p, addr); err != nil {
			return below, err
		}
	}
	return below + len(p), nil
}

// read reads the bytes that the snapshot holds of those from addr on.
func (l *snapshotLayer) read(p []byte, addr int64) error {
	end := addr + int64(len(p))
	first := sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].addr+l.pieces[i].n > addr })
	for _, piece := range l.pieces[first:] {
		from, to := max(addr, piece.addr), min(end, piece.addr+piece.n)
		if from >= to {
			break
		}
		if _, err := l.object.ReadAt(p[from-addr:to-addr], piece.off+from-piece.addr); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading a snapshot: %w", err)
		}
	}
	return nil
}

// Close closes the objects.
func (l *RestoredLog) Close() {
	for i := range l.layers {
		_ = l.layers[i].object.Close() // it was only read
	}
}
