package cache

import (
	"fmt"
	"strings"

	"github.com/redykv/redykv/redytier"
)

// switches has the names of the parts of a tuning.
var switches = []struct {
	name   string
	tuning redytier.Tuning
}{
	{"locks", redytier.Tuning{Locks: true}},
	{"two-sided", redytier.Tuning{TwoSided: true}},
	{"pinned", redytier.Tuning{Pinning: redytier.PinAlways}},
	{"unpinned", redytier.Tuning{Pinning: redytier.PinNever}},
}

// allOn is the name of the default tuning.
const allOn = "on"

// ParseTuning reads a tuning: on, or switches joined by +, such as locks+two-sided.
func ParseTuning(s string) (t redytier.Tuning, err error) {
	if s == allOn {
		return t, nil
	}
	for name := range strings.SplitSeq(s, "+") {
		known := false
		for _, x := range switches {
			if x.name == name {
				t.Locks = t.Locks || x.tuning.Locks
				t.TwoSided = t.TwoSided || x.tuning.TwoSided
				t.Pinning = max(t.Pinning, x.tuning.Pinning)
				known = true
			}
		}
		if !known {
			return t, fmt.Errorf("tuning %q: want %s, or some of %s joined by +", s, allOn, SwitchNames())
		}
	}
	return t, nil
}

// TuningString writes a tuning as ParseTuning reads it.
func TuningString(t redytier.Tuning) string {
	var names []string
	for _, x := range switches {
		if x.tuning.Locks && t.Locks || x.tuning.TwoSided && t.TwoSided || x.tuning.Pinning != redytier.PinAuto && x.tuning.Pinning == t.Pinning {
			names = append(names, x.name)
		}
	}
	if names == nil {
		return allOn
	}
	return strings.Join(names, "+")
}

// SwitchNames lists the switches.
func SwitchNames() string {
	names := make([]string, len(switches))
	for i, x := range switches {
		names[i] = x.name
	}
	return strings.Join(names, ", ")
}
