// Package phase is the plan of a store's checkpointer: what is under way, written down as
// a value, and a table of what may begin meanwhile.
//
// Three kinds of work go on beside one another, each on a track of its own: one commit,
// one checkpoint (or one garbage collection of files), and one compaction. A track is in
// one [Phase] at a time. An [Action] begins at once or waits, as the table says of it for
// the phases of all tracks, and ends with [Machine.End]. Actions that have to wait begin
// in the order in which they were called. A [Machine] does no work itself and takes no
// lock of a store.
package phase

import "fmt"

// Phase is what one track of the checkpointer is doing.
type Phase uint8

const (
	// Resting: nothing.
	Resting Phase = iota

	// Gathering: a commit waits for its barrier. Commits that are called now share it.
	Gathering
	// Flushing: the barrier is over; the log is written and synced up to the commit's tail.
	Flushing
	// Recording: the manifest is written, with the commit.
	Recording

	// Copying: a checkpoint copies the index to an object.
	Copying
	// Saving: the log up to the checkpoint's tail is written, to the log's device or to an
	// object.
	Saving
	// Naming: the manifest is written, with the checkpoint.
	Naming
	// Collecting: objects and log that the manifest does not need are removed.
	Collecting

	// Compacting: live records are copied from the log's beginning to its tail. The
	// truncation after it is a commit, and then a collection.
	Compacting

	// Removing: a checkpoint is taken out of the manifest. It holds two tracks, since it may
	// commit and collects; these steps have no phase of their own.
	Removing
	// Closed: the store commits and collects for the last time, or has done so.
	Closed

	phases
)

var phaseNames = [phases]string{
	"resting", "gathering", "flushing", "recording", "copying", "saving", "naming", "collecting",
	"compacting", "removing", "closed",
}

// String is the phase's name.
func (p Phase) String() string { return name(phaseNames[:], int(p)) }

// Action changes the phase of its tracks.
type Action uint8

const (
	// Commit, Checkpoint, Collect, Compact, Remove and Close begin on tracks at rest.
	Commit Action = iota
	Checkpoint
	Collect
	Compact
	Remove
	Close

	// Flush and Record are the steps of a commit.
	Flush
	Record
	// Copy, Save and Name are the steps of a checkpoint, whose last one is Collect.
	Copy
	Save
	Name

	actions
)

var actionNames = [actions]string{
	"commit", "checkpoint", "collect", "compact", "remove", "close", "flush", "record", "copy", "save", "name",
}

// String is the action's name.
func (a Action) String() string { return name(actionNames[:], int(a)) }

func name(names []string, n int) string {
	if n < len(names) {
		return names[n]
	}
	return fmt.Sprint(n)
}

// A track is where one action is under way at a time.
type track uint8

const (
	commits track = iota
	checkpoints
	compactions

	tracks
)

// plan is what an action does to the phases of its tracks.
type plan struct {
	on   []track
	from []Phase // Resting where it begins; the phases before it where it is a step
	to   Phase
}

var plans = [actions]plan{
	Commit:     {[]track{commits}, []Phase{Resting}, Gathering},
	Checkpoint: {[]track{checkpoints}, []Phase{Resting}, Copying},
	Collect:    {[]track{checkpoints}, []Phase{Resting, Copying, Saving, Naming}, Collecting},
	Compact:    {[]track{compactions}, []Phase{Resting}, Compacting},
	Remove:     {[]track{commits, checkpoints}, []Phase{Resting}, Removing},
	Close:      {[]track{commits, checkpoints}, []Phase{Resting}, Closed},

	Flush:  {[]track{commits}, []Phase{Gathering}, Flushing},
	Record: {[]track{commits}, []Phase{Flushing}, Recording},
	Copy:   {[]track{checkpoints}, []Phase{Naming}, Copying}, // a manifest that had failed to be written is
	Save:   {[]track{checkpoints}, []Phase{Copying}, Saving},
	Name:   {[]track{checkpoints}, []Phase{Copying, Saving}, Naming},
}

// verdict is what becomes of an action.
type verdict uint8

const (
	begin  verdict = iota
	join           // it waits, and shares the commit that is under way
	wait           // it waits for the phase's end
	refuse         // the store is closed
)

var verdictNames = []string{"begin", "join", "wait", "refuse"}

func (v verdict) String() string { return name(verdictNames, int(v)) }

// table says what becomes of an action while a track is in a phase; where it says
// nothing, the action begins. For a step the phase of its own track does not count.
//
// Commits and checkpoints go on beside each other, but for the manifest, which one of
// them writes at a time. While a checkpoint is made nothing is collected: its objects are
// in no manifest yet, and the log that it needs may lie below that of all states. While
// files are collected no checkpoint begins; a commit may, for it needs no other files than
// the manifest names.
var table = [phases][actions]verdict{
	Gathering: {Commit: join, Remove: wait, Close: wait},
	Flushing:  {Commit: wait, Remove: wait, Close: wait},
	Recording: {Commit: wait, Remove: wait, Close: wait, Name: wait},

	Copying:    {Checkpoint: wait, Collect: wait, Remove: wait, Close: wait},
	Saving:     {Checkpoint: wait, Collect: wait, Remove: wait, Close: wait},
	Naming:     {Checkpoint: wait, Collect: wait, Remove: wait, Close: wait, Record: wait},
	Collecting: {Checkpoint: wait, Collect: wait, Remove: wait, Close: wait},

	Compacting: {Compact: wait},

	Removing: {Commit: wait, Checkpoint: wait, Collect: wait, Remove: wait, Close: wait},
	Closed:   {Commit: refuse, Checkpoint: refuse, Collect: refuse, Compact: refuse, Remove: refuse, Close: refuse},
}
