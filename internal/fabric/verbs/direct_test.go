//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// Memory of the provider's own regions is used directly, other memory through the staging
// ring. Bytes and immediates are the same either way, at any length.
func TestBuffers(t *testing.T) {
	server, addr, accepted := host(t, 8)
	client := open(t)
	q := dial(t, client, addr, 8)
	there := <-accepted
	const size = 3<<20 + 5 // several pieces on both paths
	far, err := server.Alloc(size)
	check(t, err)
	i, err := q.Import(within(t), far.Token())
	check(t, err)
	own, err := client.Alloc(2 * size)
	check(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 100, 256, 257, 4096, 1 << 20, size} {
		for name, bufs := range map[string][2][]byte{
			"own":    {own.Bytes()[:n], own.Bytes()[size:][:n]},
			"staged": {make([]byte, n), make([]byte, n)},
		} {
			src, dst := bufs[0], bufs[1]
			for j := range src {
				src[j] = byte(rng.Uint32())
			}
			check(t, q.WriteImm(src, i, int64(size-n), uint32(n), 1))
			check(t, q.Read(dst, i, int64(size-n), 2))
			check(t, q.Submit())
			for tag := range uint64(2) {
				if c := next(t, q); c.Err != nil || c.Tag != tag+1 || c.N != n {
					t.Fatalf("%s, %d bytes: %+v", name, n, c)
				}
			}
			if c := next(t, there); c.Op != fabric.OpRecv || c.Imm != uint32(n) || c.N != n {
				t.Fatalf("%s, %d bytes: heard %+v", name, n, c)
			}
			if !bytes.Equal(src, dst) || !bytes.Equal(src, far.Bytes()[size-n:]) {
				t.Fatalf("%s, %d bytes: bytes differ", name, n)
			}
			clear(dst)
		}
	}
	if len(q.own) != 1 {
		t.Errorf("%d regions registered for their own use", len(q.own))
	}
	check(t, own.Close())
	if len(q.own) != 0 {
		t.Error("a closed region is still registered")
	}
}
