package hlog

// MaxAddress is the end of the address space: addresses take 48 bits.
const MaxAddress = 1 << 48
