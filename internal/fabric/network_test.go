package fabric

import (
	"testing"
	"time"
)

func TestNetworkByDistance(t *testing.T) {
	n, err := ParseNetwork("5:6us,50Gbit,messages=200000K;1:2.9us,100Gbit;3:4us,100Gbit,reads=16")
	if err != nil {
		t.Fatal(err)
	}
	for distance, want := range map[int]time.Duration{0: 2900, 1: 2900, 2: 4000, 3: 4000, 4: 6000, 5: 6000, 9: 6000} {
		if got := n.At(distance).RTT; got != want {
			t.Errorf("at distance %d: %v, want %v", distance, got, want)
		}
	}
	if got := n.String(); got != "1:2.9us,100Gbit;3:4us,100Gbit,reads=16;5:6us,50Gbit,messages=200M" {
		t.Errorf("String: %s", got)
	}
	for text, want := range map[string]string{"none": "none", "rdma": "2.9us,100Gbit,inline=172,reads=16,messages=200M", "3us,1Gbit": "3us,1Gbit", "3:3us,1Gbit": "3us,1Gbit"} {
		n, err := ParseNetwork(text)
		if err != nil || n.String() != want || n.At(7).String() != want {
			t.Errorf("%q: %v, %v", text, n, err)
		}
	}
	for _, bad := range []string{"", "pigeons", "0:rdma", "x:rdma", "1:rdma;1:none", "1:rdma;", "99:rdma", "1:"} {
		if n, err := ParseNetwork(bad); err == nil {
			t.Errorf("ParseNetwork(%q) = %v", bad, n)
		}
	}
}

func FuzzParseNetwork(f *testing.F) {
	f.Add("1:2.9us,100Gbit;3:rdma")
	f.Add("1:2.9us,100Gbit,inline=172,reads=16,messages=200M;3:4us,25.5Gbit/s,messages=1500K,reads=255;5:0s,0.3Mbit,messages=7")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNetwork(text)
		if err != nil {
			return
		}
		again, err := ParseNetwork(n.String())
		if err != nil || again.At(1) != n.At(1) || again.At(maxDistance) != n.At(maxDistance) {
			t.Errorf("%q: prints as %q, which reads as %v, %v", text, n, again, err)
		}
	})
}
