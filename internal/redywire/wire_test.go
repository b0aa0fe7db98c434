package redywire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

func TestHandshakeRoundTrip(t *testing.T) {
	hello := Hello{Ticket: Ticket{1, 2}, Responses: fabric.Token{3, 4}, Batch: MaxBatch, Depth: MaxDepth, Owner: 5 << 40, Generation: 6 << 20}
	b := hello.Encode()
	if len(b) > fabric.MaxPrivate {
		t.Errorf("hello takes %d bytes", len(b))
	}
	if got, err := DecodeHello(b); err != nil || got != hello {
		t.Errorf("hello came back as %+v, %v", got, err)
	}
	welcome := Welcome{Requests: fabric.Token{5, 6}}
	b = welcome.Encode()
	if got, err := DecodeWelcome(b); err != nil || got != welcome {
		t.Errorf("welcome came back as %+v, %v", got, err)
	}
	for n := range b {
		if _, err := DecodeWelcome(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("welcome of %d bytes: %v", n, err)
		}
	}
	for _, h := range []Hello{{Batch: 0, Depth: 1}, {Batch: 1, Depth: 0}, {Batch: MaxBatch + 1, Depth: 1}, {Batch: 1, Depth: MaxDepth + 1}} {
		if _, err := DecodeHello(h.Encode()); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

func TestMessageRoundTrip(t *testing.T) {
	const batch = 3
	slot := make([]byte, SlotSize(batch))
	var w Writer
	w.Reset(slot)
	w.Write(7, 1<<40, []byte("payload"))
	w.Read(8, 0, MaxPayload)
	w.Write(9, 5, nil)
	w.Seal(42)
	var r Reader
	if err := r.Open(slot, 42, batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []Request{
		{Op: OpWrite, Region: 7, Offset: 1 << 40, N: 7, Payload: []byte("payload")},
		{Op: OpRead, Region: 8, N: MaxPayload},
		{Op: OpWrite, Region: 9, Offset: 5},
	} {
		got, err := r.Request()
		if err != nil || got.Op != want.Op || got.Region != want.Region || got.Offset != want.Offset ||
			got.N != want.N || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("request %d is %+v, %v; want %+v", i, got, err, want)
		}
	}
	if r.More() {
		t.Error("requests left over")
	}

	w.Reset(slot)
	w.Respond(StatusOK, bytes.Repeat([]byte{9}, MaxPayload))
	w.Respond(StatusOutOfBounds, nil)
	w.Seal(43)
	if err := r.Open(slot, 43, batch); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Response(); err != nil || p.Status != StatusOK || len(p.Payload) != MaxPayload {
		t.Errorf("first response: %v, %v with %d bytes", err, p.Status, len(p.Payload))
	}
	if p, err := r.Response(); err != nil || p.Status != StatusOutOfBounds || len(p.Payload) != 0 {
		t.Errorf("second response: %+v, %v", p, err)
	}
}

// The largest batch with the largest payload fits its slot, as requests and as responses.
func TestSlotHoldsAnyBatch(t *testing.T) {
	for _, batch := range []int{1, 2, 64, MaxBatch} {
		slot := make([]byte, SlotSize(batch))
		var w Writer
		w.Reset(slot)
		w.Write(0, 0, make([]byte, MaxPayload))
		for range batch - 1 {
			w.Write(0, 0, nil)
		}
		w.Seal(1)
		w.Reset(slot)
		w.Respond(StatusOK, make([]byte, MaxPayload))
		for range batch - 1 {
			w.Respond(StatusOK, nil)
		}
		w.Seal(1)
	}
}

func TestFrameIsChecked(t *testing.T) {
	whole := func() []byte {
		slot := make([]byte, SlotSize(2))
		var w Writer
		w.Reset(slot)
		w.Read(0, 0, 8)
		w.Read(0, 8, 8)
		w.Seal(5)
		return slot
	}
	for name, spoil := range map[string]func([]byte){
		"another batch":   func(b []byte) { b[0]++ },
		"torn":            func(b []byte) { b[headerSize+2*requestSize]++ },
		"altered":         func(b []byte) { b[headerSize+requestSize+8] ^= 1 },
		"too short":       func(b []byte) { b[8] = headerSize },
		"too long":        func(b []byte) { b[11] = 0x7f },
		"negative length": func(b []byte) { b[11] = 0xff },
		"no entries":      func(b []byte) { b[12] = 0 },
		"too many":        func(b []byte) { b[12] = 3 },
	} {
		slot := whole()
		spoil(slot)
		var r Reader
		if err := r.Open(slot, 5, 2); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func([]byte){
		"unknown op":      func(b []byte) { b[headerSize] = 9 },
		"padding":         func(b []byte) { b[headerSize+1] = 1 },
		"reads too much":  func(b []byte) { b[headerSize+3] = 0xff },
		"write cut short": func(b []byte) { b[headerSize] = byte(OpWrite); b[headerSize+3] = 1 },
	} {
		slot := whole()
		spoil(slot)
		Reseal(slot)
		var r Reader
		if err := r.Open(slot, 5, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Request(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
