package resp

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv"
)

// loading tells whether the server still has no store, and how far the opening of the store is.
type loading struct {
	on          atomic.Bool // the server's other goroutines use its store only when this is false
	read, bytes atomic.Int64
	started     time.Time
	part        atomic.Int64 // Unix time in ns at which the reading of bytes began
}

// Opened gives its store to a server that was made without one. It is called once, and not after Shutdown
// or Close.
func (s *Server) Opened(store *kv.Store) {
	s.use(store)
	s.begin.Do(s.start)
	s.loading.on.Store(false)
}

// Loading tells a server without a store how much was read of what has to be read to open it. INFO shows
// that.
func (s *Server) Loading(read, bytes int64) {
	l := &s.loading
	l.read.Store(read)
	if l.bytes.Swap(bytes) != bytes {
		l.part.Store(time.Now().UnixNano())
	}
}

// use sets the store.
func (s *Server) use(store *kv.Store) {
	s.store, s.committer.store = store, store
	s.pool.store, s.pool.packedMost = store, spreadAbove(store, s.opts.packedMost)
	s.short = shortRequest(store)
}

// storeMetrics returns the store's metrics. They are zero without a store.
func (s *Server) storeMetrics() kv.Metrics {
	if s.loading.on.Load() {
		return kv.Metrics{}
	}
	return s.store.Metrics()
}

// whileLoading reports whether a command may run on a server without a store. Other than with Redis,
// transactions may not: they lock keys.
func (cmd *command) whileLoading() bool {
	return cmd.flags&flagLoading != 0 && cmd.group != groupTransactions
}

// info returns the lines of INFO.
func (l *loading) info() string {
	if !l.on.Load() {
		return "loading:0\n"
	}
	read, bytes, took := l.read.Load(), l.bytes.Load(), time.Since(time.Unix(0, l.part.Load())).Seconds()
	eta := 1.0
	if read > 0 {
		eta = took * float64(bytes-read) / float64(read)
	}
	return fmt.Sprintf("loading:1\nloading_start_time:%d\nloading_total_bytes:%d\nloading_rdb_used_mem:0\nloading_loaded_bytes:%d\nloading_loaded_perc:%.2f\nloading_eta_seconds:%.0f\n",
		l.started.Unix(), bytes, read, 100*float64(read)/float64(max(bytes, 1)), eta)
}
