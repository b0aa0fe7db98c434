package mem

// On amd64 loads are not reordered with loads, nor stores with stores, and the compiler
// moves nothing across an atomic operation.

// LoadFence orders the loads before it with the atomic loads after it.
func LoadFence() {}

// StoreFence orders the atomic stores before it with the stores after it.
func StoreFence() {}
