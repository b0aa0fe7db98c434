package node

import "github.com/redykv/redykv/internal/mem"

// MachineMemory returns the memory in bytes that processes of this machine may have:
// what the machine has, or less where the control group of this process, a
// container's say, is limited to less. Where that is not known it is the most that a
// machine may have.
func MachineMemory() uint64 {
	if total := mem.Total(); total > 0 {
		return uint64(total)
	}
	return MaxMemory
}
