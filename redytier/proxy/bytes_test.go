package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/redytier"
)

// Callers at once read what they wrote, also with one buffer for all of them, and over HTTP/2.
func TestCallers(t *testing.T) {
	for name, memory := range map[string]int64{"one buffer": MinMemory, "many buffers": 16 * MinMemory} {
		for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+" "+version, func(t *testing.T) {
				s := serve(t, Options{Memory: memory})
				if version == "HTTP/2.0" {
					protocols := new(http.Protocols)
					protocols.SetUnencryptedHTTP2(true)
					s.http.Transport = &http.Transport{Protocols: protocols}
				}
				const part, callers = 1 << 20, 4
				path := s.create(fmt.Sprintf(`{"capacity": %d, "region_size": 524288}`, part*callers))
				var running sync.WaitGroup
				for i := range int64(callers) {
					running.Go(func() { s.check(path, span{i * part, (i + 1) * part}) })
				}
				running.Wait()
				s.idle()
			})
		}
	}
}

// check writes and reads random ranges within at, and compares them with a model.
func (s *service) check(path string, at span) {
	model := make([]byte, at.length())
	random := rand.New(rand.NewPCG(1, uint64(at.from)))
	for range 20 {
		from := random.Int64N(at.length())
		length := 1 + random.Int64N(min(at.length()-from, 1<<random.IntN(21)))
		b := model[from : from+length]
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if a := s.write(path, at.from+from, b); a.status != http.StatusNoContent {
			s.t.Errorf("write: %d %s %v", a.status, a.body, a.err)
		}
		from = random.Int64N(at.length())
		length = 1 + random.Int64N(min(at.length()-from, 1<<random.IntN(21)))
		a := s.read(path, span{at.from + from, at.from + from + length})
		if a.err == nil && a.status != http.StatusPartialContent {
			a.err = fmt.Errorf("status %d", a.status)
		}
		testrun.Bytes(a.body, a.err).Want(s.t, model[from:from+length], "read of %d bytes at %d", length, from)
	}
}

// lost returns a service, and a cache whose lost memory is not replaced before release is called.
func lost(t *testing.T) (s *service, path string) {
	s = serve(t, Options{})
	hold := make(chan struct{})
	once := sync.OnceFunc(func() { close(hold) })
	s.proxy.opts.Base.OnEvent = func(e redytier.Event) {
		if e.Kind == redytier.DataLost {
			<-hold
		}
	}
	t.Cleanup(once)
	s.release = once
	path = s.create(`{"capacity": 4194304, "region_size": 1048576}`)
	return s, path
}

// Lost memory answers 503 until it is replaced, and the number of losses tells that the bytes are
// not what was written.
func TestLoss(t *testing.T) {
	s, path := lost(t)
	at := span{1<<20 - 2, 1<<20 + 2}
	if a := s.write(path, at.from, []byte("four")); a.status != http.StatusNoContent || a.header.Get(lossesHeader) != "0" {
		t.Fatalf("write: %d %s", a.status, a.body)
	}
	for _, r := range s.proxy.list()[0].redy.Regions()[:1] {
		if !s.vms.Kill(r.VM) {
			t.Fatalf("VM %s was not killed", r.VM)
		}
	}
	a := s.read(path, at)
	for end := time.Now().Add(testrun.Patience(time.Minute)); a.status == http.StatusPartialContent && time.Now().Before(end); a = s.read(path, at) {
	}
	unavailable := func(what string, a answer) {
		t.Helper()
		if a.status != http.StatusServiceUnavailable || a.code() != CodeRegion || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	unavailable("read", a)
	unavailable("read of all", s.do("GET", path+"/bytes", nil))
	a = s.write(path, at.from, []byte("more"))
	unavailable("write", a)
	if !strings.Contains(string(a.body), `"written":0`) {
		t.Errorf("write: %s", a.body)
	}
	unavailable("write of all", s.do("PUT", path+"/bytes", bytes.NewReader(make([]byte, 4<<20))))
	testrun.Until(t, "the cache tells of the loss", func() bool {
		a := s.do("GET", path, nil)
		return bytes.Contains(a.body, []byte(`"error":"`)) && !bytes.Contains(a.body, []byte(`"stable":4`))
	})
	s.release()
	for end := time.Now().Add(testrun.Patience(time.Minute)); a.status != http.StatusPartialContent && time.Now().Before(end); a = s.read(path, at) {
	}
	if string(a.body) != "\x00\x00\x00\x00" || a.header.Get(lossesHeader) != "2" { // of both regions
		t.Errorf("read after a loss: %d %q, losses %s", a.status, a.body, a.header.Get(lossesHeader))
	}
	if a := s.write(path, at.from, []byte("more")); a.status != http.StatusNoContent || a.header.Get(lossesHeader) != "2" {
		t.Errorf("write after a loss: %d %s", a.status, a.body)
	}
}

// A read during which memory is lost is cut off before other bytes.
func TestLossDuringRead(t *testing.T) {
	s, path := lost(t)
	c := s.proxy.list()[0]
	at := span{0, 4 << 20}
	tr, err := s.proxy.open(t.Context(), c, at)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.window.release()
	w := &lossyWriter{header: make(http.Header), lose: func() {
		s.vms.Kill(c.redy.Regions()[0].VM)
		testrun.Until(t, "the cache knows of the loss", func() bool { return c.redy.Err() != nil })
	}}
	err = tr.send(t.Context(), w, func(uint64) {})
	if !errors.Is(err, errCutOff) || !errors.Is(err, redytier.ErrRegionUnavailable) || w.pieces != 1 {
		t.Errorf("%v after %d pieces of %s", err, w.pieces, path)
	}
}

// lossyWriter has memory lost when the first piece is sent.
type lossyWriter struct {
	header http.Header
	pieces int
	lose   func()
}

func (w *lossyWriter) Header() http.Header { return w.header }
func (w *lossyWriter) WriteHeader(int)     {}
func (w *lossyWriter) Write(b []byte) (int, error) {
	if w.pieces++; w.pieces == 1 {
		w.lose()
	}
	return len(b), nil
}

// A body that is not as long as its range is an error, with what is stored of it.
func TestBodyLength(t *testing.T) {
	s := serve(t, Options{})
	path := s.create(`{"capacity": 4194304}`)
	chunked := func(n int) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("x", n))) } // without a length
	const want = 2*pieceSize + 10
	header := []string{"Content-Range", fmt.Sprintf("bytes 0-%d/*", want-1)}
	for n, written := range map[int]string{want - 1: `"written":524288`, 5: `"written":0`, 0: `"written":0`, want + 1: `"written":524298`} {
		a := s.do("PUT", path+"/bytes", chunked(n), header...)
		if a.status != http.StatusBadRequest || a.code() != CodeInvalid || !bytes.Contains(a.body, []byte(written)) {
			t.Errorf("%d bytes: %d %s", n, a.status, a.body)
		}
	}
	if a := s.do("PUT", path+"/bytes", chunked(want), header...); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.idle()
}

// A caller that stops in the middle of its request, or does not read its answer, is disconnected,
// and its buffers are free.
func TestSilentCallers(t *testing.T) {
	s := serve(t, Options{Timeout: 200 * time.Millisecond, Memory: 4 * MinMemory})
	path := s.create(`{"capacity": 67108864}`)
	silent := func(request string, check func(answer *bufio.Reader)) {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		check(bufio.NewReader(c))
		s.idle()
		_ = c.Close()
	}
	for busy := true; busy; s.proxy.opts.Timeout *= 2 { // the cache may take longer on a busy machine
		silent("PUT "+path+"/bytes HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n"+strings.Repeat("x", 2*pieceSize), func(answer *bufio.Reader) {
			resp, err := http.ReadResponse(answer, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			busy = resp.StatusCode == http.StatusGatewayTimeout && s.proxy.opts.Timeout < testrun.Bound
			if !busy && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("half a body: %v", resp)
			}
		})
	}
	silent("GET "+path+"/bytes HTTP/1.1\r\nHost: x\r\n\r\n", func(answer *bufio.Reader) {
		if _, err := answer.ReadByte(); err != nil { // the answer has begun
			t.Error(err)
		}
	})
}

// Too many requests at once are refused.
func TestBusy(t *testing.T) {
	s := serve(t, Options{MaxRequests: 1, Timeout: time.Minute})
	path := s.create(`{"capacity": 1048576}`)
	body, rest := io.Pipe()
	ended := make(chan answer)
	go func() { ended <- s.do("PUT", path+"/bytes", body, "Content-Range", "bytes 0-1/*") }()
	_, _ = rest.Write([]byte("a"))
	testrun.Until(t, "the write has a buffer", func() bool { return s.proxy.Metrics().BuffersUsed > 0 })
	if a := s.do("GET", path, nil); a.status != http.StatusServiceUnavailable || a.code() != CodeBusy {
		t.Errorf("%d %s", a.status, a.body)
	}
	_, _ = rest.Write([]byte("b"))
	_ = rest.Close()
	if a := testrun.Receive(t, "the request ends", ended); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A request waits for a buffer, and is refused when none is free in time.
func TestNoBuffer(t *testing.T) {
	s := serve(t, Options{Memory: MinMemory, Timeout: 50 * time.Millisecond})
	path := s.create(`{"capacity": 1048576}`)
	w, err := s.proxy.pieces.take(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if a := s.read(path, span{0, 1}); a.status != http.StatusServiceUnavailable || a.code() != CodeBusy {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.release()
	s.proxy.opts.Timeout = time.Minute
	if a := s.read(path, span{0, 1}); a.status != http.StatusPartialContent {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A deleted cache ends the requests that use it.
func TestDeleteDuringWrite(t *testing.T) {
	s := serve(t, Options{})
	path := s.create(`{"capacity": 1048576}`)
	body, rest := io.Pipe()
	ended := make(chan answer)
	go func() { ended <- s.do("PUT", path+"/bytes", body, "Content-Range", "bytes 0-1/*") }()
	_, _ = rest.Write([]byte("a"))
	testrun.Until(t, "the write has a buffer", func() bool { return s.proxy.Metrics().BuffersUsed > 0 })
	if a := s.do("DELETE", path, nil); a.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	_, _ = rest.Write([]byte("b"))
	_ = rest.Close()
	if a := testrun.Receive(t, "the request ends", ended); a.status != http.StatusNotFound || a.code() != CodeNotFound {
		t.Errorf("write: %d %s", a.status, a.body)
	}
}

// slowManager answers Allocate when its caller has given up.
type slowManager struct {
	redytier.Manager
	asked chan struct{}
}

func (m slowManager) Allocate(ctx context.Context, _ *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A cache is not created for a caller that has gone, nor by a proxy that ends, nor for longer
// than CreateTimeout.
func TestCreateEnds(t *testing.T) {
	s := serve(t, Options{CreateTimeout: 20 * time.Millisecond})
	asked := make(chan struct{}, 16)
	s.proxy.mgr = slowManager{s.mgr, asked}
	create := func() answer {
		return s.do("POST", "/v1/caches", strings.NewReader(`{"capacity": 1048576}`), "Content-Type", "application/json")
	}
	if a := create(); a.status != http.StatusGatewayTimeout || a.code() != CodeTimeout {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.proxy.opts.CreateTimeout = time.Hour
	testrun.Receive(t, "the manager is asked", asked)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.proxy.create(ctx, redytier.Config{Capacity: 1 << 20, Logger: s.proxy.log})
		failed <- err
	}()
	testrun.Receive(t, "the manager is asked", asked)
	cancel()
	if err := testrun.Receive(t, "the call ends", failed); err == nil || s.proxy.claims != 0 {
		t.Errorf("%v, %d claims", err, s.proxy.claims)
	}
	ended := make(chan answer)
	go func() { ended <- create() }()
	for range 2 { // pendingCache asks once more
		testrun.Receive(t, "the manager is asked", asked)
	}
	closing, end := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer end()
	if err := s.proxy.Close(closing); err != nil {
		t.Error(err)
	}
	if a := testrun.Receive(t, "the request ends", ended); a.err == nil && a.status < 500 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if _, err := s.proxy.create(t.Context(), redytier.Config{}); err == nil || problemOf(err).code != CodeBusy {
		t.Errorf("create after Close: %v", err)
	}
}

// deafManager does not answer Deallocate.
type deafManager struct{ redytier.Manager }

func (deafManager) Deallocate(context.Context, *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error) {
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("deaf"))
}

// A cache whose manager does not answer answers no longer and can be deleted again. Close names
// it.
func TestDeleteFails(t *testing.T) {
	s := serve(t, Options{})
	s.proxy.mgr = deafManager{s.mgr}
	path := s.create(`{"capacity": 1048576}`)
	for range 2 {
		if a := s.do("DELETE", path, nil); a.status != http.StatusServiceUnavailable || a.code() != CodeUnavailable {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
		if a := s.read(path, span{0, 1}); a.code() != CodeNotFound {
			t.Errorf("read: %d %s", a.status, a.body)
		}
	}
	c := s.proxy.list()[0]
	if err := s.proxy.Close(t.Context()); err == nil || !strings.Contains(err.Error(), c.id) {
		t.Errorf("Close: %v", err)
	}
	if _, err := s.mgr.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: c.id})); err != nil {
		t.Error(err)
	}
	delete(s.proxy.caches, c.id)
}

// The JSON of a request gives a configuration or an error of the caller's.
func FuzzRequest(f *testing.F) {
	f.Add(`{"capacity": 1048576, "slo": {"max_latency_us": 5, "min_throughput_mops": 1, "record_size": 8, "operations": "reads"}, "configuration": {"client_threads": 1}}`)
	f.Add(`{"capacity": -1, "duration_seconds": 99999999999}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(text))
		if err != nil {
			t.Skip(err)
		}
		r.Header.Set("Content-Type", "application/json")
		q, err := readRequest(nil, r)
		if err == nil {
			var c redytier.Config
			c, err = q.config(redytier.Config{})
			if err == nil && (c.Capacity < redytier.MinRegionSize || c.Duration < 0 || c.SLO.MaxLatency < 0 || (c.SLO.MaxLatency == 0) != (q.SLO.MaxLatencyUs == 0)) {
				t.Errorf("%s: %+v", text, c)
			}
		}
		if err != nil {
			if code := problemOf(err).code; code != CodeInvalid && code != CodeTooLarge {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
