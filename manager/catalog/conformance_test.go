package catalog_test

import (
	"log/slog"
	"testing"

	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

func TestMemoryConforms(t *testing.T) {
	catalogtest.Conformance(t, func(testing.TB) catalogtest.Data {
		m := catalog.NewMemory()
		return catalogtest.Data{Open: func() (catalog.Store, error) { return m.Join(), nil }}
	})
}

func TestPebbleConforms(t *testing.T) {
	catalogtest.Conformance(t, func(t testing.TB) catalogtest.Data {
		dir := t.TempDir()
		return catalogtest.Data{Alone: true, Open: func() (catalog.Store, error) {
			return catalog.OpenPebble(dir, slog.New(slog.DiscardHandler))
		}}
	})
}
