package redywire

import (
	"bytes"
	"errors"
	"testing"
)

// Reading arbitrary bytes of a slot as requests ends, and stays within the slot and the limits
// of a batch. Encoding the decoded requests again gives the same bytes.
func FuzzRequests(f *testing.F) {
	slot := make([]byte, SlotSize(2))
	var w Writer
	w.Reset(slot)
	w.Write(1, 2, []byte("abc"))
	w.Read(3, 4, 5)
	f.Add(w.Seal(1), uint64(1), 2)
	f.Fuzz(func(t *testing.T, slot []byte, seq uint64, batch int) {
		Reseal(slot)
		var r Reader
		if err := r.Open(slot, seq, batch); err != nil {
			refused(t, err)
			return
		}
		again := make([]byte, len(slot)) // the encoding is not longer
		var w Writer
		w.Reset(again)
		reads := 0
		for r.More() {
			q, err := r.Request()
			if err != nil {
				refused(t, err)
				return
			}
			switch q.Op {
			case OpRead:
				reads += q.N
				w.Read(q.Region, int64(q.Offset), q.N)
			case OpWrite:
				if len(q.Payload) != q.N {
					t.Fatalf("write of %d with %d bytes", q.N, len(q.Payload))
				}
				w.Write(q.Region, int64(q.Offset), q.Payload)
			default:
				t.Fatalf("op %d", q.Op)
			}
		}
		if reads > MaxPayload || w.Count() > batch {
			t.Fatalf("%d requests read %d bytes", w.Count(), reads)
		}
		sealed := w.Seal(seq)
		if end := len(sealed) - trailerSize; !bytes.Equal(sealed[headerSize:end], slot[headerSize:end]) {
			t.Fatalf("%x is read as %x", slot, sealed)
		}
	})
}

// FuzzResponses is FuzzRequests for responses.
func FuzzResponses(f *testing.F) {
	slot := make([]byte, SlotSize(2))
	var w Writer
	w.Reset(slot)
	w.Respond(StatusOK, []byte("abc"))
	w.Respond(StatusOutOfBounds, nil)
	f.Add(w.Seal(1), uint64(1), 2)
	f.Fuzz(func(t *testing.T, slot []byte, seq uint64, batch int) {
		Reseal(slot)
		var r Reader
		if err := r.Open(slot, seq, batch); err != nil {
			refused(t, err)
			return
		}
		again := make([]byte, len(slot))
		var w Writer
		w.Reset(again)
		for r.More() {
			p, err := r.Response()
			if err != nil {
				refused(t, err)
				return
			}
			_ = p.Status.String()
			w.Respond(p.Status, p.Payload)
		}
		sealed := w.Seal(seq)
		if end := len(sealed) - trailerSize; !bytes.Equal(sealed[headerSize:end], slot[headerSize:end]) {
			t.Fatalf("%x is read as %x", slot, sealed)
		}
	})
}

func refused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrMalformed) {
		t.Fatalf("refused with %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(Hello{Batch: 1, Depth: 1}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHello(b)
		if err != nil {
			refused(t, err)
		} else if !bytes.Equal(h.Encode(), b[:helloSize]) {
			t.Fatalf("%x decodes to %+v", b, h)
		}
	})
}

func FuzzWelcome(f *testing.F) {
	f.Add(Welcome{}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := DecodeWelcome(b)
		if err != nil {
			refused(t, err)
		} else if !bytes.Equal(w.Encode(), b[:welcomeSize]) {
			t.Fatalf("%x decodes to %+v", b, w)
		}
	})
}
