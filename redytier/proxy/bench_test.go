package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"

	"github.com/redykv/redykv/internal/units"
)

// Reads at random addresses: of the cache, and through the proxy over loopback, by as many callers.
func BenchmarkRead(b *testing.B) {
	const capacity = 64 << 20
	s := serve(b, Options{})
	path := s.create(fmt.Sprintf(`{"capacity": %d, "configuration": {"client_threads": 1, "server_threads": 0, "batch_size": 1, "queue_depth": 16}}`, capacity))
	redy := s.proxy.list()[0].redy
	for _, size := range []int64{4 << 10, 1 << 20} {
		for _, callers := range []int{1, 8} {
			run := func(way string, caller func(next func() bool)) {
				b.Run(fmt.Sprintf("%v/callers=%d/%s", units.Size(size), callers, way), func(b *testing.B) {
					b.SetBytes(size)
					work := make(chan struct{}, callers)
					ended := make(chan struct{})
					for range callers {
						go func() {
							caller(func() bool { _, more := <-work; return more })
							ended <- struct{}{}
						}()
					}
					for b.Loop() {
						work <- struct{}{}
					}
					close(work)
					for range callers {
						<-ended
					}
				})
			}
			run("cache", func(next func() bool) {
				client, into, done := redy.NewClient(), make([]byte, size), make(chan error, 1)
				for next() {
					err := client.Read(b.Context(), into, rand.Int64N(capacity/size)*size, func(_ int, err error) { done <- err })
					if err == nil {
						err = <-done
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
			run("proxy", func(next func() bool) { // without a client's goroutines
				defer func() { // after an error
					for next() {
					}
				}()
				c, err := net.Dial("tcp", s.addr)
				if err != nil {
					b.Error(err)
					return
				}
				defer func() { _ = c.Close() }()
				in := bufio.NewReaderSize(c, 64<<10)
				for next() {
					at := rand.Int64N(capacity/size) * size
					fmt.Fprintf(c, "GET %s/bytes HTTP/1.1\r\nHost: x\r\nRange: bytes=%d-%d\r\n\r\n", path, at, at+size-1)
					r, err := http.ReadResponse(in, nil)
					if err != nil {
						b.Error(err)
						return
					}
					if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
						b.Errorf("%s, %d bytes, %v", r.Status, n, err)
					}
					_ = r.Body.Close() // it has ended
				}
			})
		}
	}
}
