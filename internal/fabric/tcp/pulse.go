package tcp

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

// pulse finds silent peers of a provider. The peer's kernel answers TCP's keep-alives even if
// its process is stopped. So a peer that has sent nothing for a beat gets a ping, which its
// process answers; a connection that was silent for silentBeats is ended.
//
// Time is counted in beats of this process, so a process that was stopped or had no processor
// does not take its own silence for its peers'.
type pulse struct {
	begin, end sync.Once
	over       chan struct{} // closed by stop
	done       sync.WaitGroup
}

const (
	// A silent peer is disconnected at the beat that ends its last allowed silence: at least
	// silentBeats, and at most one more, after its last bytes.
	silentBeats     = 4
	beatsPerSilence = silentBeats + 1
)

func newPulse() pulse { return pulse{over: make(chan struct{})} }

// start starts to watch p's connections. It may be called again.
func (b *pulse) start(p *Provider) {
	b.begin.Do(func() { b.done.Go(func() { b.run(p) }) })
}

// stop ends the pulse. start is not called afterwards.
func (b *pulse) stop() {
	b.begin.Do(func() {})
	b.end.Do(func() { close(b.over) })
	b.done.Wait()
}

func (b *pulse) run(p *Provider) {
	ticker := time.NewTicker(max(p.silence/beatsPerSilence, time.Millisecond))
	defer ticker.Stop()
	var pairs []io.Closer
	for {
		select {
		case <-ticker.C:
		case <-b.over:
			return
		}
		pairs = p.Pairs.Append(pairs[:0])
		for _, q := range pairs {
			q.(*queuePair).beat()
		}
		clear(pairs)
	}
}

// beat is called once per beat, by the pulse's goroutine.
func (q *queuePair) beat() {
	if q.heard.Swap(false) {
		q.quiet = 0
		return
	}
	switch q.quiet++; q.quiet {
	case 1:
		q.out.shrink()
		q.send(&frame{kind: kindPing})
	case silentBeats:
		q.State.End(fmt.Errorf("%w: silent for %v", fabric.ErrDisconnected, q.provider.silence))
		_ = q.conn.socket.Close() // ends the reader, and with it all pending operations
	}
}
