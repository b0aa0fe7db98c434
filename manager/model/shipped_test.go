package model

import (
	"regexp"
	"testing"
)

// The shipped models are complete and answer SLOs.
func TestShipped(t *testing.T) {
	models := Shipped()
	library, err := NewLibrary(models...)
	if err != nil {
		t.Fatal(err)
	}
	commit := regexp.MustCompile("^[0-9a-f]{40}$")
	for _, m := range models {
		p := m.Provenance
		if !commit.MatchString(p.Revision) {
			t.Errorf("%s, %s: revision %q: measured by a program of which nobody knows what it was: build it with -buildvcs=true", p.Transport, p.Network, p.Revision)
		}
		if len(m.Measurements) == 0 || p.Host.CPU == "" || p.Date.IsZero() {
			t.Errorf("%+v: nothing was measured, or nobody knows where", p)
		}
		for _, n := range m.Measurements {
			if !n.Complete() {
				t.Errorf("%s, %s: records of %d bytes: incomplete", p.Transport, p.Network, n.RecordSize)
			}
			found, err := library.Search(Query{
				RecordSize: n.RecordSize, Transport: p.Transport, Network: func(int) string { return n.Network }, ClientCores: 1,
			})
			if err != nil || found[n.Distance].Config.C != 1 {
				t.Errorf("%s, %s: records of %d bytes: %v, %v", p.Transport, p.Network, n.RecordSize, found, err)
			}
		}
	}
}
