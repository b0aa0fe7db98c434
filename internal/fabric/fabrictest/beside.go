package fabrictest

import (
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// lentRegion is a region of the server, and its handle once it is imported.
type lentRegion struct {
	region fabric.Region
	remote fabric.Remote
}

// testImportBesideOwner imports regions on another goroutine while the owner writes to those that
// it got before, and releases some.
func testImportBesideOwner(t *testing.T, open Open) {
	const regions, kept = 200, 20
	l := connect(t, open, 4)
	imported := make(chan lentRegion, kept)
	go func() {
		defer close(imported)
		for range regions {
			r, err := l.server.Alloc(64)
			if err != nil {
				t.Errorf("alloc: %v", err)
				return
			}
			remote, err := l.here.Import(deadline(t), r.Token())
			if err != nil {
				t.Errorf("import: %v", err)
				return
			}
			imported <- lentRegion{r, remote}
		}
	}()
	var known []lentRegion
	for count := 0; ; count++ {
		select {
		case r, more := <-imported:
			if !more {
				return
			}
			known = append(known, r)
		default:
		}
		if len(known) == 0 {
			continue
		}
		r, b := known[count%len(known)], byte(count)
		write(t, l.here, []byte{b}, r.remote, 63)
		if got := r.region.Bytes()[63]; got != b {
			t.Fatalf("a region has byte %d, %d was written", got, b)
		}
		if len(known) > kept {
			l.here.Release(known[0].remote)
			check(t, l.here.Read(make([]byte, 1), known[0].remote, 0, 1))
			check(t, l.here.Submit())
			wantError(t, next(t, l.here).Err, fabric.ErrBadToken, "access after release")
			known = known[1:]
		}
	}
}

// testCloseEndsImport closes a queue pair while another goroutine imports regions.
func testCloseEndsImport(t *testing.T, open Open) {
	l := connect(t, open, 4)
	r, err := l.server.Alloc(64)
	check(t, err)
	imports, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for {
			if _, err := l.here.Import(deadline(t), r.Token()); err != nil {
				ended <- err
				return
			}
			select {
			case imports <- struct{}{}:
			default:
			}
		}
	}()
	<-imports
	check(t, l.here.Close())
	if err := <-ended; !errors.Is(err, fabric.ErrClosed) && !errors.Is(err, fabric.ErrDisconnected) {
		t.Errorf("import on a closed queue pair: %v", err)
	}
}
