package resp

import (
	"strings"
	"testing"
)

// Numbers with a point may be as long as Redis takes them, as its sums are.
func TestLongFloats(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	sum := p.do("INCRBYFLOAT", "a", "1e600")
	if len(sum) != 601+len(`""`) {
		t.Fatal(sum)
	}
	if got := p.do("INCRBYFLOAT", "a", "3.0e-5"); got != sum {
		t.Errorf("%s\nwant %s", got, sum)
	}
	longest := strings.Repeat("0", floatDigits-2) + "1"
	if got := p.do("INCRBYFLOAT", "b", longest); got != `"1"` {
		t.Error(got)
	}
	if got := p.do("INCRBYFLOAT", "b", "0"+longest); got != "-"+errNotFloat {
		t.Error(got)
	}
}
