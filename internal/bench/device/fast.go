package device

import (
	"fmt"
	"strings"

	"github.com/redykv/redykv/internal/mem"
)

// fast has the options with which fio submits as much as the disk takes: in batches, with a
// registered file, without reading the clock for each operation, and, where the system lets
// it, with registered buffers in huge pages.
type fast struct {
	share int  // a batch has the depth divided by this
	pin   bool // registered buffers
	pages *pages
}

// fastShares are the batches that fio is tried with: of all operations in flight, and of
// a part of them, so that the disk has the others meanwhile. Which is faster depends on the
// depth and on the disk.
var fastShares = []int{1, 4}

// batch returns the size of a batch.
func (f *fast) batch(depth int) int { return max(1, depth/f.share) }

// args returns the arguments for a cell, whose operations have that many bytes.
func (f *fast) args(x cell, block int) []string {
	n := f.batch(x.Depth)
	args := []string{
		fmt.Sprintf("--iodepth_batch_submit=%d", n), "--iodepth_batch_complete_min=1", fmt.Sprintf("--iodepth_batch_complete_max=%d", n),
		"--registerfiles=1", "--gtod_reduce=1",
	}
	if f.pin {
		args = append(args, "--fixedbufs=1")
	}
	return append(args, f.pages.args(x, block)...)
}

// ways describes the options for the report.
func (f *fast) ways() string {
	ways := []string{"batches of all in flight or a quarter of them", "a registered file"}
	if f.pin {
		ways = append(ways, "registered buffers")
	}
	return strings.Join(append(ways, f.pages.way), ", ")
}

// The ways in which fio's buffers get their pages, as Row.FioPages names them.
const (
	reservedPages    = "reserved huge pages"
	demandPages      = "huge pages on demand"
	transparentPages = "transparent huge pages"
	smallPages       = "small pages"
)

// pages is the way in which the buffers of a fast fio get their pages.
type pages struct {
	way     string
	env     []string     // of fio's process
	release func() error // may be nil
}

// Close takes back what was permitted for the pages.
func (p *pages) Close() error {
	if p == nil || p.release == nil {
		return nil
	}
	return p.release()
}

// fallBack makes the pages such that nobody can take them from fio, after it could not have huge
// pages that were there when the run began. It reports whether that is another way.
func (p *pages) fallBack() bool {
	if p.way != reservedPages && p.way != demandPages {
		return false
	}
	way := unreserved()
	p.way, p.env = way.way, way.env
	return true
}

// padded is the least size of all buffers together with transparent huge pages. The C library
// does not align them, so it is four pages: the first and the last may be small ones.
const padded = 4 * mem.HugePage

// args returns fio's arguments for a cell, whose operations have that many bytes.
func (p *pages) args(x cell, block int) []string {
	switch p.way {
	case reservedPages, demandPages:
		return []string{"--iomem=mmaphuge", fmt.Sprintf("--hugepage-size=%d", mem.HugePage)}
	case transparentPages:
		// A buffer has the larger one of the sizes of reads and writes, so the one that is not
		// used spreads the buffers.
		sizes := fmt.Sprintf("--bs=%d,%d", block, max(block, padded/x.Depth))
		if x.Op.writes() {
			sizes = fmt.Sprintf("--bs=%d,%d", max(block, padded/x.Depth), block)
		}
		return []string{sizes, fmt.Sprintf("--iomem_align=%d", mem.HugePage)}
	}
	return nil
}
