//go:build !linux

package kubetest

import (
	"errors"
	"testing"
)

// Main runs the tests of a package. [StartFull] skips them.
func Main(m *testing.M) int { return m.Run() }

func mount(string, string, bool) error { return errors.ErrUnsupported }
func unmount(string) error             { return errors.ErrUnsupported }
