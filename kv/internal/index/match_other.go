//go:build !amd64 || race

package index

import "unsafe"

func match(bucket unsafe.Pointer, want uint64) int { return matchWords(bucket, want) }
