package resp

import (
	"strings"
	"testing"
)

// TestFloatsExponents: zero may have any exponent; that of other numbers is limited.
func TestFloatsExponents(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	for value, want := range map[string]string{
		"0e5000": `"1.5"`, "0e500041": `"1.5"`, "-0.00e-99999999999999999999": `"1.5"`, "0x0.0p99999999": `"1.5"`,
		"1e500041": "-" + errNotFloat, "1e-500041": "-" + errNotFloat, "0e": "-" + errNotFloat, ".e1": "-" + errNotFloat, "0e+-1": "-" + errNotFloat,
	} {
		p.do("SET", "a", value)
		if got := p.do("INCRBYFLOAT", "a", "1.5"); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// TestLongFloats: numbers may have as many digits as Redis accepts, and so may sums.
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
