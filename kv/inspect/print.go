package inspect

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	if r.Opens != "" {
		r.print(&b)
	}
	var problems []string
	for _, p := range r.Problems {
		problems = append(problems, p.String())
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"notes", r.Notes}, {"problems", problems}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(&b, "\n%s\n", list.title)
		}
		for _, line := range list.lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	if r.OK() {
		fmt.Fprintln(&b, "\nno problems with the manifest, the records and the copies of the index")
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// print prints the states, the log and the objects.
func (r *Report) print(b *strings.Builder) {
	fmt.Fprintf(b, "store of records of %s, pages of %v, index of 2^%d buckets; opens as of %s\n\n",
		r.Layout, units.Size(r.PageSize), r.IndexBits, opens(r.Opens))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "state\tkind\tnumber\tlog\tof its own\tlog pinned\tbase\tage")
	fmt.Fprintf(w, "commit\t\t%d\t%d to %d\t\t\t\t\n", r.Commit.Sequence, r.Commit.Begin, r.Commit.Tail)
	for _, c := range r.Checkpoints {
		fmt.Fprintf(w, "%s\t%v\t%d\t%d to %d\t%v\t%v\t%s\t%v\n",
			c.Name, c.Kind, c.Sequence, c.Begin, c.Tail, units.Size(c.Bytes), units.Size(c.Pinned), c.Base, r.Time.Sub(c.Time).Round(time.Second))
	}
	fmt.Fprintln(w, "\nlog\trecords\tdeleted\texpiring\tbytes\tdamaged pages")
	fmt.Fprintf(w, "%d to %d\t%d\t%d\t%d\t%v\t%d\n", r.Log.Begin, r.Log.Tail,
		r.Log.Records, r.Log.Deleted, r.Log.Expiring, units.Size(r.Log.Bytes), r.Log.Damaged)
	if len(r.Indexes) > 0 {
		fmt.Fprintln(w, "\nindex\tbuckets\toverflow\tlog up to\tentries\tlead to a record")
	}
	for _, x := range r.Indexes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", x.Object, x.Buckets, x.Overflow, x.Start, x.Entries, x.Checked)
	}
	if len(r.Snapshots) > 0 {
		fmt.Fprintln(w, "\nsnapshot\tcheckpoint\tlog\tbytes")
	}
	for _, s := range r.Snapshots {
		fmt.Fprintf(w, "%s\t%s\t%d to %d\t%v\n", s.Object, s.Checkpoint, s.From, s.To, units.Size(s.Bytes))
	}
	_ = w.Flush() // to memory
}

func opens(state string) string {
	if state == manifest.LastCommit {
		return "the last commit"
	}
	return fmt.Sprintf("checkpoint %q", state)
}

// String prints the record in one line, with at most 64 bytes of its value.
func (r Record) String() string {
	const most = 64
	s := fmt.Sprintf("%d: %q", r.Address, r.Key)
	switch n := len(r.Value); {
	case r.Deleted:
		s += " deleted"
	case n > most:
		s += fmt.Sprintf(" = %q… (%d bytes)", r.Value[:most], n)
	default:
		s += fmt.Sprintf(" = %q", r.Value)
	}
	if !r.Expires.IsZero() {
		s += " until " + r.Expires.UTC().Format(time.RFC3339)
	}
	if r.Previous != 0 {
		s += fmt.Sprintf(", after %d", r.Previous)
	}
	return s
}
