package kv

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redykv/redykv/internal/units"
)

// RecoveryReport says what [Open] found on the device, and what it made of it.
type RecoveryReport struct {
	// New says that there was no store on the device.
	New bool
	// From is the checkpoint that the store was recovered to, or LastCommit, and Kind
	// how that was made.
	From string
	Kind CheckpointKind
	// Checkpoints are all that were found, oldest first.
	Checkpoints []CheckpointInfo
	// Dropped are checkpoints, and LastCommit, newer than what Options.Recover asked
	// for.
	Dropped []string

	Begin, Tail int64 // the log
	// Snapshots are the objects, oldest first, from which so many bytes of the log
	// were Restored.
	Snapshots []string
	Restored  int64
	// Index is the object from which the index was loaded, "" if there was none that
	// could be used. The log was read from ScannedFrom on, and so many Records found.
	Index       string
	ScannedFrom int64
	Records     int64
	// Sessions with a name whose commit points were found.
	Sessions int
	// Removed are objects that belonged to nothing, as a crash leaves them.
	Removed []string
	// Warnings tell what could not be used, and why.
	Warnings []string
	Time     time.Duration
}

// Recovery is the report of how the store was opened.
func (st *Store) Recovery() RecoveryReport { return st.recovered }

// String prints the report.
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
		line("dropped", "%s: newer than what was asked for", name)
	}
	for _, name := range r.Removed {
		line("removed", "%s: belonged to nothing", name)
	}
	for _, warning := range r.Warnings {
		line("warning", "%s", warning)
	}
	line("time", "%v", r.Time.Round(time.Microsecond))
	if err := w.Flush(); err != nil { // a Builder takes everything
		return err.Error()
	}
	return b.String()
}

// String prints the checkpoint in one line.
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
