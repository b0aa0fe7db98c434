package main

import (
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/ssdtier"
)

// TestServedFiles checks that the flags for the SSD's files set their options.
func TestServedFiles(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		verify  ssdtier.Verify
		recycle int
	}{
		{nil, ssdtier.VerifyAll, ssdtier.DefaultRecycle},
		{[]string{"--verify=blocks", "--recycle=3"}, ssdtier.VerifyBlocks, 3},
		{[]string{"--recycle=0"}, ssdtier.VerifyAll, -1},
	} {
		f, flags := newStorageFlags(), pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		if err := f.check(); err != nil {
			t.Errorf("%v: %v", tc.args, err)
		}
		if o := f.files(slog.Default()); o.Verify != tc.verify || o.Recycle != tc.recycle || o.Logger == nil {
			t.Errorf("%v: %+v", tc.args, o)
		}
	}
}

// TestRefillLimit: a device takes 0 as no limit, the flag as no refill.
func TestRefillLimit(t *testing.T) {
	for arg, want := range map[string]int64{"": 0, "--refill-rate=": 0, "--refill-rate=0": -1, "--refill-rate=1MiB": 1 << 20} {
		f, flags := newStorageFlags(), pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(arg)); err != nil {
			t.Fatal(err)
		}
		if got := f.refillLimit(); got != want {
			t.Errorf("%q: %d, want %d", arg, got, want)
		}
	}
}

// Go's heap gets what the store leaves, and is not squeezed below what clients may take.
func TestHeapLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what            string
		total           int64
		mapped, budgets float64
		limit           int64
		warns           bool
	}{
		{"unknown", 0, 100 * mib, 512 * mib, math.MaxInt64, false},
		{"enough", 2048 * mib, 1048 * mib, 512 * mib, 900 * mib, false},
		{"too little", 2048 * mib, 1548 * mib, 512 * mib, 576 * mib, true},
		{"less than none", 1024 * mib, 1548 * mib, 512 * mib, 576 * mib, true},
	} {
		limit, warning := heapLimit(c.total, c.mapped, c.budgets)
		if limit != c.limit || (warning != "") != c.warns {
			t.Errorf("%s: %d, %q, want %d", c.what, limit, warning, c.limit)
		}
	}
}
