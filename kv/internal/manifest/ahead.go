package manifest

import (
	"io"
	"sync"
)

// aheadBlocks blocks of aheadBlock bytes of an object are read at a time: a disk is as fast as it
// can be only then.
const (
	aheadBlock  = 1 << 20
	aheadBlocks = 8
)

// aheadReader reads an object from its beginning to its end, by one goroutine. Others read ahead.
type aheadReader struct {
	blocks  chan chan aheadRead // in the order of the object
	buffers chan []byte         // that are free
	stopped chan struct{}       // closed by stop
	group   sync.WaitGroup
	now     aheadRead // the block that Read takes from
	rest    []byte    // of it
}

// aheadRead is a block that was read, up to an error.
type aheadRead struct {
	bytes []byte
	err   error
}

func newAheadReader(object io.ReaderAt, size int64) *aheadReader {
	r := &aheadReader{
		blocks: make(chan chan aheadRead, aheadBlocks), buffers: make(chan []byte, aheadBlocks), stopped: make(chan struct{}),
	}
	for range min(aheadBlocks, size/aheadBlock+1) {
		r.buffers <- make([]byte, min(aheadBlock, size))
	}
	r.group.Go(func() { r.issue(object, size) })
	return r
}

// issue starts reads while there are buffers.
func (r *aheadReader) issue(object io.ReaderAt, size int64) {
	defer close(r.blocks)
	for at := int64(0); at < size; at += aheadBlock {
		var buffer []byte
		select {
		case buffer = <-r.buffers:
		case <-r.stopped:
			return
		}
		block := make(chan aheadRead, 1)
		r.blocks <- block // it has room for a block of each buffer
		r.group.Go(func() {
			want := buffer[:min(aheadBlock, size-at)]
			n, err := object.ReadAt(want, at)
			if n == len(want) {
				err = nil // such as io.EOF at the object's end
			}
			block <- aheadRead{buffer[:n], err}
		})
	}
}

// Read implements io.Reader.
func (r *aheadReader) Read(p []byte) (n int, err error) {
	for len(r.rest) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		if r.now.bytes != nil {
			r.buffers <- r.now.bytes[:cap(r.now.bytes)]
		}
		block, ok := <-r.blocks
		if !ok {
			r.now = aheadRead{err: io.EOF}
			continue
		}
		r.now = <-block
		r.rest = r.now.bytes
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// stop ends the reads. The object is not used any more.
func (r *aheadReader) stop() {
	close(r.stopped)
	r.group.Wait()
}
