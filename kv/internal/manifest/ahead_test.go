package manifest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/redykv/redykv/internal/testrun"
)

// failing is a file whose bytes from an offset on cannot be read.
type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, at)
}

func TestAheadReader(t *testing.T) {
	defer testrun.NoLeaks(t)
	all := make([]byte, (2*aheadBlocks+1)*aheadBlock+5)
	for i := range all {
		all[i] = byte(i / 1000)
	}
	for _, size := range []int{0, 1, aheadBlock - 1, aheadBlock, aheadBlock + 1, len(all)} {
		r := newAheadReader(bytes.NewReader(all), int64(size))
		if err := iotest.TestReader(r, all[:size]); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		r.stop()
	}
	bad := errors.New("a bad sector")
	r := newAheadReader(failing{bytes.NewReader(all), 3 * aheadBlock, bad}, int64(len(all)))
	got, err := io.ReadAll(r)
	if !errors.Is(err, bad) || !bytes.Equal(got, all[:3*aheadBlock]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	r.stop()
	r = newAheadReader(bytes.NewReader(all), int64(len(all)))
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	r.stop() // in the middle
}
