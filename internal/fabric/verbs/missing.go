//go:build !(verbs && linux && cgo)

package verbs

import (
	"errors"

	"github.com/redykv/redykv/internal/fabric"
)

// Open says how to get what it opens.
func Open() (fabric.Provider, error) {
	return nil, errors.New("verbs: built without the tag verbs: install libibverbs-dev and librdmacm-dev, " +
		"and build on Linux with cgo: go build -tags verbs ./cmd/redykv (docs/rdma.md)")
}
