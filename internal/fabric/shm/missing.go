//go:build !linux

package shm

import (
	"errors"

	"github.com/redykv/redykv/internal/fabric"
)

// Open returns an error that names the alternatives.
func Open() (fabric.Provider, error) {
	return nil, errors.New("shm: needs memory files, which only Linux has: use --transport tcp, or mem within a process")
}

// OpenSparse is Open.
func OpenSparse() (fabric.Provider, error) { return Open() }
