package fabric_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

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
		{"bounds", "10us,10Gbit,reads=2,messages=1M", mem.Open},
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
		"none": {},
		"rdma": {RTT: 2900, BitsPerSecond: 100e9, InlineLimit: 172, Reads: 16, Messages: 200e6},
		"2.9us,100Gbit,messages=5,inline=0,reads=255":     {RTT: 2900, BitsPerSecond: 100e9, Reads: 255, Messages: 5},
		"2.9us,100Gbit,inline=172,reads=16,messages=200M": {RTT: 2900, BitsPerSecond: 100e9, InlineLimit: 172, Reads: 16, Messages: 200e6},
		"0s,0Gbit,messages=1000000M":                      {Messages: 1e12},
		"1us,1Gbit,messages=1500K":                        {RTT: 1000, BitsPerSecond: 1e9, Messages: 1500e3},
		"2.9us,100Gbit":                                   {RTT: 2900, BitsPerSecond: 100e9},
		"10us,25Gbit/s":                                   {RTT: 10 * time.Microsecond, BitsPerSecond: 25e9},
		"1.5ms,100Mbit":                                   {RTT: 1500 * time.Microsecond, BitsPerSecond: 100e6},
		"0s,1Gbit":                                        {BitsPerSecond: 1e9},
	} {
		m, err := fabric.ParseModel(s)
		if err != nil || m != want {
			t.Errorf("%q is %+v, %v; want %+v", s, m, err, want)
		}
	}
	for s, want := range map[string]string{
		"":                            "no bandwidth",
		"RDMA":                        "no bandwidth",
		"2.9us":                       "no bandwidth",
		"2.9us,":                      `the bandwidth "" has no unit`,
		"2.9,100Gbit":                 `the round trip "2.9"`,
		"-1us,1Gbit":                  `the round trip "-1us"`,
		"1h,1Gbit":                    `the round trip "1h"`,
		"1us,-1Gbit":                  `the bandwidth "-1Gbit"`,
		"1us,NaNGbit":                 `the bandwidth "NaNGbit"`,
		"1us,InfGbit":                 `the bandwidth "InfGbit"`,
		"1us,100":                     `the bandwidth "100" has no unit`,
		"rdma,reads=16":               `the round trip "rdma"`,
		"1us,1Gbit,":                  `"" is none of the options`,
		"1us,1Gbit,read=16":           `"read" is none of the options`,
		"1us,1Gbit,inline":            "inline=, the limit of inlined writes, is not a number",
		"1us,1Gbit,inline=-1":         "inline=-1, the limit of inlined writes, is not a number from 0 to 65535",
		"1us,1Gbit,reads=0":           "reads=0, the outstanding reads of a queue pair, is not a number from 1 to 255",
		"1us,1Gbit,reads=256":         "not a number from 1 to 255",
		"1us,1Gbit,messages=0":        "messages=0, the messages a second of an adapter, is not a whole number from 1",
		"1us,1Gbit,messages=2.5M":     "messages=2.5M",
		"1us,1Gbit,messages=1000001M": "to 1000000M",
		"1us,1Gbit,messages=9223372036854775807M": "to 1000000M",
		"1us,1Gbit,messages=200G":                 "messages=200G",
		"1us,1Gbit,reads=16,inline=1,reads=16":    "reads is given twice",
	} {
		m, err := fabric.ParseModel(s)
		if err == nil {
			t.Errorf("%q was taken as %+v", s, m)
			continue
		}
		if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, "want none, rdma") {
			t.Errorf("%q: %v, want %q in it", s, err, want)
		}
	}
}

// TestModelString checks that a model's string can be passed to --net.
func TestModelString(t *testing.T) {
	for _, m := range []fabric.Model{{}, {RTT: 2900, BitsPerSecond: 1e11}, {RTT: 20e6, BitsPerSecond: 2.5e9}, {RTT: 5000},
		{RTT: 2900, BitsPerSecond: 1e11, InlineLimit: 172}, {RTT: 2900, BitsPerSecond: 1e11, Reads: 16}, {Messages: 1}, {Messages: 1001e3}, {Messages: 3e12 / 4}} {
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
