package redytier

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Companion keeps what a device needs to take up its cache after a restart, some KiB beside the
// log. Its methods are called by one goroutine at a time.
//
// It must not outlive the log's history: whoever starts the log again, with this device or
// without it, removes what an earlier process has written, durably, before the log grows.
type Companion interface {
	// ReadCompanion returns what an earlier process has written; nil if there is nothing.
	ReadCompanion() ([]byte, error)
	// WriteCompanion replaces what there is, durably and atomically, by data of this process.
	// Without data it removes it.
	WriteCompanion(data []byte) error
}

// companionVersion is the version of companionState that is written.
const companionVersion = 1

// companionState is what a Companion holds, as JSON.
type companionState struct {
	Version int      `json:"version"`
	Cache   Identity `json:"cache"`
	Piece   int64    `json:"piece"` // bytes of a piece, and of the ring
	Ring    int64    `json:"ring"`
	Lives   lives    `json:"lives"`
}

// parseCompanion reads what a Companion holds.
func parseCompanion(data []byte) (*companionState, error) {
	s := new(companionState)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("redytier: companion: %w", err)
	}
	switch {
	case s.Version != companionVersion:
		return nil, fmt.Errorf("redytier: companion has version %d, this program reads %d", s.Version, companionVersion)
	case len(s.Lives) > maxLives:
		return nil, fmt.Errorf("redytier: companion has %d lives, want at most %d", len(s.Lives), maxLives)
	}
	for _, x := range s.Lives {
		if x.Below < 0 || x.Below > maxLog {
			return nil, fmt.Errorf("redytier: companion has a life up to %d, want 0 to %d", x.Below, int64(maxLog))
		}
	}
	return s, nil
}

// fits reports whether pieces were written with this layout.
func (s *companionState) fits(p *pieces) bool {
	return s.Piece == p.size() && s.Ring == p.d.segments.size
}

// retryCompanion is the time between two attempts to write the companion.
const retryCompanion = 10 * time.Second

// store writes the companion. If it cannot, it removes it, so that the next process believes
// nothing, and the goroutine tries again later; it fails if that is not possible either. The
// caller holds mu.
func (p *pieces) store() error {
	state := companionState{companionVersion, p.cache(), p.size(), p.d.segments.size, p.lives}
	p.stored, p.failed = state.Cache, time.Time{}
	if state.Cache == (Identity{}) { // the cache has no memory yet
		return p.kept.WriteCompanion(nil)
	}
	data, err := json.Marshal(state)
	if err == nil {
		err = p.kept.WriteCompanion(data)
	}
	if err == nil {
		return nil
	}
	p.failed = time.Now()
	if removing := p.kept.WriteCompanion(nil); removing != nil {
		return fmt.Errorf("redytier: the cache's companion: %w", errors.Join(err, removing))
	}
	p.d.cache.log.Warn("the cache cannot be taken up after a restart: its companion was not written", "err", err)
	return nil
}

// restore writes the companion if the cache has another identity, or if that failed a while
// ago.
func (p *pieces) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lives) == 0 { // not started
		return
	}
	if p.cache() == p.stored && (p.failed.IsZero() || time.Since(p.failed) < retryCompanion) {
		return
	}
	if err := p.store(); err != nil {
		p.d.cache.log.Warn("the cache cannot be taken up after a restart", "err", err)
	}
}
