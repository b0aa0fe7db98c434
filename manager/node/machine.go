package node

import "github.com/redykv/redykv/internal/mem"

// MachineMemory returns the machine's memory in bytes, or the limit of this process's
// control group if that is less; [MaxMemory] if neither is known.
func MachineMemory() uint64 {
	if total := mem.Total(); total > 0 {
		return uint64(total)
	}
	return MaxMemory
}
