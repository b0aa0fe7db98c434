package device

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/mem"
)

// TestPermit: the number of huge pages on demand is raised, and lowered by as many again.
func TestPermit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nr_overcommit_hugepages")
	if _, err := permit(file, 1); err == nil {
		t.Error("a permission in a file that does not exist")
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want int) {
		t.Helper()
		if n, err := readNumber(file); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	write("3\n")
	release, err := permit(file, 4)
	if err != nil {
		t.Fatal(err)
	}
	read(7)
	write("9\n") // another process
	if err := release(); err != nil {
		t.Error(err)
	}
	read(5)
	write("2\n")
	if err := release(); err != nil {
		t.Error(err)
	}
	read(0)
	write("many")
	if _, err := permit(file, 1); err == nil {
		t.Error("a file without a number")
	}
}

// TestHugePages: what the way says can be had while it is open. Other processes may permit huge
// pages meanwhile, so TestPermit has the number that is restored.
func TestHugePages(t *testing.T) {
	p := hugePages(512 << 10)
	if err := tryHuge(mem.HugePage); (p.way == reservedPages || p.way == demandPages) && err != nil {
		t.Errorf("%s: %v", p.way, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	t.Log(p.way)
}

// TestArgsOfPages: transparent huge pages need buffers that are larger than one, whatever the
// block and the depth are.
func TestArgsOfPages(t *testing.T) {
	thp := &pages{way: transparentPages}
	for _, tc := range []struct {
		x     cell
		block int
		want  string
	}{
		{cell{Op: Read, Depth: 1}, 4096, "--bs=4096,8388608"},
		{cell{Op: Store, Depth: 128}, 4096, "--bs=4096,65536"},
		{cell{Op: Write, Depth: 128}, 4096, "--bs=65536,4096"},
		{cell{Op: Grow, Depth: 32}, 1 << 20, "--bs=1048576,1048576"},
	} {
		if got := thp.args(tc.x, tc.block); !slices.Equal(got, []string{tc.want, "--iomem_align=2097152"}) {
			t.Errorf("%+v: %v, want %s", tc, got, tc.want)
		}
	}
	if args := (&pages{way: demandPages}).args(cell{}, 1); !slices.Contains(args, "--iomem=mmaphuge") {
		t.Error(args)
	}
	if args := (&pages{way: smallPages}).args(cell{}, 1); len(args) > 0 {
		t.Error(args)
	}
}

// TestFioHasHugePages: the buffers of a fast fio are in huge pages while it reads.
func TestFioHasHugePages(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip(err)
	}
	program, err := findFio(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program.file, program.size, program.sector = filepath.Join(t.TempDir(), "fio-data"), 4<<20, 512
	if err := spread(program.file, program.size); err != nil {
		t.Fatal(err)
	}
	best := hugePages(512 << 10)
	defer func() {
		if err := best.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, p := range []*pages{best, {way: transparentPages, env: []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}}} {
		enabled, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
		if p.way == smallPages || p.way == transparentPages && strings.Contains(string(enabled), "[never]") {
			continue
		}
		f := *program
		f.fast = &fast{share: 4, pin: mayPin(512 << 10), pages: p}
		ended := make(chan error, 1)
		go func() {
			_, err := f.slice(t.Context(), cell{Op: Read, Size: 4096, Depth: 128}, 2*time.Second)
			ended <- err
		}()
		huge := 0
		for huge < mem.HugePage>>10 {
			select {
			case err := <-ended:
				t.Fatalf("%s: fio has ended with %d kB of huge pages, %v", p.way, huge, err)
			case <-time.After(20 * time.Millisecond):
				huge = max(huge, hugeOf(f.file))
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestHugePagesTaken: a fio that cannot have the huge pages that were there goes on with others,
// and the error of one that fails otherwise says what fio said.
func TestHugePagesTaken(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fio")
	script := `#!/bin/sh
case "$*" in
*mmaphuge*) echo 'fio: pid=1, err=12/file:memory.c:170, func=mmap, error=Cannot allocate memory'; echo '{}'; exit 1;;
*bs=512*) echo 'fio: pid=1, err=5/file:io_u.c, error=Input/output error'; echo '{}'; exit 1;;
esac
echo '{"jobs": [{"read": {"iops": 1000, "total_ios": 20, "runtime": 20}}]}'
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p := &pages{way: reservedPages}
	f := &fio{path: program, file: "none", size: 4096, sector: 512, fast: &fast{share: 1, pages: p}}
	if s, err := f.slice(t.Context(), cell{Op: Read, Size: 4096, Depth: 1}, time.Millisecond); err != nil || s.Operations != 20 {
		t.Errorf("%+v, %v", s, err)
	}
	if p.way != transparentPages && p.way != smallPages {
		t.Errorf("it went on with %s", p.way)
	}
	if _, err := f.slice(t.Context(), cell{Op: Read, Size: 512, Depth: 1}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "Input/output error") {
		t.Errorf("an error that does not say what fio said: %v", err)
	}
}

// hugeOf returns the kilobytes of huge pages of a process whose command line has an argument
// that ends with word.
func hugeOf(word string) (kilobytes int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		text, _ := os.ReadFile(line)
		if !bytes.Contains(text, []byte(word+"\x00")) {
			continue
		}
		maps, _ := os.ReadFile(filepath.Join(filepath.Dir(line), "smaps"))
		for field := range strings.Lines(string(maps)) {
			words := strings.Fields(field)
			if len(words) == 3 && slices.Contains([]string{"AnonHugePages:", "Private_Hugetlb:"}, words[0]) {
				n, _ := strconv.Atoi(words[1])
				kilobytes += n
			}
		}
	}
	return kilobytes
}
