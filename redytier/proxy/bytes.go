package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/redykv/redykv/redytier"
)

// lossesHeader has the number of losses of the memory of a request's bytes.
const lossesHeader = "Redykv-Losses"

// transfer is one request that reads or writes the bytes at of a cache, by pieces.
type transfer struct {
	proxy  *Proxy
	redy   *redytier.Cache
	client *redytier.Client // its own, so that requests use all client threads
	at     span
	window *window
	losses uint64 // of the memory, when the transfer began
}

// open returns a transfer. The caller releases its window.
func (p *Proxy) open(ctx context.Context, c *cache, at span) (*transfer, error) {
	t := &transfer{proxy: p, redy: c.redy, client: c.redy.NewClient(), at: at}
	var err error
	if t.losses, err = c.redy.Losses(at.from, at.length()); err != nil {
		return nil, err
	}
	if err := t.available(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	t.window, err = p.pieces.take(ctx, at.length())
	return t, err
}

// available returns an error if some memory of a transfer with several pieces is lost. Otherwise
// a read would be cut off there. A single piece finds out by itself.
func (t *transfer) available() error {
	if t.pieces() < 2 || t.redy.Err() == nil {
		return nil
	}
	for _, r := range t.redy.Regions() {
		if r.From < t.at.to && r.To > t.at.from && (r.State == redytier.Lost || r.State == redytier.Recovering) {
			return fmt.Errorf("%w: the bytes %d to %d are %v", redytier.ErrRegionUnavailable, r.From, r.To-1, r.State)
		}
	}
	return nil
}

// pieces returns the number of the transfer's pieces.
func (t *transfer) pieces() int64 { return (t.at.length() + pieceSize - 1) / pieceSize }

// piece returns the address and the length of a piece.
func (t *transfer) piece(number int64) (addr, length int64) {
	addr = t.at.from + number*pieceSize
	return addr, min(pieceSize, t.at.to-addr)
}

// start begins to read or write a piece at the cache.
func (t *transfer) start(ctx context.Context, write bool, number int64) {
	ctx, cancel := context.WithTimeout(ctx, t.proxy.opts.Timeout)
	defer cancel()
	addr, length := t.piece(number)
	t.window.at(number).start(ctx, t.client, write, length, addr)
}

// wait returns the result of the access to a piece.
func (t *transfer) wait(ctx context.Context, number int64) error {
	ctx, cancel := context.WithTimeout(ctx, t.proxy.opts.Timeout)
	defer cancel()
	err := t.window.at(number).wait(ctx)
	if err == nil {
		return nil
	}
	addr, length := t.piece(number)
	return fmt.Errorf("%d bytes at %d: %w", length, addr, err)
}

// kept returns an error if memory of the transfer was lost since it began.
func (t *transfer) kept() error {
	losses, err := t.redy.Losses(t.at.from, t.at.length())
	if err == nil && losses != t.losses {
		err = fmt.Errorf("%w: it was lost during the request", redytier.ErrRegionUnavailable)
	}
	return err
}

// readBytes answers with the bytes of a range. The status is sent when the first piece has been
// read: an error before is an answer of its own.
func (p *Proxy) readBytes(w http.ResponseWriter, r *http.Request) error {
	c, err := p.find(r)
	if err != nil {
		return err
	}
	capacity := c.redy.Capacity()
	at, part, err := requestedRange(r.Header, capacity)
	if err != nil {
		return err
	}
	status := http.StatusOK
	h := w.Header()
	if part {
		status = http.StatusPartialContent
	}
	begin := func(losses uint64) {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.FormatInt(at.length(), 10))
		h.Set("Accept-Ranges", "bytes")
		if part {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at.from, at.to-1, capacity))
		}
		h.Set(lossesHeader, strconv.FormatUint(losses, 10))
		w.WriteHeader(status)
	}
	if r.Method == http.MethodHead {
		losses, err := c.redy.Losses(at.from, at.length())
		if err == nil {
			begin(losses)
		}
		return err
	}
	t, err := p.open(r.Context(), c, at)
	if err != nil {
		return err
	}
	defer t.window.release()
	return t.send(r.Context(), w, begin)
}

// send reads the bytes and writes them to w. It calls begin before the first.
func (t *transfer) send(ctx context.Context, w http.ResponseWriter, begin func(losses uint64)) error {
	ahead := int64(len(t.window.slots))
	for i := range min(ahead, t.pieces()) {
		t.start(ctx, false, i)
	}
	for i := range t.pieces() {
		err := t.wait(ctx, i)
		if err == nil {
			err = t.kept()
		}
		switch {
		case err != nil && i == 0:
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", errCutOff, err)
		case i == 0:
			begin(t.losses)
		}
		t.proxy.giveTime(w)
		_, length := t.piece(i)
		if _, err := w.Write(t.window.at(i).piece[:length]); err != nil {
			return fmt.Errorf("%w: the caller does not read: %w", errCutOff, err)
		}
		t.proxy.counts.reads(length)
		if i+ahead < t.pieces() {
			t.start(ctx, false, i+ahead)
		}
	}
	return nil
}

// writeBytes writes a request's body to the cache. It answers when all bytes are stored.
func (p *Proxy) writeBytes(w http.ResponseWriter, r *http.Request) error {
	c, err := p.find(r)
	if err != nil {
		return err
	}
	at, err := contentRange(r.Header, c.redy.Capacity())
	if err != nil {
		return err
	}
	if r.ContentLength >= 0 && r.ContentLength != at.length() {
		return problemf(CodeInvalid, "the body has %d bytes: want the %d from %d to %d, as Content-Range says, or all without it",
			r.ContentLength, at.length(), at.from, at.to-1)
	}
	p.awaitBody(w, 2) // while it waits for a buffer
	t, err := p.open(r.Context(), c, at)
	if err != nil {
		return err
	}
	defer t.window.release()
	if stored, err := t.receive(r.Context(), w, r.Body); err != nil {
		reason := *problemOf(err)
		if t.kept() != nil {
			stored = 0 // what was stored may be lost
		}
		reason.written = &stored
		return &reason
	}
	w.Header().Set(lossesHeader, strconv.FormatUint(t.losses, 10))
	p.giveTime(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// receive writes the body of a request to the cache. It returns how many bytes from its start are
// stored: all without an error.
func (t *transfer) receive(ctx context.Context, w http.ResponseWriter, body io.Reader) (stored int64, err error) {
	ahead := int64(len(t.window.slots))
	settle := func(number int64) error {
		// The end of the body's connection ends ctx, but the piece is stored nevertheless.
		if err := t.wait(context.WithoutCancel(ctx), number); err != nil {
			return err
		}
		_, length := t.piece(number)
		stored += length
		t.proxy.counts.writes(length)
		return nil
	}
	pending := int64(0) // number of the first piece that is not settled
	for i := range t.pieces() {
		if i-pending == ahead { // the buffer is in use
			if err := settle(pending); err != nil {
				return stored, err
			}
			pending++
		}
		_, length := t.piece(i)
		if err = t.fill(w, body, t.window.at(i).piece[:length], i*pieceSize); err != nil {
			break
		}
		t.start(ctx, true, i)
	}
	if err == nil {
		err = t.ended(w, body)
	}
	for ; pending < t.pieces() && t.window.at(pending).pending; pending++ {
		if failed := settle(pending); failed != nil {
			return stored, failed
		}
	}
	if err == nil {
		err = t.kept()
	}
	return stored, err
}

// fill reads the next bytes of a body, before which there were before bytes.
func (t *transfer) fill(w http.ResponseWriter, body io.Reader, into []byte, before int64) error {
	t.proxy.awaitBody(w, 1)
	n, err := io.ReadFull(body, into)
	if err == nil {
		t.proxy.awaitBody(w, 2) // the deadline must not pass while the cache is waited for
		return nil
	}
	t.proxy.giveTime(w)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return problemf(CodeInvalid, "the body ends after %d bytes of %d: %w", before+int64(n), t.at.length(), err)
}

// ended returns an error if a body has more bytes.
func (t *transfer) ended(w http.ResponseWriter, body io.Reader) error {
	t.proxy.awaitBody(w, 1)
	if n, _ := io.ReadFull(body, make([]byte, 1)); n > 0 {
		return problemf(CodeInvalid, "the body has more than the %d bytes of the range", t.at.length())
	}
	return nil
}

// awaitBody bounds the time for the next bytes of a body to some timeouts. The server removes the
// deadline at the end of the body. Until then it bounds what the server reads of the rest, after
// the handler has returned.
func (p *Proxy) awaitBody(w http.ResponseWriter, timeouts time.Duration) {
	// It fails only if the connection has ended, or for a writer of tests.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeouts * p.opts.Timeout))
}
