//go:build !race

package hlog

// setWord stores a word for readers that load it atomically, after everything
// that was stored before. On amd64 a plain store is just that, and unlike an
// exchange does not keep the next operation's loads from starting.
func setWord(p *uint64, word uint64) { *p = word }
