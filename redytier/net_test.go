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

// VMs at one distance share this host's port. Other distances have their own networks.
func TestPortsByDistance(t *testing.T) {
	provider, err := transport.Open("mem")
	if err != nil {
		t.Fatal(err)
	}
	network, err := fabric.ParseNetwork("1:3us,100Gbit;3:9us,100Gbit")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cache{provider: provider, cfg: Config{network: network}, ports: map[fabric.Model]fabric.Provider{}}
	near, unknown, far := c.port(&grant{distance: 1}), c.port(&grant{}), c.port(&grant{distance: 3})
	if near != unknown || near == far || far == provider {
		t.Errorf("ports %v, %v, %v", near, unknown, far)
	}
	if err := provider.Close(); err != nil {
		t.Error(err)
	}
}
