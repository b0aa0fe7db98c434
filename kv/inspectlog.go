package kv

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// log walks the log of what is opened.
func (in *inspector) log() {
	m := in.manifest
	layout := hlog.VariableLayout()
	if m.KeySize > 0 {
		layout = hlog.FixedLayout(m.KeySize, m.ValueSize)
	}
	src := restoredLog{files: in.src, flushed: in.Log.Tail}
	defer src.close()
	if in.from != nil && in.from.Snapshot != "" {
		src.flushed = in.from.Flushed
		for _, s := range m.Snapshots(in.from) {
			if src.add(in.src, s) != nil { // told of with the snapshots
				in.Log.Tail = src.flushed
				break
			}
		}
	}
	in.src.LostSums(in.Log.Begin, min(in.Log.Tail, src.flushed), func(from, until int64, err error) {
		in.problem(fmt.Sprintf("the log from %d until %d", from, until),
			"restore that file: until then reads of what lies there fail, and opening the store may", err)
	})
	replayed := in.Log.Begin // Open reads the log from here on
	if in.state.Index != nil {
		replayed = in.state.Index.Start
	}
	hlog.Inspect(&src, layout, m.PageSize, in.Log.Begin, in.Log.Tail, in.record,
		func(addr, until int64, err error) { in.damagedPage(addr, until, until > replayed, err) })
	in.indexesDone()
}

// damagedPage is a problem between two addresses. It goes with the one before if
// that ends there and is the same.
func (in *inspector) damagedPage(addr, until int64, replayed bool, err error) {
	in.Log.Damaged++
	advice := "restore its segment: until then reads of what lies there fail"
	if replayed {
		advice = "restore its segment: until then the store cannot be opened"
	}
	if n := len(in.Checkpoints); n > 1 || n == 1 && in.from == nil {
		advice += "; an older checkpoint may do without it, name it in Options.Recover"
	}
	if n := len(in.Problems); n > 0 && in.damagedTo == addr && in.Problems[n-1].What == err.Error() && in.Problems[n-1].Advice == advice {
		addr = in.damagedFrom
		in.Problems = in.Problems[:n-1]
	}
	in.damagedFrom, in.damagedTo = addr, until
	in.problem(fmt.Sprintf("the log from %d until %d", addr, until), advice, err)
}

// restoredLog is the log as recovery makes it: the files' up to flushed, and above
// it what snapshots hold.
type restoredLog struct {
	files   io.ReaderAt
	flushed int64
	layers  []snapshotLayer // a later one covers those before
}

// snapshotLayer is one snapshot's object, and its pieces in ascending order.
type snapshotLayer struct {
	object device.Object
	pieces []snapshotPiece
}

// snapshotPiece is n bytes of the log from addr on, at an offset of the object.
type snapshotPiece struct{ addr, n, off int64 }

// add puts a snapshot on top.
func (l *restoredLog) add(objects manifest.Opener, s manifest.LogPart) error {
	var layer snapshotLayer
	off := int64(0)
	err := s.Read(objects, func(addr int64, b []byte) error {
		layer.pieces = append(layer.pieces, snapshotPiece{addr, int64(len(b)), off + manifest.ChunkHeader})
		off += manifest.ChunkHeader + int64(len(b))
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
func (l *restoredLog) ReadAt(p []byte, addr int64) (int, error) {
	below := int(min(max(l.flushed-addr, 0), int64(len(p))))
	if below > 0 { // else the files need not have the address
		if n, err := l.files.ReadAt(p[:below], addr); err != nil {
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

// read fills in what the snapshot has of the bytes from addr on.
func (l *snapshotLayer) read(p []byte, addr int64) error {
	end := addr + int64(len(p))
	first := sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].addr+l.pieces[i].n > addr })
	for _, piece := range l.pieces[first:] {
		from, to := max(addr, piece.addr), min(end, piece.addr+piece.n)
		if from >= to {
			break
		}
		if _, err := l.object.ReadAt(p[from-addr:to-addr], piece.off+from-piece.addr); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return nil
}

func (l *restoredLog) close() {
	for i := range l.layers {
		_ = l.layers[i].object.Close() // it was only read
	}
}
