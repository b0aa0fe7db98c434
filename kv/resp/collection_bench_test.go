package resp

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCollections measures one connection's commands on one hash or set, by its size. An
// operation is a command. A hash of 20,000 fields is spread; one of 20 is packed.
func BenchmarkCollections(b *testing.B) {
	for _, size := range []int{20, 20_000} {
		for _, depth := range []int{1, 64} {
			for _, command := range []string{"HSET", "HGET", "SADD", "SISMEMBER"} {
				b.Run(fmt.Sprintf("op=%s/size=%d/pipeline=%d", command, size, depth), func(b *testing.B) {
					_, addr := start(b, inMemory(), Options{})
					p := dial(b, addr)
					request := func(i int, value string) string {
						field := fmt.Sprintf("field:%08d", i*7919%size)
						switch command {
						case "HSET":
							return encode("HSET", "h", field, value)
						case "SADD":
							return encode("SADD", "s", field)
						}
						return encode(command, map[bool]string{true: "h", false: "s"}[command == "HGET"], field)
					}
					for i := range size {
						field := fmt.Sprintf("field:%08d", i)
						p.send(encode("HSET", "h", field, "value") + encode("SADD", "s", field))
						p.reply()
						p.reply()
					}
					batches := make([]string, 64)
					for n := range batches {
						var all strings.Builder
						for i := range depth {
							all.WriteString(request(n*depth+i, fmt.Sprintf("value%03d", n)))
						}
						batches[n] = all.String()
					}
					b.ReportAllocs()
					b.ResetTimer()
					for i := 0; i < b.N; i += depth {
						p.send(batches[i/depth%len(batches)])
						for range depth {
							p.reply()
						}
					}
				})
			}
		}
	}
}
