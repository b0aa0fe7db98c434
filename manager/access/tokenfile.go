package access

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TokenFile is a file of tokens in the format of [ParseTokens]. Changes of the file take
// effect within a second. Its methods are safe for concurrent use.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	next   time.Time   // when to check the file again
	seen   os.FileInfo // of the file when it was last read
	tokens *TokenSet
}

// tokenFileEvery is the least time between two checks of the file.
const tokenFileEvery = time.Second

// OpenTokenFile reads a file of tokens. If a later change cannot be read, it is logged, and
// the previous tokens stay valid.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path, log: log}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if f.seen.Mode().Perm()&0o007 != 0 { // Kubernetes gives files of secrets to a group
		log.Warn("token file can be read by all users: restrict its mode to 0640", "file", path, "mode", f.seen.Mode().Perm().String())
	}
	return f, nil
}

// Tokens returns the present tokens, for [Guard].
func (f *TokenFile) Tokens() *TokenSet { return f.at(time.Now()) }

func (f *TokenFile) at(now time.Time) *TokenSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Before(f.next) {
		return f.tokens
	}
	f.next = now.Add(tokenFileEvery)
	if err := f.read(); err != nil {
		f.log.Error("token file not read: its previous tokens stay valid", "err", err)
	}
	return f.tokens
}

// read reads the file if it has changed. Called under mu, or while f is not shared.
func (f *TokenFile) read() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if f.seen != nil && os.SameFile(now, f.seen) && now.ModTime().Equal(f.seen.ModTime()) && now.Size() == f.seen.Size() {
		return nil
	}
	f.seen = now
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	tokens, err := ParseTokens(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.tokens = NewTokenSet(tokens...)
	return nil
}
