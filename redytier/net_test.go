package redytier

import (
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
)

// A modelled network delays completions and changes nothing else.
func TestModelledNetwork(t *testing.T) {
	for _, configuration := range configurations {
		c := newCluster(t, "mem", 2, 1<<20)
		cache := c.create(t, Config{
			Capacity: 100_000, RegionSize: 16 << 10, Configuration: configuration,
			Net: "1:3us,100Gbit;3:9us,100Gbit",
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

// VMs at one distance share this host's port; others have the network of their
// own distance.
func TestPortsByDistance(t *testing.T) {
	provider, err := transport.Open("mem")
	if err != nil {
		t.Fatal(err)
	}
	network, err := fabric.ParseNetwork("1:3us,100Gbit;3:9us,100Gbit")
	if err != nil {
		t.Fatal(err)
	}
	near, unknown, far := &vm{distance: 1}, &vm{}, &vm{distance: 3}
	p := ports(provider, network, []*vm{near, unknown, far})
	if p[near] != p[unknown] || p[near] == p[far] || p[far] == provider {
		t.Errorf("ports %v", p)
	}
	if err := provider.Close(); err != nil {
		t.Error(err)
	}
}
