package tcp

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// An import that fails on this side, or that was given up before its answer came, is released
// at the peer: the peer's handle of it is used again.
func TestFailedImportsAreReleased(t *testing.T) {
	for name, fail := range map[string]func(*testing.T, *queuePair, fabric.Token){
		"the table is full": func(t *testing.T, q *queuePair, token fabric.Token) {
			var last uint32
			for err := error(nil); err == nil; {
				var handle uint32
				if handle, err = q.imports.Put(remote{}); err == nil {
					last = handle
				}
			}
			if _, err := q.Import(t.Context(), token); !errors.Is(err, core.ErrManyImports) {
				t.Fatal(err)
			}
			q.imports.Delete(last)
		},
		"given up": func(_ *testing.T, q *queuePair, token fabric.Token) {
			q.send(&frame{kind: kindImport, length: tokenSize, imm: 1 << 20, body: token[:]})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Open(Options{})
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			q := connected(t, p)
			region, err := p.Alloc(64)
			if err != nil {
				t.Fatal(err)
			}
			fail(t, q, region.Token())
			const again = 1 << 16 // the first handle's successor
			var got []uint32
			for range 2 { // the release of what was given up may come after the first import
				r, err := q.Import(t.Context(), region.Token())
				if err != nil {
					t.Fatal(err)
				}
				q.imports.Adopt()
				theirs := q.imports.Get(r.Handle).handle
				if theirs == again {
					return
				}
				got = append(got, theirs)
				if name == "the table is full" {
					break
				}
			}
			t.Errorf("the peer's handles are %v, want %d among them", got, again)
		})
	}
}

// connected returns the dialling end of a connection of p with itself.
func connected(t *testing.T, p *Provider) *queuePair {
	t.Helper()
	l, err := p.Listen("", 1)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(context.Background())
		if err == nil {
			_, err = r.Accept(nil, fabric.ReadWrite)
		}
		accepted <- err
	}()
	q, err := p.Dial(t.Context(), l.Addr(), nil, 1)
	if err = errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
	return q.(*queuePair)
}
