package kv

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// RecoveryReport describes what [Open] found on the device and how it used it.
type RecoveryReport struct {
	// New is set if there was no store on the device.
	New bool
	// From is the checkpoint that was recovered, or LastCommit. Kind is its kind.
	From string
	Kind CheckpointKind
	// Checkpoints are all checkpoints found, oldest first.
	Checkpoints []CheckpointInfo
	// Dropped are the checkpoints, and LastCommit, that were newer than Options.Recover.
	Dropped []string

	Begin, Tail int64 // log addresses
	// Snapshots are the objects, oldest first, from which Restored bytes of the log were
	// written back.
	Snapshots []string
	Restored  int64
	// Index is the object from which the index was loaded, or "" if there was no usable one.
	// The log was read into the index from ScannedFrom on; Records is the number of records found
	// there. The part in memory was read and checked in any case.
	Index       string
	ScannedFrom int64
	Records     int64
	// Sessions is the number of named sessions whose commit points were found.
	Sessions int
	// Removed are objects that no state needed, such as a crash leaves.
	Removed []string
	// Warnings say what could not be used, and why.
	Warnings []string
	Time     time.Duration
}

// Recovery returns the report of how the store was opened.
func (st *Store) Recovery() RecoveryReport { return st.recovered }

func (r RecoveryReport) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	switch {
	case r.New:
		line("store", "new")
	case r.From == LastCommit:
		line("recovered", "the last commit")
	default:
		line("recovered", "%v checkpoint %q", r.Kind, r.From)
	}
	line("log", "%d to %d", r.Begin, r.Tail)
	if len(r.Snapshots) > 0 {
		line("restored", "%v of the log from %s", units.Size(r.Restored), strings.Join(r.Snapshots, ", "))
	}
	if r.Index != "" {
		line("index", "%s", r.Index)
	}
	if !r.New {
		line("scanned", "from %d: %d records", r.ScannedFrom, r.Records)
	}
	if r.Sessions > 0 {
		line("sessions", "%d with a commit point", r.Sessions)
	}
	for _, c := range r.Checkpoints {
		line("found", "%v", c)
	}
	for _, name := range r.Dropped {
		line("dropped", "%s: newer than the recovered state", name)
	}
	for _, name := range r.Removed {
		line("removed", "%s: no state needs it", name)
	}
	for _, warning := range r.Warnings {
		line("warning", "%s", warning)
	}
	line("time", "%v", r.Time.Round(time.Microsecond))
	if err := w.Flush(); err != nil { // cannot happen: a Builder does not fail
		return err.Error()
	}
	return b.String()
}

// String returns the checkpoint in one line.
func (c CheckpointInfo) String() string {
	name := ""
	if c.Name != "" {
		name = fmt.Sprintf(" %q", c.Name)
	}
	s := fmt.Sprintf("%v checkpoint%s of %s: log %d to %d, %v of its own", c.Kind, name,
		c.Time.UTC().Format(time.RFC3339), c.Begin, c.Tail, units.Size(c.Bytes))
	if c.Base != "" {
		s += fmt.Sprintf(", on top of %q", c.Base)
	}
	return s
}
