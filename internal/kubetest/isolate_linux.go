package kubetest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/namespaces"
)

// isolatedEnv is set in the process of Main that has namespaces of its own, to the directory
// for the root directories of pods.
const isolatedEnv = "KUBETEST_ISOLATED"

// Main runs the tests of a package for a TestMain, in mount and network namespaces of the
// process's own, which [StartFull] needs and which end with the process. If they are not
// permitted, it runs the tests as they are.
func Main(m *testing.M) int {
	if roots = os.Getenv(isolatedEnv); roots != "" {
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			return 1
		}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetest:", err)
		return 1
	}
	defer func() { _ = os.Remove(dir) }() // what was mounted on it is gone
	code, err := namespaces.Rerun(unix.CLONE_NEWNS|unix.CLONE_NEWNET, isolatedEnv+"="+dir)
	if err != nil {
		errNotIsolated = err
		return m.Run()
	}
	return code
}

// isolate prepares the namespaces: a bridge for the networks of pods, and file systems in
// memory for what else is made beside the tests' temporary directories.
func isolate() error {
	for _, dir := range []string{roots, "/run/netns"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return &os.PathError{Op: "mount", Path: dir, Err: err}
		}
	}
	return errors.Join(
		ip("link", "set", "lo", "up"),
		ip("link", "add", bridge, "type", "bridge"),
		ip("addr", "add", gateway+"/16", "dev", bridge),
		ip("link", "set", bridge, "up"),
	)
}

// mount makes a file or directory appear at another path too.
func mount(from, to string, readOnly bool) error {
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil && readOnly {
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}

func unmount(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
