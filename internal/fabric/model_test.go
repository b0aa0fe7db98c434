package fabric_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func modelled(open fabrictest.Open, m fabric.Model) fabrictest.Open {
	return func() fabric.Provider { return fabric.WithModel(open(), m) }
}

func openTCP() fabric.Provider { return tcp.Open(tcp.Options{}) }

func openShm() fabric.Provider {
	p, err := shm.Open()
	if err != nil {
		panic(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, model string
		open        fabrictest.Open
	}{
		{"rdma", "rdma", mem.Open},
		{"50us,10Gbit", "50us,10Gbit", mem.Open},
		{"1ms,400Gbit", "1ms,400Gbit", mem.Open},
		{"shm", "rdma", openShm},
		{"tcp", "20us,25Gbit", openTCP},
	} {
		m, err := fabric.ParseModel(c.model)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.name, func(t *testing.T) { fabrictest.Run(t, modelled(c.open, m)) })
	}
}

func TestParseModel(t *testing.T) {
	for s, want := range map[string]fabric.Model{
		"none":          {},
		"rdma":          {RTT: 2900, BitsPerSecond: 100e9, InlineLimit: 172},
		"2.9us,100Gbit": {RTT: 2900, BitsPerSecond: 100e9},
		"10us,25Gbit/s": {RTT: 10 * time.Microsecond, BitsPerSecond: 25e9},
		"1.5ms,100Mbit": {RTT: 1500 * time.Microsecond, BitsPerSecond: 100e6},
		"0s,1Gbit":      {BitsPerSecond: 1e9},
	} {
		m, err := fabric.ParseModel(s)
		if err != nil || m != want {
			t.Errorf("%q is %+v, %v; want %+v", s, m, err, want)
		}
	}
	for _, s := range []string{"", "RDMA", "2.9us", "2.9us,", "2.9,100Gbit", "-1us,1Gbit", "1us,-1Gbit", "1us,NaNGbit", "1us,InfGbit", "1us,100", "1us,1Gbit,inline=-1", "1h,1Gbit"} {
		if m, err := fabric.ParseModel(s); err == nil {
			t.Errorf("%q was taken as %+v", s, m)
		}
	}
}

// TestModelString checks that a model's string can be passed to --net.
func TestModelString(t *testing.T) {
	for _, m := range []fabric.Model{{}, {RTT: 2900, BitsPerSecond: 1e11}, {RTT: 20e6, BitsPerSecond: 2.5e9}, {RTT: 5000},
		{RTT: 2900, BitsPerSecond: 1e11, InlineLimit: 172}} {
		again, err := fabric.ParseModel(m.String())
		if err != nil || again != m {
			t.Errorf("%+v prints as %q, which is %+v, %v", m, m, again, err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	m, err := fabric.ParseModel("rdma")
	if err != nil {
		b.Fatal(err)
	}
	fabrictest.Benchmark(b, modelled(mem.Open, m))
}
