package fabric

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Model is a network with its adapters: what WithModel adds to a transport. The zero Model
// adds nothing.
type Model struct {
	// RTT is the time from Submit to the completion of an operation that moves
	// no bytes.
	RTT time.Duration
	// BitsPerSecond is the bandwidth of a host's port, each way; 0: unbounded.
	BitsPerSecond float64
	// InlineLimit is the most bytes that a write carries inside its work
	// request (R51). The adapter does not fetch the payload of such a write.
	InlineLimit int
	// Reads is the number of reads that a queue pair may have outstanding, max_rd_atomic
	// in verbs; 0: unbounded. A further read waits at the adapter, and so do all
	// operations behind it in its queue pair.
	Reads int
	// Messages is the number of messages a second that an adapter sends and receives, of
	// all its queue pairs; 0: unbounded. An operation is one message.
	Messages int64
}

// fetch is the time that an inlined write saves: one read over PCIe, about half a
// microsecond on servers of the kind the paper used.
const fetch = 500 * time.Nanosecond

// Bounds of the options of a model.
const (
	maxInline   = math.MaxUint16
	maxReads    = math.MaxUint8 // the width of max_rd_atomic
	maxMessages = 1e12
)

// models maps names to models. The model rdma is the paper's network and adapter, a ConnectX-5
// on 100 Gbit/s InfiniBand (7.1): the paper's round trip of 2.9 us (Q10) and limit of inlined
// writes; 16 outstanding reads of a queue pair, which is the adapter's max_rd_atomic and the
// paper's limit of the queue depth (Q22); and 200 million messages a second, which the
// adapter's maker names as its limit.
var models = map[string]Model{
	"none": {},
	"rdma": {RTT: 2900 * time.Nanosecond, BitsPerSecond: 100e9, InlineLimit: 172, Reads: 16, Messages: 200e6},
}

// ModelUsage describes the text that ParseModel parses.
const ModelUsage = "none, rdma, or a round trip and a bandwidth like 2.9us,100Gbit, with any of the options inline=172, reads=16 and messages=200M"

// ParseModel parses "none", "rdma", or a round trip and a bandwidth like "2.9us,100Gbit",
// followed by any of the options ",inline=172", ",reads=16" and ",messages=200M", each once.
func ParseModel(s string) (Model, error) {
	if m, ok := models[s]; ok {
		return m, nil
	}
	m, err := parseModel(s)
	if err != nil {
		return Model{}, fmt.Errorf("network model %q: %w; want %s", s, err, ModelUsage)
	}
	return m, nil
}

func parseModel(s string) (m Model, err error) {
	parts := strings.Split(s, ",")
	if len(parts) < 2 {
		return m, fmt.Errorf("no bandwidth")
	}
	if m.RTT, err = time.ParseDuration(parts[0]); err != nil || m.RTT < 0 || m.RTT > time.Minute {
		return m, fmt.Errorf("the round trip %q is not a duration from 0 to 1m", parts[0])
	}
	if m.BitsPerSecond, err = parseBandwidth(parts[1]); err != nil {
		return m, err
	}
	seen := make(map[string]bool)
	for _, option := range parts[2:] {
		name, value, _ := strings.Cut(option, "=")
		if seen[name] {
			return m, fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if err := m.set(name, value); err != nil {
			return m, err
		}
	}
	return m, nil
}

// set sets an option.
func (m *Model) set(name, value string) error {
	switch name {
	case "inline":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxInline {
			return fmt.Errorf("inline=%s, the limit of inlined writes, is not a number from 0 to %d", value, maxInline)
		}
		m.InlineLimit = n
	case "reads":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxReads {
			return fmt.Errorf("reads=%s, the outstanding reads of a queue pair, is not a number from 1 to %d", value, maxReads)
		}
		m.Reads = n
	case "messages":
		digits, unit := value, int64(1)
		for _, u := range messageUnits {
			if number, ok := strings.CutSuffix(value, u.name); ok {
				digits, unit = number, u.messages
				break
			}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > maxMessages/unit {
			return fmt.Errorf("messages=%s, the messages a second of an adapter, is not a whole number from 1 to %dM, such as 200M", value, int64(maxMessages/1e6))
		}
		m.Messages = n * unit
	default:
		return fmt.Errorf("%q is none of the options inline=BYTES, reads=NUMBER and messages=NUMBER", name)
	}
	return nil
}

var messageUnits = []struct {
	name     string
	messages int64
}{{"M", 1e6}, {"K", 1e3}}

func parseBandwidth(s string) (float64, error) {
	for _, unit := range []struct {
		name string
		bits float64
	}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Kbit", 1e3}} {
		number, ok := strings.CutSuffix(strings.TrimSuffix(s, "/s"), unit.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || !(f >= 0 && f <= 1e6) {
			return 0, fmt.Errorf("the bandwidth %q is not a number from 0 to 1e6 with a unit", s)
		}
		return f * unit.bits, nil
	}
	return 0, fmt.Errorf("the bandwidth %q has no unit Gbit, Mbit or Kbit", s)
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
	if m.Reads > 0 {
		s += fmt.Sprintf(",reads=%d", m.Reads)
	}
	if m.Messages > 0 {
		number, unit := m.Messages, ""
		for _, u := range messageUnits {
			if number%u.messages == 0 {
				number, unit = number/u.messages, u.name
				break
			}
		}
		s += fmt.Sprintf(",messages=%d%s", number, unit)
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

// handling is how long n messages occupy the adapter, in nanoseconds.
func (m Model) handling(n uint64) int64 {
	if m.Messages <= 0 {
		return 0
	}
	return int64(math.Ceil(float64(n) * 1e9 / float64(m.Messages)))
}

// roundTrip is the latency of an operation in nanoseconds, without its time on
// the wire.
func (m Model) roundTrip(write bool, n int) int64 {
	if write && n <= m.InlineLimit && m.RTT > fetch {
		return int64(m.RTT - fetch)
	}
	return int64(m.RTT)
}
