package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ssdtier"
)

// TestFlushAllOnFullDisk: FLUSHALL frees a full disk, whatever replies promise: the client that sent it
// can write at once.
func TestFlushAllOnFullDisk(t *testing.T) {
	for promise := range durabilities {
		t.Run(promise.String(), func(t *testing.T) {
			ssd, err := ssdtier.OpenWith(testrun.SmallDisk(t, "8m"), ssdtier.Options{SegmentSize: 64 << 10, Buffered: true, Logger: quietly})
			if err != nil {
				t.Fatal(err)
			}
			options := cold()
			options.Device = ssd
			_, addr := start(t, options, Options{Durability: promise})
			value := strings.Repeat("v", 4000)
			for range testrun.Raced(3, 1) {
				p := dial(t, addr)
				got, n := "+OK", 0
				for ; got == "+OK"; n++ {
					got = p.do("SET", fmt.Sprint("key", n), value)
				}
				if !strings.Contains(got, "no space") || n < 500 {
					t.Fatalf("after %d keys: %s, want a full disk", n, got)
				}
				p = dial(t, addr) // an error of a commit ends the connection
				for _, step := range [][2]string{{"FLUSHALL", "+OK"}, {"SET a 1", "+OK"}, {"SET b " + value, "+OK"}, {"DBSIZE", ":2"}, {"SAVE", "+OK"}} {
					if got := p.do(strings.Fields(step[0])...); got != step[1] {
						t.Fatalf("%.10s: %s", step[0], got)
					}
				}
			}
		})
	}
}
