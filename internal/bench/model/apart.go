package model

import (
	"fmt"
	"runtime"

	"github.com/redykv/redykv/internal/affinity"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
)

// DefaultApart says whether clients and servers of this machine are measured on
// processors of their own unless said otherwise: where threads wait for each other, whom
// the kernel puts where would decide what is measured, and would do so anew with every
// cache.
func DefaultApart(transport string, idle fabricbench.Idle, clientCores int) bool {
	_, _, err := affinity.Halves()
	return err == nil && transport != mem.Name && idle == fabricbench.Wait && checkApart(clientCores) == nil
}

// checkApart refuses more client threads than clients have processors when they are
// apart from servers, now or soon.
func checkApart(clientCores int) error {
	half := (runtime.NumCPU() + 1) / 2 // whatever this process is kept to by now
	if clientCores > half {
		return fmt.Errorf("clients and servers apart: %d client cores, where clients have %d of %d processors", clientCores, half, runtime.NumCPU())
	}
	return nil
}
