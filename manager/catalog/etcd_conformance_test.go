package catalog_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
)

func TestEtcdConforms(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	catalogs := 0
	catalogtest.Conformance(t, func(testing.TB) catalogtest.Data {
		catalogs++
		prefix := fmt.Sprint("catalog-", catalogs)
		return catalogtest.Data{Open: func() (catalog.Store, error) {
			return catalog.OpenEtcd(catalog.EtcdOptions{
				Endpoints: []string{server.Address}, Prefix: prefix, LeaseTTL: longLease, Logger: slog.New(slog.DiscardHandler),
			})
		}}
	})
}
