package manager

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// Bounds of a decision in encoded bytes, and of its texts where it would be too long. A
// cache keeps one decision to allocate, one to reallocate and one about a move, in 4 KiB
// together.
const (
	maxDecision     = 4<<10/3 - 4
	maxDecisionText = 160
	maxDecisionName = 64
)

// bound shortens a decision to maxDecision bytes. It keeps the chosen VMs, then as many of
// the others as there is room for, in their order, and counts those that it leaves out.
func bound(d *managerv1.Decision) {
	if proto.Size(d) <= maxDecision {
		return
	}
	sites, verdicts := d.Sites, d.Verdicts
	d.Sites, d.Verdicts = nil, nil
	left := &managerv1.Verdict{Name: fmt.Sprintf("%d more", len(sites)+len(verdicts)), Reason: "left out of this list"}
	room := maxDecision - proto.Size(d) - sizeWithin(left)
	fits := func(m proto.Message) bool {
		size := sizeWithin(m)
		if size > room {
			return false
		}
		room -= size
		return true
	}
	keepSite, keep := make([]bool, len(sites)), make([]bool, len(verdicts))
	for _, first := range []bool{true, false} {
		for i, s := range sites {
			s.Reason = cut(s.GetReason(), maxDecisionText)
			keepSite[i] = keepSite[i] || s.GetChosen() == first && fits(s)
		}
		for i, v := range verdicts {
			v.Name, v.Reason = cut(v.GetName(), maxDecisionName), cut(v.GetReason(), maxDecisionText)
			keep[i] = keep[i] || (v.GetVms() > 0 || v.GetName() == aMove) == first && fits(v)
		}
	}
	for i, s := range sites {
		if keepSite[i] {
			d.Sites = append(d.Sites, s)
		}
	}
	for i, v := range verdicts {
		if keep[i] {
			d.Verdicts = append(d.Verdicts, v)
		}
	}
	if n := len(sites) + len(verdicts) - len(d.Sites) - len(d.Verdicts); n > 0 {
		left.Name = fmt.Sprintf("%d more", n)
		d.Verdicts = append(d.Verdicts, left)
	}
}

// sizeWithin returns the bytes of a message within a decision.
func sizeWithin(m proto.Message) int { return proto.Size(m) + 3 }

// cut shortens a text to n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:n-len(mark)], "") + mark
}
