//go:build unix

package access

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A disk that does not answer does not stop the checks of known tokens.
func TestTokenFileOfSlowDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("old client never old-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenTokenFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	slow := path + ".slow" // opening it waits for a writer
	if err := syscall.Mkfifo(slow, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(slow, path); err != nil {
		t.Fatal(err)
	}
	before := f.Tokens()
	for second := range time.Duration(3) {
		if after := f.at(time.Now().Add((1 + second) * tokenFileEvery)); after != before {
			t.Error("the tokens have changed before the file was read")
		}
	}
	if err := os.WriteFile(path, []byte("new client never new-token-0123456789\n"), 0); err != nil {
		t.Fatal(err)
	}
	f.rest()
	if !f.Tokens().named("new") {
		t.Error("the file was read, and its token is not known")
	}
}
