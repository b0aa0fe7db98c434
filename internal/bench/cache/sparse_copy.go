package cache

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redykv/redykv/internal/fabric/tcp"
)

// serveCopies serves plain copies until ctx ends, and returns their URL: the yardstick of moves,
// in the process whose servers move a region. A copy goes over a TCP connection of this process if
// the cache's transport is tcp, and from memory to memory otherwise.
func serveCopies(ctx context.Context, transport string) (string, error) {
	yard, err := newYardstick() // its memory stays until the process ends
	if err != nil {
		return "", err
	}
	copying := func(ctx context.Context, n int64, d time.Duration) error {
		yard.copyWithin(ctx, n, d)
		return ctx.Err()
	}
	if transport == tcp.Name {
		from, to, err := connection(ctx)
		if err != nil {
			return "", err
		}
		copying = func(_ context.Context, n int64, d time.Duration) error { return yard.sendWithin(from, to, n, d) }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
		d, errWithin := time.ParseDuration(r.FormValue("within"))
		if err = cmp.Or(err, errWithin); err == nil {
			err = copying(r.Context(), n, d)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	go func() { _ = s.Serve(l) }() // until Close
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return "http://" + l.Addr().String(), nil
}

// connection returns both ends of a TCP connection within this process, which ctx closes.
func connection(ctx context.Context) (from, to net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }() // the connection stays
	if from, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if to, err = l.Accept(); err != nil {
		_ = from.Close()
		return nil, nil, err
	}
	context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	return from, to, nil
}

// sendWithin is copyWithin over a connection, in pieces as large as a pull's over tcp.
func (y *yardstick) sendWithin(from io.Writer, to io.Reader, n int64, d time.Duration) error {
	const piece = 256 << 10
	received := make(chan error, 1)
	go func() {
		received <- paced(context.Background(), n, piece, 0, func(at, size int64) error {
			_, err := io.ReadFull(to, y.dst[at:at+size])
			return err
		})
	}()
	err := paced(context.Background(), n, piece, d, func(at, size int64) error {
		_, err := from.Write(y.src[at : at+size])
		return err
	})
	if err != nil {
		return err
	}
	return <-received
}

// copyLikeAMove has the process of the servers between which a region moves copy as many bytes in
// as much time.
func (m *sparse) copyLikeAMove(ctx context.Context, within time.Duration) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.servers.CopyURL+"?"+url.Values{
		"bytes": {strconv.FormatInt(m.RegionSize, 10)}, "within": {within.String()},
	}.Encode(), nil)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("a plain copy: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	if err != nil {
		return fmt.Errorf("a plain copy: %w", err)
	}
	return nil
}
