package server

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
)

// BenchmarkRing reads records of 16 bytes in full batches through one connection and one
// server thread. The ratio compares with one-sided reads of single records, measured
// alternately.
func BenchmarkRing(b *testing.B) {
	for _, transport := range transport.Usable() {
		for _, depth := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/q=%d", transport, depth), func(b *testing.B) { benchmarkRing(b, transport, depth) })
		}
	}
}

func benchmarkRing(b *testing.B, transport string, depth int) {
	const record, batch = 16, redywire.MaxPayload / 16
	s, client := newServer(b, Options{Memory: 64 << 20, Cores: 1, Transport: transport})
	connected, err := client.Connect(b.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms:         &managerv1.Terms{CacheId: "cache", Regions: 1, RegionSize: 64 << 20, Cores: 16},
		Configuration: &managerv1.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: batch, QueueDepth: uint32(depth)},
	}))
	if err != nil {
		b.Fatal(err)
	}
	answer := connected.Msg
	fillMarks((*s.grants[grantID{cache: "cache"}].memory.Load())[0])
	p := dialRings(b, answer, batch, depth)
	single, err := dial(b, openFabric(b, transport), answer, redywire.Hello{Batch: 1, Depth: 1})
	if err != nil {
		b.Fatal(err)
	}
	region, err := single.Import(b.Context(), fabric.Token(answer.RegionTokens[0]))
	if err != nil {
		b.Fatal(err)
	}
	raw := func(n int) {
		var dst [record]byte
		for i := range n {
			if err := single.Read(dst[:], region, int64(i)*4096%(64<<20), 0); err != nil {
				b.Fatal(err)
			}
			if err := single.Submit(); err != nil {
				b.Fatal(err)
			}
			if c := await(b, single); c.Err != nil {
				b.Fatal(c.Err)
			}
		}
	}
	staging := make([][]byte, depth)
	for i := range staging {
		staging[i] = make([]byte, p.slot)
	}
	var done [64]fabric.Completion
	at := uint64(0)
	// batched reads n full batches, with one pending batch per slot.
	batched := func(n int) {
		sent, answered := p.seq, p.seq
		end, taken := p.seq+uint64(n), p.seq
		for answered < end {
			for sent < end && sent-min(answered, taken) < uint64(depth) {
				sent++
				var w redywire.Writer
				w.Reset(staging[sent%uint64(depth)])
				for range batch {
					at = at*6364136223846793005 + 1442695040888963407
					w.Read(0, int64(at>>40)*record%(64<<20-record), record)
				}
				p.send(w.Seal(sent), uint32(sent))
			}
			n := p.qp.Poll(done[:])
			for _, c := range done[:n] {
				if c.Err != nil {
					b.Fatal(c.Err)
				}
				if c.Op != fabric.OpRecv {
					taken++
					continue
				}
				answered++
				slot := int(answered%uint64(depth)) * p.slot
				var r redywire.Reader
				if err := r.Open(p.responses.Bytes()[slot:slot+p.slot], answered, batch); err != nil {
					b.Fatal(err)
				}
				for r.More() {
					if _, err := r.Response(); err != nil {
						b.Fatal(err)
					}
				}
			}
			if n == 0 {
				if err := p.qp.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	slow, quick := time.Hour, time.Hour // least time of one record
	for b.Loop() {
		begin := time.Now()
		raw(500)
		slow = min(slow, time.Since(begin)/500)
		begin = time.Now()
		batched(200)
		quick = min(quick, time.Since(begin)/(200))
	}
	b.ReportMetric(float64(batch)/quick.Seconds()/1e6, "Mops")
	b.ReportMetric(float64(batch)*slow.Seconds()/quick.Seconds(), "x-raw")
	b.ReportMetric(0, "ns/op")
}
