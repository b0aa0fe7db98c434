package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// lend connects under a grant with one server thread and batches of 4.
func lend(t *testing.T, client serverv1connect.CacheServerServiceClient, cache, grant string, regions uint32) *serverv1.ConnectResponse {
	t.Helper()
	answer, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: &managerv1.Terms{CacheId: cache, Grant: grant, Regions: regions, RegionSize: regionSize, Cores: 16}, Configuration: configuration(1, 4),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

func configuration(threads, batch uint32) *managerv1.Configuration {
	return &managerv1.Configuration{ClientThreads: 1, ServerThreads: threads, BatchSize: batch, QueueDepth: 4}
}

// leases returns the grants of s, and checks that memory and cores add up.
func leases(t *testing.T, s *Server) []*serverv1.Grant {
	t.Helper()
	status, err := s.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	free := status.Msg.Memory
	for _, l := range status.Msg.Grants {
		free -= l.Bytes
	}
	if free != status.Msg.FreeMemory {
		t.Errorf("%d bytes free, want %d: %v", status.Msg.FreeMemory, free, status.Msg)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cores := s.opts.Cores
	for _, g := range s.grants {
		cores -= g.cores
	}
	if cores != s.cores {
		t.Errorf("%d cores free, want %d", s.cores, cores)
	}
	return status.Msg.Grants
}

// Grants of one cache are independent: a ticket admits to its own grant only, and Disconnect
// ends only the grant that it names.
func TestGrants(t *testing.T) {
	s, client := newServer(t, Options{Memory: 8 * regionSize, Cores: 8})
	lend(t, client, "cache", "", 1)
	a := lend(t, client, "cache", "a", 2)
	b := lend(t, client, "cache", "b", 1)
	lend(t, client, "other", "a", 1)
	if _, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: &managerv1.Terms{CacheId: "cache", Grant: "a", Regions: 1, RegionSize: regionSize, Cores: 16},
	})); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("the same grant twice: %v", err)
	}
	if got := leases(t, s); len(got) != 4 || got[1].Id != "a" || got[1].Regions != 2 {
		t.Errorf("lent: %v", got)
	}
	pa, pb := dialRings(t, a, 4, 2), dialRings(t, b, 4, 2)

	for _, step := range []struct {
		name string
		req  *serverv1.DisconnectRequest
		code connect.Code // 0: none
		left int
	}{
		{"ticket of another grant", &serverv1.DisconnectRequest{CacheId: "cache", Grant: "b", Ticket: a.Ticket}, connect.CodePermissionDenied, 4},
		{"ticket names the grant without a name", &serverv1.DisconnectRequest{CacheId: "cache", Ticket: a.Ticket}, connect.CodePermissionDenied, 4},
		{"no such grant", &serverv1.DisconnectRequest{CacheId: "cache", Grant: "c"}, connect.CodeNotFound, 4},
		{"one", &serverv1.DisconnectRequest{CacheId: "cache", Grant: "a", Ticket: a.Ticket}, 0, 3},
		{"one again", &serverv1.DisconnectRequest{CacheId: "cache", Grant: "a", Ticket: a.Ticket}, connect.CodeNotFound, 3},
	} {
		_, err := client.Disconnect(t.Context(), connect.NewRequest(step.req))
		if step.code == 0 && err != nil || step.code != 0 && connect.CodeOf(err) != step.code {
			t.Errorf("%s: %v", step.name, err)
		}
		if n := len(leases(t, s)); n != step.left {
			t.Errorf("%s: %d leases, want %d", step.name, n, step.left)
		}
	}
	for await(t, pa.qp).Err == nil {
	}
	var w redywire.Writer
	w.Reset(make([]byte, pb.slot))
	w.Read(0, 0, 8)
	pb.send(w.Seal(1), 1)
	pb.receive(4)

	if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
		t.Error(err)
	}
	if got := leases(t, s); len(got) != 1 || got[0].CacheId != "other" {
		t.Errorf("left of all grants: %v", got)
	}
}

// Released regions do not answer any more, one-sided or through rings; the others do. The
// memory can be lent again.
func TestRelease(t *testing.T) {
	s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2})
	answer := lend(t, client, "cache", "g", 4)
	p := dialRings(t, answer, 4, 2)
	statuses := func() (got [4]redywire.Status) {
		t.Helper()
		var w redywire.Writer
		w.Reset(make([]byte, p.slot))
		for i := range uint32(4) {
			w.Read(i, 0, 8)
		}
		p.send(w.Seal(p.seq+1), uint32(p.seq+1))
		r := p.receive(4)
		for i := range got {
			response, err := r.Response()
			if err != nil {
				t.Fatal(err)
			}
			got[i] = response.Status
		}
		return got
	}
	release := func(keep uint32, ticket []byte) error {
		_, err := client.Release(t.Context(), connect.NewRequest(&serverv1.ReleaseRequest{CacheId: "cache", Grant: "g", Ticket: ticket, Keep: keep}))
		return err
	}
	if err := release(1, make([]byte, 16)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("with a wrong ticket: %v", err)
	}
	none := redywire.StatusNoRegion
	for _, step := range []struct {
		keep uint32
		want [4]redywire.Status
		left uint32
	}{
		{9, [4]redywire.Status{}, 4},
		{4, [4]redywire.Status{}, 4},
		{2, [4]redywire.Status{2: none, 3: none}, 2},
		{2, [4]redywire.Status{2: none, 3: none}, 2},
		{3, [4]redywire.Status{2: none, 3: none}, 2},
		{0, [4]redywire.Status{none, none, none, none}, 0},
	} {
		if err := release(step.keep, answer.Ticket); err != nil {
			t.Fatal(err)
		}
		if got := statuses(); got != step.want {
			t.Errorf("keeping %d: %v, want %v", step.keep, got, step.want)
		}
		if got := leases(t, s); got[0].Regions != step.left || got[0].Bytes != uint64(step.left)*regionSize {
			t.Errorf("keeping %d: %v", step.keep, got)
		}
		for i, token := range answer.RegionTokens {
			r, err := p.qp.Import(t.Context(), [16]byte(token))
			if (err == nil) != (i < int(step.left)) {
				t.Errorf("keeping %d: import of region %d: %v", step.keep, i, err)
			}
			if err == nil {
				p.qp.Release(r)
			}
		}
	}
	lend(t, client, "other", "", 4)
	if err := release(0, answer.Ticket); err != nil {
		t.Errorf("all of it: %v", err)
	}
}

// Threads are added and removed while connections are busy. Every batch is answered once and
// in order.
func TestConfigureLive(t *testing.T) {
	s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 3})
	answer := lend(t, client, "cache", "", 1)
	var change uint64
	configure := func(c *managerv1.Configuration) error {
		change++
		_, err := client.Configure(t.Context(), connect.NewRequest(&serverv1.ConfigureRequest{CacheId: "cache", Ticket: answer.Ticket, Configuration: c, Change: change}))
		return err
	}
	var peers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		p := dialRings(t, answer, 4, 2)
		peers.Go(func() {
			var w redywire.Writer
			buf, in := make([]byte, p.slot), make([]byte, 8)
			at := int64(i * 8)
			for ; ; in[0]++ {
				select {
				case <-stop:
					return
				default:
				}
				w.Reset(buf)
				w.Write(0, at, in)
				w.Read(0, at, 8)
				p.send(w.Seal(p.seq+1), uint32(p.seq+1))
				r := p.receive(4)
				_, _ = r.Response()
				if got, err := r.Response(); err != nil || got.Payload[0] != in[0] {
					t.Errorf("peer %d reads %v, %v; want %d", i, got, err, in[0])
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
	for range 50 {
		n := uint32(1 + r.IntN(3))
		if err := configure(configuration(n, 4)); err != nil {
			t.Error(err)
		}
		if got := len(*s.grants[grantID{cache: "cache"}].threads.Load()); got != int(n) {
			t.Errorf("%d threads, want %d", got, n)
		}
		leases(t, s)
	}
	close(stop)
	peers.Wait()

	if err := configure(configuration(1, 4)); err != nil {
		t.Error(err)
	}
	lend(t, client, "other", "", 1)
	if err := configure(configuration(3, 8)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("three threads where two cores are left: %v", err)
	}
	for name, c := range map[string]*managerv1.Configuration{
		"more threads than cores": configuration(4, 4),
		"huge batch":              configuration(1, redywire.MaxBatch+1),
		"batch without threads":   configuration(0, 2),
	} {
		if err := configure(c); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	fabric := openFabric(t, answer.Transport)
	wide := redywire.Hello{Batch: 8, Depth: 4}
	if _, err := dial(t, fabric, answer, wide); err == nil {
		t.Error("batches of 8: a refused Configure changed the limits")
	}
	if err := configure(configuration(2, 8)); err != nil {
		t.Error(err)
	}
	dialRings(t, answer, 8, 4)

	// Without threads no rings are served.
	last := dialRings(t, answer, 4, 2)
	if err := configure(configuration(0, 1)); err != nil {
		t.Error(err)
	}
	for await(t, last.qp).Err == nil {
	}
	if _, err := dial(t, fabric, answer, wide); err == nil {
		t.Error("rings without threads")
	}
	leases(t, s)
	if err := configure(configuration(1, 4)); err != nil {
		t.Error(err)
	}
	dialRings(t, answer, 4, 2)
}

// Concurrent Connect, Disconnect, Release, Configure and Pull of the same few grants,
// and sweeps, lose nothing and leave nothing behind. A grant that was taken back is not lent
// again, so the grants change now and then.
func TestCallsRace(t *testing.T) {
	s, client := newServer(t, Options{Memory: 8 * regionSize, Cores: 4})
	source := lend(t, client, "source", "", 1)
	rounds := testrun.Scale(50, 300, 3000)
	var callers sync.WaitGroup
	var called atomic.Int64
	for i := range 8 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		callers.Go(func() {
			for range rounds {
				call := called.Add(1)
				cache := fmt.Sprint("cache", max(0, call/30-int64(r.IntN(4)/3)))
				grant := []string{"a", "b"}[r.IntN(2)]
				ctx, cancel := context.WithCancel(t.Context())
				var err error
				switch r.IntN(7) {
				case 0, 1:
					_, err = s.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
						Terms: &managerv1.Terms{CacheId: cache, Grant: grant, Regions: 2, RegionSize: regionSize, Cores: 16, KeepMs: 1}, Configuration: configuration(1, 4),
					}))
				case 2:
					_, err = s.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cache, Grant: []string{grant, ""}[r.IntN(5)/4]}))
				case 3:
					_, err = s.Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{
						CacheId: cache, Grant: grant, Ticket: ticketOf(s, grantID{cache, grant}), Keep: uint32(r.IntN(3)),
					}))
				case 4:
					_, err = s.Configure(ctx, connect.NewRequest(&serverv1.ConfigureRequest{
						CacheId: cache, Grant: grant, Ticket: ticketOf(s, grantID{cache, grant}),
						Configuration: configuration(uint32(r.IntN(3)), 1+uint32(r.IntN(2))*3), Change: uint64(call),
					}))
				case 5:
					err = pullOnce(ctx, s, client, grantID{cache, grant}, source)
				case 6:
					s.sweep(time.Duration(r.IntN(5)/4) * time.Millisecond)
				}
				cancel()
				switch connect.CodeOf(err) {
				case connect.CodeUnknown:
					if err != nil {
						t.Error(err)
					}
				case connect.CodeInternal:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for range 2 {
		s.sweep(time.Millisecond)
	}
	if got := leases(t, s); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
	checkNoRings(t, s)
}

// ticketOf returns the ticket of a grant, or nil if it is not lent.
func ticketOf(s *Server, id grantID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.grants[id]; t != nil && t.lent {
		return t.ticket[:]
	}
	return nil
}

// pullOnce pulls the source's first region into the first region of a grant, with the ticket
// from ticketOf.
func pullOnce(ctx context.Context, s *Server, client serverv1connect.CacheServerServiceClient, id grantID, source *serverv1.ConnectResponse) error {
	stream, err := client.Pull(ctx, connect.NewRequest(&serverv1.PullRequest{
		CacheId: id.cache, Grant: id.grant, Ticket: ticketOf(s, id), FabricAddr: source.FabricAddr, SourceTicket: readingOf(source.Ticket),
		Regions: []*serverv1.PullRegion{{SourceToken: source.RegionTokens[0], Bytes: regionSize}},
	}))
	if err != nil {
		return err
	}
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil {
		_ = stream.Close()
		return err
	}
	return stream.Close()
}

// Regions are released while batches read and write them. Each request is answered with the
// region's bytes or with StatusNoRegion, and no freed memory is accessed.
func TestReleaseUnderLoad(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			_, client := newServer(t, Options{Memory: 64 << 20, Cores: 2, Transport: transport})
			const regions = 24
			answer := lend(t, client, "cache", "", regions)
			var peers sync.WaitGroup
			stop := make(chan struct{})
			for i := range 2 {
				p := dialRings(t, answer, 4, 2)
				rng := rand.New(rand.NewPCG(uint64(i), 2))
				peers.Go(func() {
					left := uint32(regions) // at most
					for {
						select {
						case <-stop:
							return
						default:
						}
						var w redywire.Writer
						var asked [4]uint32
						w.Reset(make([]byte, p.slot))
						for j := range asked {
							asked[j] = rng.Uint32N(regions)
							if j%2 == 0 {
								w.Write(asked[j], 0, make([]byte, 1000))
							} else {
								w.Read(asked[j], regionSize-1000, 1000)
							}
						}
						p.send(w.Seal(p.seq+1), uint32(p.seq+1))
						r := p.receive(4)
						for _, region := range asked {
							got, err := r.Response()
							switch {
							case err != nil:
								t.Error(err)
								return
							case got.Status == redywire.StatusNoRegion:
								left = min(left, region)
							case got.Status != redywire.StatusOK || region > left:
								t.Errorf("region %d answers %v, %d are left at most", region, got.Status, left)
							}
						}
					}
				})
			}
			for keep := regions; keep >= 0; keep-- {
				if _, err := client.Release(t.Context(), connect.NewRequest(&serverv1.ReleaseRequest{CacheId: "cache", Ticket: answer.Ticket, Keep: uint32(keep)})); err != nil {
					t.Error(err)
				}
			}
			close(stop)
			peers.Wait()
		})
	}
}
