package hlog

// On amd64 loads are not reordered with loads nor stores with stores, and the
// compiler moves nothing across an atomic.

func loadFence()  {}
func storeFence() {}
