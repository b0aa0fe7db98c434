package blackbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/namespaces"
)

// ownMountsEnv is set in the process that has mounts of its own.
const ownMountsEnv = "BLACKBOX_OWN_MOUNTS"

// withOwnMounts runs tests in a mount namespace of their own. Otherwise a program that gets
// a namespace meanwhile, such as a pod in another package's test, has a copy of the disk's
// mount, and keeps the file system as it was cut off when this process mounts it again. If a
// namespace is not permitted, the tests run as they are: then a mount is not either.
func withOwnMounts(tests func() int) (code int) {
	if os.Getenv(ownMountsEnv) != "" {
		return tests()
	}
	code, err := namespaces.Rerun(unix.CLONE_NEWNS, ownMountsEnv+"=1")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return tests()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a mount namespace for the tests:", err)
		return 1
	}
	return code
}

// disk is an ext4 file system on a loop device, whose power can be cut.
type disk struct{ image, dir string }

// newDisk makes a disk that lasts until the test ends. An error says why that is
// impossible.
func newDisk(t *testing.T, size int64) (*disk, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can mount a file system")
	}
	in := t.TempDir()
	if memory, err := memoryDir(t, size); err == nil {
		in = memory
	}
	d := &disk{filepath.Join(in, "image"), filepath.Join(t.TempDir(), "disk")}
	err := errors.Join(os.Mkdir(d.dir, 0o755), os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, size))
	if err != nil {
		return nil, err
	}
	if _, err := Run(t.Context(), "mkfs.ext4", "-q", d.image); err != nil {
		return nil, err
	}
	if err := d.mount(t.Context(), ""); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := d.unmount(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d, nil
}

// memoryDir makes a directory in memory that has room for size bytes. A disk there does not share the
// machine's, whose other users may delay a sync for seconds.
func memoryDir(t *testing.T, size int64) (string, error) {
	const memory = "/dev/shm"
	var free unix.Statfs_t
	if err := unix.Statfs(memory, &free); err != nil {
		return "", err
	}
	if free.Bavail*uint64(free.Bsize) < uint64(size) {
		return "", errors.New("too little memory")
	}
	dir, err := os.MkdirTemp(memory, "redykv-disk-*")
	if err == nil {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	return dir, err
}

func (d *disk) mount(ctx context.Context, options string) error {
	if options == "" {
		options = "loop"
	} else {
		options = "loop," + options
	}
	_, err := Run(ctx, "mount", "-t", "ext4", "-o", options, d.image, d.dir)
	return err
}

// unmount repeats until the kernel has closed the files of ended processes.
func (d *disk) unmount(ctx context.Context) error {
	end := time.Now().Add(patience)
	for {
		err := unix.Unmount(d.dir, 0)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return os.NewSyscallError("umount", err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(time.Millisecond):
		}
	}
}

// cut ends the file system's writes to the device at once. The journal in memory and all
// unwritten data are lost.
func (d *disk) cut() (err error) {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const (
		shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		return fmt.Errorf("shutdown of %s: %w", d.dir, err)
	}
	return nil
}
