package resp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// packedHash returns the content of a packed hash of n fields, and those.
func packedHash(n int) (content []byte, fields [][]byte) {
	var p pairs
	p.load(nil, typeHash)
	for i := range n {
		fields = append(fields, fmt.Appendf(nil, "field%d", i))
		p.set(fields[i], fmt.Appendf(nil, "value%d", i))
	}
	return p.appendContent(nil), fields
}

// TestFewLooksAllocateNothing: commands with some fields of a packed hash or set of many do not allocate
// memory for the others.
func TestFewLooksAllocateNothing(t *testing.T) {
	testrun.SkipRaced(t, "the detector allocates")
	content, fields := packedHash(500)
	asked := append(slices.Clone(fields[100:109]), []byte("none"))
	for name, family := range map[string]valueType{"HMGET": typeHash, "SMISMEMBER": typeSet} {
		reply := replyFields(math.MaxInt64)
		if family == typeSet {
			reply = replyWhichHas // the values are members too
		}
		out, e := make([]byte, 0, 4096), &packed{}
		if n := testrun.AllocsPerRun(100, func() {
			*e = packed{rest: content, family: family}
			out = reply(out[:0], false, e, asked)
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	var p pairs
	change := func() {
		p.load(content, typeHash)
		for _, field := range asked {
			p.set(field, field)
		}
		p.remove(fields[7])
	}
	if n := testrun.AllocsPerRun(100, change); n > 0 {
		t.Errorf("a change of some fields: %v allocations", n)
	}
}

// TestLookUp compares many fields at once, also repeated ones, with one at a time, in all forms of a hash.
func TestLookUp(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t, 27), 0))
	for range 300 {
		content, fields := packedHash(r.IntN(400))
		var p pairs
		p.load(content, typeHash)
		var asked [][]byte
		for range r.IntN(40) {
			if len(fields) > 0 && r.IntN(3) > 0 {
				asked = append(asked, fields[r.IntN(len(fields))])
			} else {
				asked = append(asked, []byte([]string{"", "none", "field", "field1000", "value1"}[r.IntN(5)]))
			}
		}
		for _, e := range []elements{&packed{rest: content, family: typeHash}, &p} {
			for i, l := range lookUp(e, asked, nil) {
				value, found := (&packed{rest: content, family: typeHash}).get(asked[i])
				if l.found != found || string(l.value) != string(value) || string(l.field) != string(asked[i]) {
					t.Fatalf("%T of %d: %q is %q, %v, want %q, %v", e, len(fields), asked[i], l.value, l.found, value, found)
				}
			}
		}
	}
	damaged := &packed{rest: []byte("\x01f\x05v"), family: typeHash}
	if looks := lookUp(damaged, [][]byte{[]byte("f"), []byte("g")}, nil); damaged.err() != errDamagedHash || looks[0].found || looks[1].found {
		t.Errorf("%v, %q", looks, damaged.err())
	}
}

// TestManyChangesOfPairs: pairs that are changed often are found by a map, with the same result.
func TestManyChangesOfPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t, 28), 0))
	for range 20 {
		var p pairs
		p.load(nil, typeTableHash)
		want := map[string]string{}
		for range 2000 {
			field := fmt.Sprint(r.IntN(600))
			_, had := want[field]
			if r.IntN(4) == 0 {
				delete(want, field)
				if p.remove([]byte(field)) != had {
					t.Fatalf("%s was there: %v", field, had)
				}
				continue
			}
			value := strings.Repeat("v", r.IntN(9))
			want[field] = value
			if p.set([]byte(field), []byte(value)) == had {
				t.Fatalf("%s was there: %v", field, had)
			}
		}
		if p.byField == nil {
			t.Error("there is no map")
		}
		if p.len() != len(want) {
			t.Fatalf("%d pairs, want %d", p.len(), len(want))
		}
		p.each(func(field, value []byte) bool {
			if is, ok := want[string(field)]; !ok || is != string(value) {
				t.Fatalf("%s has %q, want %q", field, value, is)
			}
			return true
		})
	}
}
