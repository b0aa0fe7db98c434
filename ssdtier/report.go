package ssdtier

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Report is what [Inspect] found in a directory.
type Report struct {
	Dir string `json:"dir"`
	// InUse: a process had the directory open during the inspection. What it was writing
	// may be among the problems.
	InUse bool `json:"in_use"`
	// Version and SegmentSize are from FORMAT; 0 where it cannot be read.
	Version     int             `json:"version"`
	SegmentSize int64           `json:"segment_size"`
	Begin       int64           `json:"begin"` // lowest address of the log
	Segments    []SegmentReport `json:"segments"`
	Objects     []FileReport    `json:"objects"`
	Metadata    []FileReport    `json:"metadata"`
	// Away names the memory outside the directory that has the last commits; "" if the directory has all.
	Away string `json:"away,omitempty"`

	// Problems are bytes that cannot be read as they were written, ordered by file name.
	Problems []Finding `json:"problems"`
	// Notes are harmless irregularities.
	Notes []Finding `json:"notes"`
}

// SegmentReport counts the blocks of 4 KiB of one segment.
type SegmentReport struct {
	File   string `json:"file"`
	Number int64  `json:"number"`
	Size   int64  `json:"size"` // of the file, in bytes
	// Verified blocks agree with their checksums. Damaged ones do not, or are missing.
	Verified int64 `json:"verified"`
	Damaged  int64 `json:"damaged"`
	// Rewritten is 1 if the log's last block has grown since the last Sync, as a crash
	// may leave it.
	Rewritten int64 `json:"rewritten"`
	// Unverified blocks were written by a version without checksums. Unsynced ones have
	// no checksum: they were written after the last Sync, or never, in space that was
	// allocated ahead, and opening the log cuts them off; or their checksum was lost.
	Unverified int64 `json:"unverified"`
	Unsynced   int64 `json:"unsynced"`
}

// FileReport is one object or piece of metadata.
type FileReport struct {
	Name string `json:"name"` // as given to CreateObject or WriteMeta
	Size int64  `json:"size"` // in bytes; -1 where it cannot be told
}

// Finding is one problem or note of Inspect.
type Finding struct {
	File   string `json:"file"`   // in the directory
	Offset int64  `json:"offset"` // of the bytes concerned; -1: the file as a whole
	Length int64  `json:"length"` // in bytes, where there is an offset
	What   string `json:"what"`
}

// String returns "FILE: WHAT", with the place in between if there is one.
func (f Finding) String() string {
	if f.Offset < 0 {
		return fmt.Sprintf("%s: %s", f.File, f.What)
	}
	return fmt.Sprintf("%s: %d bytes at offset %d: %s", f.File, f.Length, f.Offset, f.What)
}

// OK reports whether there are no problems.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// NeededTo says that the log is needed up to an address only, such as to what was committed last. A
// Sync may find that later blocks are written and earlier ones are not; a process that is killed then
// leaves blocks without checksums before others. From that address on these are notes.
func (r *Report) NeededTo(end int64) {
	problems := r.Problems
	r.Problems = nil
	for _, f := range problems {
		if what, number := classify(f.File); what == segmentFile && f.What == noSum {
			needed := min(max(end-number*r.SegmentSize-f.Offset, 0), f.Length)
			if needed < f.Length {
				r.Notes = append(r.Notes, Finding{f.File, f.Offset + needed, f.Length - needed, "not written before the process ended, and not needed"})
			}
			if f.Length = needed; needed == 0 {
				continue
			}
		}
		r.Problems = append(r.Problems, f)
	}
}

// String returns the report as text for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "directory %s\n", r.Dir)
	if r.InUse {
		fmt.Fprintln(&b, "in use: what is being written may look damaged")
	}
	fmt.Fprintf(&b, "format %d, segments of %d bytes, log begins at %d\n\n", r.Version, r.SegmentSize, r.Begin)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "segment\tbytes\tverified\tunverified\trewritten\tunsynced\tdamaged")
	for _, s := range r.Segments {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
			s.File, s.Size, s.Verified, s.Unverified, s.Rewritten, s.Unsynced, s.Damaged)
	}
	for _, list := range []struct {
		title string
		files []FileReport
	}{{"object", r.Objects}, {"metadata", r.Metadata}} {
		if len(list.files) > 0 {
			fmt.Fprintf(w, "\n%s\tbytes\n", list.title)
		}
		for _, f := range list.files {
			fmt.Fprintf(w, "%s\t%d\n", f.Name, f.Size)
		}
	}
	_ = w.Flush() // to memory
	for _, list := range []struct {
		title    string
		findings []Finding
	}{{"notes", r.Notes}, {"problems", r.Problems}} {
		if len(list.findings) > 0 {
			fmt.Fprintf(&b, "\n%s\n", list.title)
		}
		for _, f := range list.findings {
			fmt.Fprintf(&b, "  %s\n", f)
		}
	}
	if r.OK() {
		fmt.Fprintln(&b, "\nno problems")
	}
	return b.String()
}
