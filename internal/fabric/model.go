package fabric

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Model is a network: what WithModel adds to a transport. The zero Model adds
// nothing.
type Model struct {
	// RTT is the time from Submit to the completion of an operation that moves
	// no bytes.
	RTT time.Duration
	// BitsPerSecond is the bandwidth of a host's port, each way; 0: unbounded.
	BitsPerSecond float64
	// InlineLimit is the most bytes that a write carries inside its work
	// request (R51). The adapter does not fetch the payload of such a write.
	InlineLimit int
}

// fetch is the time that an inlined write saves: one read over PCIe, about half a
// microsecond on servers of the kind the paper used.
const fetch = 500 * time.Nanosecond

// models maps names to models: rdma is a round trip of 2.9 us on
// 100 Gbit/s with the paper's limit for inlined writes.
var models = map[string]Model{
	"none": {},
	"rdma": {RTT: 2900 * time.Nanosecond, BitsPerSecond: 100e9, InlineLimit: 172},
}

// ParseModel parses "none", "rdma", or a round trip and a bandwidth like
// "2.9us,100Gbit", optionally followed by ",inline=172".
func ParseModel(s string) (Model, error) {
	if m, ok := models[s]; ok {
		return m, nil
	}
	bad := func(why string) (Model, error) {
		return Model{}, fmt.Errorf("network model %q: %s; want none, rdma, or a round trip and a bandwidth like 2.9us,100Gbit", s, why)
	}
	rtt, rest, ok := strings.Cut(s, ",")
	if !ok {
		return bad("no bandwidth")
	}
	bandwidth, inline, inlined := strings.Cut(rest, ",inline=")
	limit := 0
	if inlined {
		n, err := strconv.ParseUint(inline, 10, 16)
		if err != nil {
			return bad("the limit of inlined writes is not a number from 0 to 65535")
		}
		limit = int(n)
	}
	d, err := time.ParseDuration(rtt)
	if err != nil || d < 0 || d > time.Minute {
		return bad("the round trip is not a duration from 0 to 1m")
	}
	for _, unit := range []struct {
		name string
		bits float64
	}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Kbit", 1e3}} {
		number, ok := strings.CutSuffix(strings.TrimSuffix(bandwidth, "/s"), unit.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || !(f >= 0 && f <= 1e6) {
			return bad("the bandwidth is not a number from 0 to 1e6")
		}
		return Model{RTT: d, BitsPerSecond: f * unit.bits, InlineLimit: limit}, nil
	}
	return bad("the bandwidth has no unit Gbit, Mbit or Kbit")
}

// String returns the form that ParseModel parses. A bandwidth of 0 means unbounded.
func (m Model) String() string {
	if m == (Model{}) {
		return "none"
	}
	s := fmt.Sprintf("%s,%gGbit", strings.Replace(m.RTT.String(), "µ", "u", 1), m.BitsPerSecond/1e9)
	if m.InlineLimit > 0 {
		s += fmt.Sprintf(",inline=%d", m.InlineLimit)
	}
	return s
}

// wire is how long n bytes occupy the port, in nanoseconds.
func (m Model) wire(n int) int64 {
	if m.BitsPerSecond <= 0 {
		return 0
	}
	return int64(float64(n) * 8e9 / m.BitsPerSecond)
}

// roundTrip is the latency of an operation in nanoseconds, without its time on
// the wire.
func (m Model) roundTrip(write bool, n int) int64 {
	if write && n <= m.InlineLimit && m.RTT > fetch {
		return int64(m.RTT - fetch)
	}
	return int64(m.RTT)
}
