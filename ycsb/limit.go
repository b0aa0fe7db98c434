package ycsb

import (
	"fmt"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
)

// memoryLimit is the limit of the memory of each store's process, page cache included. Stores
// in files all have the same: a peer whose files stay in the page cache is not larger than
// memory.
type memoryLimit struct {
	Bytes int64  // 0: none
	What  string // what enforces it, or why there is none
}

// limits returns the limit of the stores in processes of their own.
func (c Comparison) limits() memoryLimit {
	if c.Child == nil {
		return memoryLimit{What: "none: the stores are in one process"}
	}
	limit := int64(size(c.limitBytes()))
	if limit == 0 {
		return memoryLimit{What: "none: the data of device memory are in the store's process"}
	}
	if machine.RaceDetector {
		return memoryLimit{What: "none: no control group, as the memory of the race detector is not estimated"}
	}
	group, err := mem.NewGroup(limit)
	if err == nil {
		err = group.Close()
	}
	if err != nil {
		return memoryLimit{What: fmt.Sprintf("none: %v", err)}
	}
	return memoryLimit{limit, fmt.Sprintf("control groups, version %d", group.Version())}
}

// goMemory returns the memory limit for the Go runtime of a store's process: most of its
// memory limit, or of its own estimate if it has none.
func (c Comparison) goMemory(s subject, limit memoryLimit) int64 {
	bytes := limit.Bytes
	if bytes == 0 {
		bytes = int64(size(local(c.parts(s))))
	}
	return bytes - bytes/goShare
}

// goShare is the part of a process's memory that is left to what is not the Go heap.
const goShare = 8

// limited says whether the store's process has the limit. The data of device memory are in
// the process.
func (s subject) limited() bool { return s.device != Memory }

// limit returns the limit of a store's process.
func (l memoryLimit) of(s subject) memoryLimit {
	if !s.limited() {
		return memoryLimit{What: "none: the data are in the store's process"}
	}
	return l
}
