package catalog

import (
	"context"
	"testing"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
)

// A mirror whose next change etcd has forgotten loads all keys again.
func TestMirrorAfterCompaction(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	put := func(key, value string) int64 {
		t.Helper()
		resp, err := c.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	m := newMirror(c, "/p/")
	put("/p/record/a", "1")
	put("/p/record/b", "1")
	if err := m.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	put("/p/record/a", "2")
	if _, err := c.Delete(t.Context(), "/p/record/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), put("/q", "")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx)
	}()
	last := put("/p/record/c", "1")
	if err := m.wait(t.Context(), func() bool { return m.revision >= last }); err != nil {
		t.Fatal(err)
	}
	cancel()
	testrun.Receive(t, "the mirror ends", ended)
	if len(m.records) != 2 || string(m.records["a"].Value) != "2" || m.records["a"].Version != 2 || m.records["c"].Version != 1 {
		t.Errorf("%v", m.records)
	}
}
