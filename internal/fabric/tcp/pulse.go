package tcp

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

// pulse finds the peers of a provider that are silent. TCP's own probes are answered by
// the peer's kernel, though its process be stopped or stuck. So where nothing has come
// over a connection for a beat, the peer is asked for a sign of life, which its process
// gives; where nothing has come for silentBeats, the connection is given up.
//
// Time is counted in beats of this process: if it stands still itself, stopped or without
// a processor, it accuses nobody of that when it goes on.
type pulse struct {
	begin, end sync.Once
	over       chan struct{} // closed by stop
	done       sync.WaitGroup
}

const (
	// A silent peer is given up at the beat that ends its last allowed silence: by
	// then at least silentBeats have passed, and at most one more, since it was heard.
	silentBeats     = 4
	beatsPerSilence = silentBeats + 1
)

func newPulse() pulse { return pulse{over: make(chan struct{})} }

// start has p's connections looked after from now on. It may be called again.
func (b *pulse) start(p *Provider) {
	b.begin.Do(func() { b.done.Go(func() { b.run(p) }) })
}

// stop ends it, for good. Nobody calls start any more.
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
		pairs = p.pairs.Append(pairs[:0])
		for _, q := range pairs {
			q.(*queuePair).beat()
		}
		clear(pairs)
	}
}

// beat is called once for each beat. The pulse's goroutine.
func (q *queuePair) beat() {
	if q.heard.Swap(false) {
		q.quiet = 0
		return
	}
	switch q.quiet++; q.quiet {
	case 1:
		q.send(&frame{kind: kindPing})
	case silentBeats:
		q.State.End(fmt.Errorf("%w: silent for %v", fabric.ErrDisconnected, q.provider.silence))
		_ = q.conn.socket.Close() // the reader ends, and all that is under way with it
	}
}
