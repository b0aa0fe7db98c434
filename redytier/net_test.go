package redytier

import (
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
)

// A modelled network delays completions and changes nothing else.
func TestModelledNetwork(t *testing.T) {
	for _, configuration := range configurations {
		c := newCluster(t, "mem", 2, 1<<20)
		cache := c.create(t, Config{
			Capacity: 100_000, RegionSize: 16 << 10, Configuration: configuration,
			Net: fabric.Model{RTT: 3 * time.Microsecond, BitsPerSecond: 100e9},
		})
		p := newPump(t, cache, 16)
		for i := range int64(500) {
			at := i * 97 % 90_000
			p.do(true, []byte{byte(i)}, at, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
			})
			buf := make([]byte, 1)
			p.do(false, buf, at, func(c device.Completion) {
				if c.Err != nil || buf[0] != byte(i) {
					t.Errorf("read %d at %d: %v", buf[0], at, c.Err)
				}
			})
		}
		p.close()
	}
}
