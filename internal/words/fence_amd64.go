package words

// On amd64 loads are not reordered with loads nor stores with stores, and the
// compiler moves nothing across an atomic.

// LoadFence keeps loads before it ahead of atomic loads behind it.
func LoadFence() {}

// StoreFence keeps atomic stores before it ahead of stores behind it.
func StoreFence() {}
