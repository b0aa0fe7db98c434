package ssdtier

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

// diskOf4K mounts a file system on a disk with sectors of 4 KiB.
func diskOf4K(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("a disk of other sectors takes the right to make one: %s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	loop := run("losetup", "--sector-size", "4096", "--find", "--show", image)
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	run("mkfs.ext4", "-q", loop)
	if err := unix.Mount(loop, dir, "ext4", 0, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestSectors: the unit of direct I/O is the disk's sector, and an unverified read reads whole
// sectors.
func TestSectors(t *testing.T) { overEngines(t, testSectors) }

func testSectors(t *testing.T) {
	disk := diskOf4K(t)
	opts := Options{SegmentSize: minSegmentSize, Verify: VerifyBlocks}
	devicetest.Run(t, func(t *testing.T) device.Device {
		dir, err := os.MkdirTemp(disk, "log")
		if err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, dir, opts)
		if d.Direct() && d.Sector() != 4096 {
			t.Errorf("sectors of %d bytes", d.Sector())
		}
		return d
	}, devicetest.Reopen(func(t *testing.T, old device.Device) device.Device {
		return mustOpen(t, old.(*Device).Dir(), opts)
	}))
}
