//go:build !(verbs && linux && cgo)

package verbs

import (
	"errors"

	"github.com/redykv/redykv/internal/fabric"
)

// Open returns an error that says how to build the transport.
func Open() (fabric.Provider, error) {
	return nil, errors.New("verbs: built without the tag verbs: install libibverbs-dev and librdmacm-dev, " +
		"and build on Linux with cgo: go build -tags verbs ./cmd/redykv (docs/rdma.md)")
}

// OpenSparse is Open.
func OpenSparse() (fabric.Provider, error) { return Open() }
