// Package phase is the state machine of a store's checkpointer: the phases of what is in
// progress, and a table of the actions that may begin in each phase.
//
// Three kinds of work run concurrently, each on its own track: one commit, one checkpoint or
// garbage collection of files, and one compaction. A track is in one [Phase] at a time. An
// [Action] begins at once or waits, according to the table and the phases of all tracks, and
// ends with [Machine.End]. Waiting actions that exclude each other begin in the order of
// their calls, but commits do not wait behind one that waits for a checkpoint. A [Machine] does none of the work, and takes no lock of a store.
package phase

import "fmt"

// Phase is what one track of the checkpointer is doing.
type Phase uint8

const (
	// Resting: nothing is in progress.
	Resting Phase = iota

	// Gathering: a commit waits for its barrier. Commits that are called now share it.
	Gathering
	// Flushing: the barrier is over; the log is written up to the commit's tail, if that takes long.
	Flushing
	// Recording: the log is synced, and the manifest is written, with the commit.
	Recording

	// Copying: a checkpoint copies the index to an object.
	Copying
	// Saving: the log is written up to the checkpoint's tail, in place or to an object.
	Saving
	// Naming: the manifest is written, with the checkpoint.
	Naming
	// Collecting: objects and log that the manifest does not need are removed.
	Collecting

	// Compacting: live records are copied from the log's beginning to its tail. The
	// truncation after it is a commit, and then a collection.
	Compacting

	// Removing: a checkpoint is removed from the manifest. This takes the tracks of commits
	// and of checkpoints. The commit and the collection within have no phase of their own.
	Removing
	// Closed: Close makes the last commits, a copy of the index, and the last collection, or has made
	// them.
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

// A track has one action in progress at a time.
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
	from []Phase // Resting for an action that begins; the preceding phases for a step
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
	Copy:   {[]track{checkpoints}, []Phase{Naming}, Copying}, // after a manifest whose write had failed was written again
	Save:   {[]track{checkpoints}, []Phase{Copying}, Saving},
	Name:   {[]track{checkpoints}, []Phase{Copying, Saving}, Naming},
}

// verdict is what happens to an action.
type verdict uint8

const (
	begin  verdict = iota
	join           // it shares the commit in progress
	wait           // it waits for the phase's end
	refuse         // the store is closed
)

// table has the verdict on an action while a track is in a phase. Without an entry the action
// begins. The strictest verdict of all tracks counts; for a step, without its own track.
//
// A commit and a checkpoint run concurrently, but write the manifest one after the other.
// While a checkpoint is made nothing is collected: no manifest names its objects yet, and it
// may need log below that of all states. While files are collected no checkpoint begins. A
// commit may begin, since it needs no files but those that the manifest names.
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
