package access

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TokenFile is a file of tokens, as [ParseTokens] reads them, that may change while
// it is used: a call that comes a second after the change, or later, finds it. Its
// methods are safe for concurrent use.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	next   time.Time   // when to look again
	seen   os.FileInfo // of what tokens are
	tokens []Token
}

// tokenFileEvery is how often the file is looked at, at most.
const tokenFileEvery = time.Second

// OpenTokenFile reads a file of tokens. Later changes that cannot be read are logged,
// and what was read before holds.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path, log: log}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if f.seen.Mode().Perm()&0o077 != 0 {
		log.Warn("others may read the tokens", "file", path, "mode", f.seen.Mode().Perm().String())
	}
	return f, nil
}

// Tokens is for [Options].
func (f *TokenFile) Tokens() []Token { return f.at(time.Now()) }

func (f *TokenFile) at(now time.Time) []Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Before(f.next) {
		return f.tokens
	}
	f.next = now.Add(tokenFileEvery)
	if err := f.read(); err != nil {
		f.log.Error("tokens not read again: those of before hold", "err", err)
	}
	return f.tokens
}

// read is called under mu, or by who makes f. What could not be read is not tried
// again until it has changed.
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
	f.tokens = tokens
	return nil
}
