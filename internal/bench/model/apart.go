package model

import (
	"fmt"
	"runtime"

	"github.com/redykv/redykv/internal/affinity"
	fabricbench "github.com/redykv/redykv/internal/bench/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
)

// DefaultApart says whether clients and servers on this machine run on different processors
// by default. Where threads sleep, the kernel's placement would decide the result, and
// differ with every cache.
func DefaultApart(transport string, idle fabricbench.Idle, clientCores int) bool {
	_, _, err := affinity.Halves()
	return err == nil && transport != mem.Name && idle == fabricbench.Wait && checkApart(clientCores) == nil
}

// checkApart returns an error if there are more client threads than processors for clients
// when clients and servers are apart.
func checkApart(clientCores int) error {
	half := (runtime.NumCPU() + 1) / 2 // of the machine, not of this process
	if clientCores > half {
		return fmt.Errorf("clients and servers apart: %d client cores, where clients have %d of %d processors", clientCores, half, runtime.NumCPU())
	}
	return nil
}
