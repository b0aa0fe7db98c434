//go:build !linux

package allocator

import (
	"errors"
	"os/exec"
)

// makeDetached fails: processes cannot be identified portably.
func makeDetached(string) error {
	return errors.New("cache servers that outlive the manager need Linux: use the state directory without local cache servers")
}

// dieWithParent does nothing here: a child notices the end of its parent by the end of its
// standard input.
func dieWithParent(*exec.Cmd) {}

func detach(*exec.Cmd) {}

// handle and leaving are not used here.
type handle struct{ stamp processStamp }

func openProcess(int) (*handle, error) { return nil, errors.ErrUnsupported }

func (h *handle) kill() error        { return errors.ErrUnsupported }
func (h *handle) wait(*leaving) bool { return false }
func (h *handle) close()             {}

type leaving struct{}

func newLeaving() (*leaving, error) { return nil, errors.ErrUnsupported }

func (l *leaving) begin() error { return nil }
func (l *leaving) end() error   { return nil }
