package smb

import (
	"errors"
	"fmt"
	"testing"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/device"
)

// TestMarked: errors of a server that is short of memory, open files or space are transient,
// and do not mean that it lacks a feature.
func TestMarked(t *testing.T) {
	answer := func(code uint32) error { return fmt.Errorf("write: %w", &smb2.ResponseError{Code: code}) }
	for _, tc := range []struct {
		err                       error
		transient, space, refused bool
	}{
		{err: answer(0xC0000017), transient: true},
		{err: answer(0xC000009A), transient: true},
		{err: answer(0xC000011F), transient: true},
		{err: answer(0xC0000205), transient: true},
		{err: fmt.Errorf("write: %w", ErrDisconnected), transient: true},
		{err: fmt.Errorf("%w: %w", ErrDoubt, ErrDisconnected)},
		{err: answer(statusDiskFull), space: true, refused: true},
		{err: answer(statusSharingViolation), refused: true},
		{err: errors.New("other")},
	} {
		err := marked(tc.err)
		if errors.Is(err, device.ErrTransient) != tc.transient || errors.Is(err, device.ErrNoSpace) != tc.space ||
			refused(tc.err) != tc.refused || !errors.Is(err, tc.err) {
			t.Errorf("%v became %v, refused: %v", tc.err, err, refused(tc.err))
		}
	}
	if marked(nil) != nil {
		t.Error("nil became an error")
	}
}
