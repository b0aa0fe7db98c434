package fabric

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Network is a Model for each distance between a client and its servers. The distance is the
// number of switches traversed: 1, 3 or 5 in a data centre (section 2.1). The zero Network
// adds nothing at any distance.
type Network struct {
	hops []hop // by distance, ascending
}

type hop struct {
	distance int
	model    Model
}

// maxDistance bounds the switches between two hosts.
const maxDistance = 64

// ParseNetwork parses one model for all distances, as ParseModel does, or a model per
// distance: "1:2.9us,100Gbit;3:4us,100Gbit".
func ParseNetwork(s string) (Network, error) {
	if !strings.Contains(s, ":") {
		m, err := ParseModel(s)
		if err != nil || m == (Model{}) {
			return Network{}, err
		}
		return Network{hops: []hop{{1, m}}}, nil
	}
	var n Network
	for part := range strings.SplitSeq(s, ";") {
		number, text, _ := strings.Cut(part, ":")
		distance, err := strconv.Atoi(number)
		if err != nil || distance < 1 || distance > maxDistance {
			return Network{}, fmt.Errorf("network %q: distance %q: want 1 to %d switches", s, number, maxDistance)
		}
		m, err := ParseModel(text)
		if err != nil {
			return Network{}, fmt.Errorf("network %q: at distance %d: %w", s, distance, err)
		}
		n.hops = append(n.hops, hop{distance, m})
	}
	slices.SortFunc(n.hops, func(a, b hop) int { return a.distance - b.distance })
	for i := range n.hops[1:] {
		if n.hops[i].distance == n.hops[i+1].distance {
			return Network{}, fmt.Errorf("network %q: distance %d is given twice", s, n.hops[i].distance)
		}
	}
	return n, nil
}

// At is the model for a distance: that of the next one that is given, and beyond
// all of them that of the farthest.
func (n Network) At(distance int) Model {
	for _, h := range n.hops {
		if distance <= h.distance {
			return h.model
		}
	}
	if len(n.hops) == 0 {
		return Model{}
	}
	return n.hops[len(n.hops)-1].model
}

// String is what reports are stamped with, and what ParseNetwork takes.
func (n Network) String() string {
	if len(n.hops) < 2 {
		return n.At(1).String()
	}
	parts := make([]string, len(n.hops))
	for i, h := range n.hops {
		parts[i] = fmt.Sprintf("%d:%v", h.distance, h.model)
	}
	return strings.Join(parts, ";")
}
