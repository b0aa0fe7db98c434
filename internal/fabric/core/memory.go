//go:build !race

package core

import "github.com/redykv/redykv/internal/mem"

func allocate(size int) ([]byte, error) { return mem.Alloc(size) }

func discard(b []byte) error { return mem.Discard(b) }

func release(b []byte) error { return mem.Free(b) }
