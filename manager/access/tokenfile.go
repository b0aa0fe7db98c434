package access

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TokenFile is a file of tokens in the format of [ParseTokens]. A new token is known after a
// second, and a removed one is refused after two, or as soon as the disk answers. Its methods
// are safe for concurrent use.
type TokenFile struct {
	path string
	log  *slog.Logger
	seen os.FileInfo // of the file when it was last read; belongs to the goroutine that reads

	mu      sync.Mutex      // guards the rest; not held while the file is read
	checked time.Time       // when the last finished check of the file began
	reading bool            // a goroutine checks the file
	settled context.Context // ends when that goroutine has ended, or after tokenFilePatience
	tokens  *TokenSet
}

// tokenFileEvery is the least time between the beginnings of two checks of the file.
const tokenFileEvery = time.Second

// tokenFileAge is the age of a check at which calls wait for the next one. They do so only
// after a pause without calls.
const tokenFileAge = 2 * tokenFileEvery

// tokenFilePatience bounds how long calls wait for a check of the file. Then they use its
// previous tokens until the disk answers.
const tokenFilePatience = 100 * time.Millisecond

// OpenTokenFile reads a file of tokens. If a later change cannot be read, it is logged, and
// the previous tokens stay valid.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	settled, cancel := context.WithCancel(context.Background())
	cancel()
	f := &TokenFile{path: path, log: log, settled: settled}
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
	f.check(now)
	f.mu.Lock()
	tokens, old := f.tokens, now.Sub(f.checked) >= tokenFileAge
	f.mu.Unlock()
	if old {
		return f.latest()
	}
	return tokens
}

// latest returns the tokens after the check that is under way.
func (f *TokenFile) latest() *TokenSet {
	f.mu.Lock()
	settled := f.settled
	f.mu.Unlock()
	<-settled.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens
}

// check begins a check of the file if that is due.
func (f *TokenFile) check(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reading || now.Sub(f.checked) < tokenFileEvery {
		return
	}
	f.reading = true
	settled, cancel := context.WithTimeout(context.Background(), tokenFilePatience)
	f.settled = settled
	go func() {
		defer cancel()
		if err := f.read(); err != nil {
			f.log.Error("token file not read: its previous tokens stay valid", "err", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reading, f.checked = false, now
	}()
}

// read reads the file if it has changed. One goroutine at a time calls it.
func (f *TokenFile) read() error {
	now, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if f.seen != nil && os.SameFile(now, f.seen) && now.ModTime().Equal(f.seen.ModTime()) && now.Size() == f.seen.Size() {
		return nil
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err // it is tried again
	}
	f.seen = now
	tokens, err := ParseTokens(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = NewTokenSet(tokens...)
	f.tokens.file = f
	return nil
}
