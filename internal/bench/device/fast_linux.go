package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/mem"
)

// mayPin says whether this process, and so fio, may pin that many bytes of buffers.
func mayPin(bytes int) bool {
	var limit unix.Rlimit
	return os.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur >= uint64(2*bytes)
}

// hugePages returns the best way in which fio's buffers of that many bytes can have huge pages,
// as those of a log have them: from the reserve if enough are free; on demand, which root
// can permit for the time of the measurement; or transparent ones, which the C library asks
// for. The caller closes it.
func hugePages(bytes int) *pages {
	dir := fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB", mem.HugePage>>10)
	need := bytes/mem.HugePage + 2 // fio rounds up, after it has added a page of alignment
	free, err := readNumber(filepath.Join(dir, "free_hugepages"))
	promised, err2 := readNumber(filepath.Join(dir, "resv_hugepages")) // to mappings that have not touched theirs
	if err == nil && err2 == nil && free-promised >= need {
		return &pages{way: reservedPages}
	}
	if release, err := permit(filepath.Join(dir, "nr_overcommit_hugepages"), need); err == nil {
		if tryHuge(need*mem.HugePage) == nil {
			return &pages{way: demandPages, release: release}
		}
		_ = release() // as it was, so it can be written again
	}
	return unreserved()
}

// unreserved returns the best way in which fio's buffers have pages that nobody can take from it.
func unreserved() *pages {
	enabled, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if strings.Contains(string(enabled), "[always]") || strings.Contains(string(enabled), "[madvise]") {
		return &pages{way: transparentPages, env: []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}}
	}
	return &pages{way: smallPages}
}

// permit raises the number of huge pages that the kernel makes on demand, in a file. Nothing is
// reserved, so a process that is killed before the release leaves only the permission. Others may
// do the same at the same time.
func permit(file string, more int) (release func() error, err error) {
	add := func(n int) error {
		lock, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }() // it was only locked
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			return &os.PathError{Op: "flock", Path: file, Err: err}
		}
		now, err := readNumber(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(strconv.Itoa(max(0, now+n))), 0)
	}
	if err := add(more); err != nil {
		return nil, err
	}
	return func() error { return add(-more) }, nil
}

// tryHuge makes and frees huge pages of that many bytes.
func tryHuge(bytes int) error {
	m, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	return unix.Munmap(m)
}

func readNumber(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
