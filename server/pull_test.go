package server

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
)

// lendBig lends regions of size bytes under a grant, without threads.
func lendBig(t testing.TB, client serverv1connect.CacheServerServiceClient, grant string, regions int, size int64) *serverv1.ConnectResponse {
	t.Helper()
	answer, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: &managerv1.Terms{CacheId: "cache", Grant: grant, Regions: uint32(regions), RegionSize: uint64(size), Cores: 16},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

// pullFrom is a request to pull the first bytes of all of a source's regions.
func pullFrom(source, target *serverv1.ConnectResponse, grant string, n int64) *serverv1.PullRequest {
	m := &serverv1.PullRequest{
		CacheId: "cache", Grant: grant, Ticket: target.Ticket, FabricAddr: source.FabricAddr, SourceTicket: readingOf(source.Ticket),
	}
	for i, token := range source.RegionTokens {
		m.Regions = append(m.Regions, &serverv1.PullRegion{SourceToken: token, Target: uint32(i), Bytes: uint64(n)})
	}
	return m
}

// pullAll calls Pull and returns what it streamed.
func pullAll(ctx context.Context, client serverv1connect.CacheServerServiceClient, m *serverv1.PullRequest) (got []*serverv1.PullResponse, err error) {
	stream, err := client.Pull(ctx, connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	for stream.Receive() {
		got = append(got, stream.Msg())
	}
	err = stream.Err()
	_ = stream.Close()
	return got, err
}

// memoryOf returns a region's memory, which the test's fabric does not access any more.
func memoryOf(s *Server, grant string, region int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (*s.grants[grantID{"cache", grant}].memory.Load())[region]
}

// Whole regions and parts of regions are copied in the requested order, over every transport
// and over a modelled network. The rest of the target does not change.
func TestPull(t *testing.T) {
	const size = 3*pullChunk + 12345
	for _, transport := range transporttest.Names(t) {
		for _, net := range []string{"", "1:20us,100Gbit;3:1ms,1Gbit"} {
			t.Run(transport+net, func(t *testing.T) {
				from, fromClient := newServer(t, Options{Memory: 64 << 20, Transport: transport})
				to, toClient := newServer(t, Options{Memory: 64 << 20, Transport: transport})
				source, target := lendBig(t, fromClient, "old", 3, size), lendBig(t, toClient, "new", 3, size)
				for i := range 3 {
					for b := memoryOf(from, "old", i); len(b) > 0; b = b[min(len(b), 1000):] {
						b[0] = byte(rand.Uint32())
					}
				}
				m := pullFrom(source, target, "new", size)
				m.Regions[1].Bytes = pullChunk + 1
				m.Regions[0], m.Regions[2] = m.Regions[2], m.Regions[0]
				m.Net = net
				m.Prepare = true
				if got, err := pullAll(t.Context(), toClient, m); len(got) > 0 || err != nil {
					t.Fatalf("a call that only prepares: %v, %v", got, err)
				}
				if n := to.Metrics().Pulled; n > 0 {
					t.Fatalf("a call that only prepares copied %d bytes", n)
				}
				m.Prepare = false
				got, err := pullAll(t.Context(), toClient, m)
				if err != nil {
					t.Fatal(err)
				}
				ends := 0
				for _, r := range got {
					if want := m.Regions[ends]; r.Target != want.Target || r.Copied > want.Bytes {
						t.Errorf("progress %v where region %d is copied", r, want.Target)
					} else if r.Copied == want.Bytes {
						ends++
					}
				}
				if ends != 3 {
					t.Errorf("%d regions reported: %v", ends, got)
				}
				for i := range 3 {
					want := append([]byte(nil), memoryOf(from, "old", i)...)
					if i == 1 {
						clear(want[pullChunk+1:])
					}
					if !bytes.Equal(memoryOf(to, "new", i), want) {
						t.Errorf("region %d differs", i)
					}
				}
				if n := to.Metrics().Pulled; n != 2*size+pullChunk+1 {
					t.Errorf("%d bytes pulled", n)
				}
			})
		}
	}
}

func TestPullIsChecked(t *testing.T) {
	_, fromClient := newServer(t, Options{Memory: 64 << 20})
	_, toClient := newServer(t, Options{Memory: 64 << 20})
	source, target := lendBig(t, fromClient, "old", 2, regionSize), lendBig(t, toClient, "new", 2, 2*regionSize)
	for name, tc := range map[string]struct {
		spoil func(m *serverv1.PullRequest)
		code  connect.Code
		says  string
	}{
		"no grant":          {func(m *serverv1.PullRequest) { m.Grant = "old" }, connect.CodeNotFound, "old"},
		"no ticket":         {func(m *serverv1.PullRequest) { m.Ticket = nil }, connect.CodePermissionDenied, "ticket"},
		"wrong ticket":      {func(m *serverv1.PullRequest) { m.Ticket = source.Ticket }, connect.CodePermissionDenied, "ticket"},
		"no source ticket":  {func(m *serverv1.PullRequest) { m.SourceTicket = nil }, connect.CodeInvalidArgument, "ticket"},
		"no such region":    {func(m *serverv1.PullRequest) { m.Regions[1].Target = 2 }, connect.CodeInvalidArgument, "region 2"},
		"too many bytes":    {func(m *serverv1.PullRequest) { m.Regions[1].Bytes = 2*regionSize + 1 }, connect.CodeInvalidArgument, "131073"},
		"bad token":         {func(m *serverv1.PullRequest) { m.Regions[1].SourceToken = []byte("short") }, connect.CodeInvalidArgument, "token 1"},
		"bad network":       {func(m *serverv1.PullRequest) { m.Net = "fast" }, connect.CodeInvalidArgument, "fast"},
		"too many regions":  {func(m *serverv1.PullRequest) { m.Regions = make([]*serverv1.PullRegion, maxPullRegions+1) }, connect.CodeInvalidArgument, "1025"},
		"more than source":  {func(m *serverv1.PullRequest) { m.Regions[0].Bytes = 2 * regionSize }, connect.CodeInvalidArgument, source.FabricAddr},
		"strange source":    {func(m *serverv1.PullRequest) { m.SourceTicket = readingOf(target.Ticket) }, connect.CodeUnavailable, source.FabricAddr},
		"nobody there":      {func(m *serverv1.PullRequest) { m.FabricAddr = "nowhere" }, connect.CodeUnavailable, "nowhere"},
		"unknown token":     {func(m *serverv1.PullRequest) { m.Regions[0].SourceToken = make([]byte, 16) }, connect.CodeUnavailable, source.FabricAddr},
		"of another tenant": {func(m *serverv1.PullRequest) { m.Regions[0].SourceToken = target.RegionTokens[0] }, connect.CodeUnavailable, source.FabricAddr},
	} {
		t.Run(name, func(t *testing.T) {
			m := pullFrom(source, target, "new", regionSize)
			tc.spoil(m)
			_, err := pullAll(t.Context(), toClient, m)
			if connect.CodeOf(err) != tc.code || !connect.IsWireError(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v; want %v and a word of %q", err, tc.code, tc.says)
			}
		})
	}
	if _, err := pullAll(t.Context(), toClient, pullFrom(source, target, "new", regionSize)); err != nil {
		t.Error(err)
	}
}

// A pull copies from servers that a manager has signed, and from its own; it dials no other address.
func TestPullFromSignedSources(t *testing.T) {
	_, fromClient := newServer(t, Options{Memory: 64 << 20, Transport: "tcp"})
	to, toClient := newServer(t, Options{Memory: 64 << 20, Transport: "tcp"})
	source, target := lendBig(t, fromClient, "old", 1, regionSize), lendBig(t, toClient, "new", 2, regionSize)
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	now := time.Now()
	sign := func(key, transport, addr string, end time.Time) *managerv1.PullSource {
		s := &managerv1.PullSource{Transport: transport, FabricAddr: addr, NotAfterUnixMs: end.UnixMilli()}
		controltoken.NewSourceKey(key).Sign(s)
		return s
	}
	public := func(key string) []byte { return controltoken.NewSourceKey(key).Public() }
	pull := func(addr string, s *managerv1.PullSource) error {
		m := pullFrom(source, target, "new", regionSize)
		m.FabricAddr, m.Source = addr, s
		_, err := pullAll(t.Context(), toClient, m)
		return err
	}
	if err := pull(source.FabricAddr, nil); err != nil {
		t.Errorf("no manager signs: %v", err)
	}
	if err := to.TrustSources([]byte("short")); err == nil {
		t.Error("a key of 5 bytes")
	}
	for _, key := range []string{"first", "second", "second"} {
		if err := to.TrustSources(public(key)); err != nil {
			t.Fatal(err)
		}
	}
	good := sign("second", "tcp", source.FabricAddr, now.Add(time.Hour))
	for name, s := range map[string]*managerv1.PullSource{"present": good, "earlier": sign("first", "tcp", source.FabricAddr, now.Add(time.Hour))} {
		if err := pull(source.FabricAddr, s); err != nil {
			t.Errorf("signed by the %s manager: %v", name, err)
		}
	}
	own := pullFrom(target, target, "new", regionSize)
	own.Regions = []*serverv1.PullRegion{{SourceToken: target.RegionTokens[0], Target: 1, Bytes: regionSize}}
	if _, err := pullAll(t.Context(), toClient, own); err != nil {
		t.Errorf("from the server itself: %v", err)
	}
	changed := proto.CloneOf(good)
	changed.FabricAddr = stranger.Addr().String()
	for name, s := range map[string]*managerv1.PullSource{
		"signed by nobody":       nil,
		"empty":                  {},
		"for another server":     good,
		"changed":                changed,
		"signed by a stranger":   sign("stranger", "tcp", stranger.Addr().String(), now.Add(time.Hour)),
		"of another transport":   sign("second", "mem", stranger.Addr().String(), now.Add(time.Hour)),
		"whose time is over":     sign("second", "tcp", stranger.Addr().String(), now.Add(-time.Minute)),
		"with a short signature": {Transport: "tcp", FabricAddr: stranger.Addr().String(), NotAfterUnixMs: now.Add(time.Hour).UnixMilli(), Signature: []byte{1}},
	} {
		if err := pull(stranger.Addr().String(), s); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), stranger.Addr().String()) {
			t.Errorf("a source %s: %v, want that it may not be dialled", name, err)
		}
	}
	mine, err := net.Dial("tcp", stranger.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	first, err := stranger.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if first.RemoteAddr().String() != mine.LocalAddr().String() {
		t.Errorf("the stranger was dialled by %v, before %v", first.RemoteAddr(), mine.LocalAddr())
	}
	for i := range 2 * maxSourceKeys {
		if err := to.TrustSources(public(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := pull(source.FabricAddr, good); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("signed by a manager of long ago: %v", err)
	}
}

// A pending pull ends when anything that it depends on ends, with the error for that, and
// delays nothing.
func TestPullEnds(t *testing.T) {
	const size = 4 << 20
	for _, transport := range transporttest.Names(t) {
		for name, tc := range map[string]struct {
			end  func(from, to *Server, cancel func()) error
			code connect.Code
		}{
			"source dies": {func(from, _ *Server, _ func()) error { return from.Close() }, connect.CodeUnavailable},
			"source's grant ends": {func(from, _ *Server, _ func()) error {
				_, err := from.Disconnect(context.Background(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"}))
				return err
			}, connect.CodeUnavailable},
			"source's region is released": {func(from, _ *Server, _ func()) error {
				_, err := from.Release(context.Background(), connect.NewRequest(&serverv1.ReleaseRequest{
					CacheId: "cache", Grant: "old", Ticket: ticketOf(from, grantID{"cache", "old"}),
				}))
				return err
			}, connect.CodeUnavailable},
			"grant ends": {func(_, to *Server, _ func()) error {
				_, err := to.Disconnect(context.Background(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"}))
				return err
			}, connect.CodeAborted},
			"region is released": {func(_, to *Server, _ func()) error {
				_, err := to.Release(context.Background(), connect.NewRequest(&serverv1.ReleaseRequest{
					CacheId: "cache", Grant: "new", Ticket: ticketOf(to, grantID{"cache", "new"}),
				}))
				return err
			}, connect.CodeAborted},
			"server closes": {func(_, to *Server, _ func()) error { return to.Close() }, connect.CodeAborted},
			"call ends":     {func(_, _ *Server, cancel func()) error { cancel(); return nil }, connect.CodeCanceled},
		} {
			t.Run(transport+" "+name, func(t *testing.T) {
				from, fromClient := newServer(t, Options{Memory: 64 << 20, Transport: transport})
				to, toClient := newServer(t, Options{Memory: 64 << 20, Transport: transport})
				source, target := lendBig(t, fromClient, "old", 1, size), lendBig(t, toClient, "new", 1, size)
				m := pullFrom(source, target, "new", size)
				m.BytesPerSecond = 1 << 20 // takes some seconds
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream, err := toClient.Pull(ctx, connect.NewRequest(m))
				if err != nil {
					t.Fatal(err)
				}
				if !stream.Receive() { // the pull is pending
					t.Fatal(stream.Err())
				}
				if err := tc.end(from, to, cancel); err != nil {
					t.Error(err)
				}
				for stream.Receive() {
				}
				if err := stream.Err(); connect.CodeOf(err) != tc.code {
					t.Errorf("%v, want %v", err, tc.code)
				} else if tc.code == connect.CodeUnavailable && !strings.Contains(err.Error(), source.FabricAddr) {
					t.Errorf("does not name the source: %v", err)
				}
				_ = stream.Close()
			})
		}
	}
}

// Of a grant's pulls some copy at a time. The next one waits for its turn, ends like one that copies
// if it ends before, and delays no call that only prepares.
func TestPullsTakeTurns(t *testing.T) {
	const size = 1 << 20
	id := grantID{"cache", "new"}
	for name, tc := range map[string]struct {
		end  func(to *Server, cancelCopying, cancelWaiting func()) error
		code connect.Code // 0: none
	}{
		"its turn comes": {func(_ *Server, cancel, _ func()) error { cancel(); return nil }, 0},
		"call ends":      {func(_ *Server, _, cancel func()) error { cancel(); return nil }, connect.CodeCanceled},
		"grant ends": {func(to *Server, _, _ func()) error {
			_, err := to.Disconnect(context.Background(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: id.cache}))
			return err
		}, connect.CodeAborted},
		"region is released": {func(to *Server, _, _ func()) error {
			_, err := to.Release(context.Background(), connect.NewRequest(&serverv1.ReleaseRequest{
				CacheId: id.cache, Grant: id.grant, Ticket: ticketOf(to, id),
			}))
			return err
		}, connect.CodeAborted},
	} {
		t.Run(name, func(t *testing.T) {
			_, fromClient := newServer(t, Options{Memory: 64 << 20})
			to, toClient := newServer(t, Options{Memory: 64 << 20})
			source, target := lendBig(t, fromClient, "old", 1, size), lendBig(t, toClient, "new", 1, size)
			slow := pullFrom(source, target, "new", size)
			slow.BytesPerSecond = 1 // longer than the test
			pull := func(ctx context.Context, m *serverv1.PullRequest) <-chan error {
				ended := make(chan error, 1)
				go func() {
					_, err := pullAll(ctx, toClient, m)
					ended <- err
				}()
				return ended
			}
			to.mu.Lock()
			g := to.grants[id]
			to.mu.Unlock()
			copying, cancelCopying := context.WithCancel(t.Context())
			defer cancelCopying()
			for range maxPulls {
				pull(copying, slow)
			}
			testrun.Until(t, "pulls copy", func() bool { return len(g.copying) == maxPulls })
			waiting, cancelWaiting := context.WithCancel(t.Context())
			defer cancelWaiting()
			after := pullFrom(source, target, "new", size)
			if tc.code != 0 { // it may get its turn before it is ended
				after.BytesPerSecond = 1
			}
			next := pull(waiting, after)
			testrun.Until(t, "one more is there", func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				return len(g.pulls) > maxPulls || len(next) > 0
			})
			prepare := pullFrom(source, target, "new", size)
			prepare.Prepare = true
			if err := testrun.Receive(t, "a call that only prepares", pull(t.Context(), prepare)); err != nil {
				t.Error(err)
			}
			if err := tc.end(to, cancelCopying, cancelWaiting); err != nil {
				t.Error(err)
			}
			err := testrun.Receive(t, "the pull that waits", next)
			if tc.code == 0 && err != nil || tc.code != 0 && connect.CodeOf(err) != tc.code {
				t.Errorf("%v, want %v", err, tc.code)
			}
		})
	}
}

// A caller that does not receive does not delay the grant's Disconnect.
func TestPullUnheard(t *testing.T) {
	_, fromClient := newServer(t, Options{Memory: 64 << 20})
	to, toClient := newServer(t, Options{Memory: 64 << 20})
	source, target := lendBig(t, fromClient, "old", 1, regionSize), lendBig(t, toClient, "new", 1, regionSize)
	m := pullFrom(source, target, "new", 1)
	for len(m.Regions) < maxPullRegions {
		m.Regions = append(m.Regions, m.Regions[0])
	}
	to.mu.Lock()
	l := to.grants[grantID{"cache", "new"}]
	to.mu.Unlock()
	p, err := l.newPull(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	p.provider = to.provider
	go p.run(p.copyAll)
	testrun.Receive(t, "the pull ends", p.over)
	if _, err := toClient.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
		t.Error(err)
	}
}

// A throttled pull takes as long as its rate requires, in one call or in many.
func TestPullThrottle(t *testing.T) {
	_, fromClient := newServer(t, Options{Memory: 64 << 20})
	_, toClient := newServer(t, Options{Memory: 64 << 20})
	source, target := lendBig(t, fromClient, "old", 1, 1<<20), lendBig(t, toClient, "new", 1, 1<<20)
	m := pullFrom(source, target, "new", 64<<10)
	m.BytesPerSecond = 4 << 20
	begin := time.Now()
	for range 8 {
		if _, err := pullAll(t.Context(), toClient, m); err != nil {
			t.Fatal(err)
		}
	}
	// 512 KiB take 125 ms, less the slack that each call may make up for.
	if took := time.Since(begin); took < 125*time.Millisecond-8*slack {
		t.Errorf("512 KiB at 4 MiB/s took %v", took)
	}
}

// BenchmarkPull copies regions from server to server. The ratio compares with a plain copy of
// equally warm memory, measured alternately.
func BenchmarkPull(b *testing.B) {
	const size = 256 << 20
	for _, transport := range transport.Usable() {
		for _, fresh := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fresh=%v", transport, fresh), func(b *testing.B) { benchmarkPull(b, transport, size, fresh) })
		}
	}
}

func benchmarkPull(b *testing.B, transport string, size int64, fresh bool) {
	from, fromClient := newServer(b, Options{Memory: size, Transport: transport})
	to, toClient := newServer(b, Options{Memory: size, Transport: transport})
	source := lendBig(b, fromClient, "old", 1, size)
	target := lendBig(b, toClient, "new", 1, size)
	src := memoryOf(from, "old", 0)
	for i := range src {
		src[i] = byte(i)
	}
	copy(memoryOf(to, "new", 0), src)
	plain, pulled := time.Hour, time.Hour // the best: other processes use the machine, too
	b.SetBytes(size)
	for b.Loop() {
		begin := time.Now()
		copy(memoryOf(to, "new", 0), src)
		plain = min(plain, time.Since(begin))
		if fresh {
			if _, err := toClient.Disconnect(b.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
				b.Fatal(err)
			}
			target = lendBig(b, toClient, "new", 1, size)
		}
		begin = time.Now()
		if _, err := pullAll(b.Context(), toClient, pullFrom(source, target, "new", size)); err != nil {
			b.Fatal(err)
		}
		pulled = min(pulled, time.Since(begin))
	}
	b.ReportMetric(plain.Seconds()/pulled.Seconds(), "of-copy")
}

// Pulls that wait are bounded: each takes memory of the server.
func TestPullsAreBounded(t *testing.T) {
	_, fromClient := newServer(t, Options{Memory: 1 << 20})
	to, toClient := newServer(t, Options{Memory: 1 << 20})
	source, target := lendBig(t, fromClient, "old", 1, 1<<12), lendBig(t, toClient, "new", 1, 1<<12)
	to.mu.Lock()
	g := to.grants[grantID{"cache", "new"}]
	to.mu.Unlock()
	m := pullFrom(source, target, "new", 1<<12)
	waiting, cancel := context.WithCancel(t.Context())
	var all []*pull
	for range maxPullCalls {
		p, err := g.newPull(waiting, m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if _, err := pullAll(t.Context(), toClient, m); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for _, p := range all {
		p.run(p.prepare)
	}
	if _, err := pullAll(t.Context(), toClient, m); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}
