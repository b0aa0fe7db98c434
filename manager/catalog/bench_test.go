package catalog_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/manager/catalog"
)

// BenchmarkCommit writes records of 300 bytes. Its time is that of a commit.
func BenchmarkCommit(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	for _, kind := range []struct {
		name string
		url  func(b *testing.B) string
	}{
		{"memory", func(*testing.B) string { return "memory:" }},
		{"pebble", func(b *testing.B) string { return "pebble:" + b.TempDir() }},
		{"etcd", func(b *testing.B) string { return "etcd://" + etcdtest.Start(b, etcdtest.Options{Sync: true}).Address }},
	} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/changes=%d", kind.name, n), func(b *testing.B) {
				s, err := catalog.Open(kind.url(b), catalog.Options{Logger: quiet})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				term, err := s.Campaign(b.Context(), "")
				if err != nil {
					b.Fatal(err)
				}
				changes := make([]catalog.Change, n)
				for i := range changes {
					changes[i] = catalog.Change{Key: fmt.Sprintf("vm/%04d", i), Value: make([]byte, 300)}
				}
				for b.Loop() {
					if err := term.Commit(b.Context(), changes); err != nil {
						b.Fatal(err)
					}
					for i := range changes {
						changes[i].Version++
					}
				}
			})
		}
	}
}
