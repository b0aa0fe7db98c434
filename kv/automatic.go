package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// CheckpointPolicy says how many checkpoints are kept, and when they are made by
// themselves. The zero value makes none, nor does one without Every and EveryBytes. A
// volatile device keeps none: asking for them there is errors.ErrUnsupported.
type CheckpointPolicy struct {
	// Keep is how many of the newest checkpoints without a name of their own are kept,
	// besides those on which a kept one stands. Checkpoints that were given a name stay
	// until [Store.RemoveCheckpoint]. Default 2.
	Keep int
	// Every is how much time lies between two. 0: no matter how much.
	Every time.Duration
	// EveryBytes is by how much the log grows between two. 0: no matter how much.
	EveryBytes int64
	// Kind of the automatic ones. It takes Every or EveryBytes.
	Kind CheckpointKind
	// Increments is how many Incremental ones follow on a whole Snapshot before
	// there is another one: recovery reads them all. It takes Every or EveryBytes, and
	// Incremental as the Kind. Default 8.
	Increments int
}

// Defaults of CheckpointPolicy.
const (
	DefaultKeep       = 2
	DefaultIncrements = 8
)

// ensureDefaults fills in what is unset and checks the rest.
func (p *CheckpointPolicy) ensureDefaults() error {
	if p.Keep == 0 {
		p.Keep = DefaultKeep
	}
	never := p.Every == 0 && p.EveryBytes == 0
	switch {
	case p.Kind >= manifest.Kinds:
		return fmt.Errorf("kv: Options.Checkpoints.Kind: unknown kind %d", p.Kind)
	case never && p.Kind != 0:
		return fmt.Errorf("kv: Options.Checkpoints.Kind %v without Every or EveryBytes: no checkpoints would be made", p.Kind)
	case p.Increments > 0 && (never || p.Kind != Incremental):
		return fmt.Errorf("kv: Options.Checkpoints.Increments %d: want Kind incremental, and Every or EveryBytes", p.Increments)
	}
	if p.Increments == 0 {
		p.Increments = DefaultIncrements
	}
	switch {
	case p.Keep < 0:
		return fmt.Errorf("kv: Options.Checkpoints.Keep %d, want 0 or more", p.Keep)
	case p.Every < 0 || p.EveryBytes < 0 || p.Increments < 0:
		return fmt.Errorf("kv: Options.Checkpoints every %v, every %d bytes, of %d increments: want none negative", p.Every, p.EveryBytes, p.Increments)
	}
	return nil
}

// automatic is the goroutine that makes checkpoints by itself.
type automatic struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// lookEvery is how often the log's growth is looked at.
const lookEvery = 100 * time.Millisecond

func (st *Store) startAutomatic() {
	p := &st.opts.Checkpoints
	ctx, cancel := context.WithCancel(context.Background())
	st.automatic = automatic{cancel, make(chan struct{})}
	if p.Every == 0 && p.EveryBytes == 0 {
		close(st.automatic.done)
		return
	}
	go st.checkpointAutomatically(ctx, p, time.Now(), st.log.Tail())
}

func (st *Store) stopAutomatic() {
	st.autoCompactor.stop()
	st.automatic.stop()
	<-st.automatic.done
}

// checkpointAutomatically ends with ctx; last and tail are time and log at the
// last checkpoint. What goes wrong goes to the logger and is counted; the next one
// is due as if it had not.
func (st *Store) checkpointAutomatically(ctx context.Context, p *CheckpointPolicy, last time.Time, tail int64) {
	defer close(st.automatic.done)
	interval := p.Every
	if p.EveryBytes > 0 && (interval == 0 || interval > lookEvery) {
		interval = lookEvery
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		byTime := p.Every > 0 && time.Since(last) >= p.Every
		bySize := p.EveryBytes > 0 && st.log.Tail()-tail >= p.EveryBytes
		if !byTime && !bySize {
			continue
		}
		last, tail = time.Now(), st.log.Tail()
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: st.automaticKind(p)})
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			st.opts.Logger.Error("automatic checkpoint", "err", err)
			st.failed("automatic checkpoint", err)
		}
	}
}

// automaticKind ends chains of increments that are long enough.
func (st *Store) automaticKind(p *CheckpointPolicy) CheckpointKind {
	m := st.recorded()
	if n := len(m.Checkpoints); p.Kind == Incremental && n > 0 && len(m.Chain(&m.Checkpoints[n-1])) > p.Increments {
		return Snapshot
	}
	return p.Kind
}
