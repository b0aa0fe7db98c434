//go:build !linux

package shm

import (
	"errors"

	"github.com/redykv/redykv/internal/fabric"
)

// Open says what to take in its place.
func Open() (fabric.Provider, error) {
	return nil, errors.New("shm: it takes Linux, for its memory files: use --transport tcp, or mem within a process")
}
