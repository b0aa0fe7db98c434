package resp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	glua "github.com/yuin/gopher-lua"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/lua"
)

// A script runs on its client's goroutine, and uses its connection: a command that it calls appends
// its reply to the client's output, from where the script takes it.
//
// While a script runs, no other client reads or changes the keys that it uses, and a commit has all
// of its changes or none:
//
//   - It locks the keys that it declares, as a transaction does.
//   - When it comes to another key, it locks that too. Two scripts may then wait for each other; the
//     wait ends after a while. If the script has changed nothing, it begins again with the store
//     alone; else it ends with an error, and what it has changed remains.
//   - A command on the whole store, such as KEYS, needs the store alone in the same way.
//   - A script that has used undeclared keys, or has no keys and has not ended yet, has the store
//     alone from its beginning. So the error above is rare.
type scriptRun struct {
	c        *client
	in       *interpreter
	s        *script
	keys     [][]byte // records' keys that it has declared
	readOnly bool
	alone    bool // it has the store alone
	locks    bool // it may lock more keys
	began    time.Time

	roams  bool         // it has used other keys than the declared ones
	busy   atomic.Bool  // it has run for too long
	killed atomic.Int32 // a runState
}

// States of a run. A run that has changed something is not killed.
const (
	runGoes int32 = iota
	runWrote
	runKilled
)

var (
	errScriptKilled  = errors.New("Script killed by user with SCRIPT KILL...") //nolint:staticcheck // Redis's words
	errScriptAgain   = errors.New("the script needs the store alone")
	errScriptSession = errors.New("the connection ends")
)

// lockTime is the longest wait for a key that a script has not declared.
const lockTime = time.Second

// runScript runs a script and replies. args are those behind the number of keys.
func (c *client) runScript(s *script, keys, args [][]byte, readOnly bool) {
	if c.flush(); c.quit {
		return
	}
	c.collect() // messages before the reply, which must stay whole
	run := &scriptRun{c: c, s: s, readOnly: readOnly || s.readOnly, began: time.Now()}
	for _, key := range keys {
		run.keys = append(run.keys, storedKey(c.db, key))
	}
	run.execute(keys, args)
}

// execute runs the script with the locks that it needs.
func (run *scriptRun) execute(keys, args [][]byte) {
	c, again := run.c, false
	once := func() { again = run.once(keys, args) }
	switch habit := scriptHabit(run.s.habit.Load()); {
	case c.locked:
		run.alone, run.locks = c.alone, !c.alone
		once()
	case habit == habitRoams || len(run.keys) == 0 && habit == habitUnknown:
		run.alone = true
		c.exclusively(func() { c.wholly(once) })
	case len(run.keys) == 0:
		c.lockOut()
		once()
		c.unlockOut()
		c.giveBack()
	default:
		run.locks = true
		c.atomically(run.keys, once)
	}
	if again {
		run.alone, run.locks, run.roams = true, false, false
		c.exclusively(func() { c.wholly(once) })
	}
}

// once runs the script once and replies. again is true if it must run once more, with the store
// alone; then it has not replied.
func (run *scriptRun) once(keys, args [][]byte) (again bool) {
	c, all := run.c, &run.c.server.scripts
	run.killed.Store(runGoes)
	all.begin(run)
	if run.in == nil {
		run.in = newInterpreter()
	}
	in := run.in
	in.run = run
	before := scriptSurroundings{len(c.out), c.resp3, c.db, c.executing}
	c.resp3, c.executing, c.scripting = false, true, true
	value, reusable, err := in.state.Run(run.s.compiled, in.table(keys), in.table(args), run.poll)
	resp3 := c.resp3
	c.restore(before)
	if run.busy.Load() {
		run.endBusy()
	}
	in.run, run.in = nil, nil
	switch {
	case err != nil && errors.Is(err.Ended, errScriptAgain):
		again = true
	case c.quit:
		c.sendable = min(c.sendable, before.at) // the script's reply is missing
	case err != nil:
		run.answerError(err)
	default:
		in.answer(c, value, resp3)
	}
	if !reusable {
		in = nil
	}
	all.end(run, in)
	run.learn(again, err == nil)
	return again
}

// learn notes what the run has shown about the script's keys. well is false if it has not ended by
// itself.
func (run *scriptRun) learn(again, well bool) {
	switch {
	case again || run.roams:
		run.s.habit.Store(uint32(habitRoams))
	case well && run.s.habit.Load() == uint32(habitUnknown):
		run.s.habit.CompareAndSwap(uint32(habitUnknown), uint32(habitDeclares))
	}
}

// scriptSurroundings is the state of a client that its script may change while it runs.
type scriptSurroundings struct {
	at        int // length of out
	resp3     bool
	db        uint8
	executing bool
}

func (c *client) restore(s scriptSurroundings) {
	c.out, c.resp3, c.executing, c.scripting = c.out[:s.at], s.resp3, s.executing, false
	c.setDB(s.db)
}

// poll is called from time to time while the script runs. Its error ends the script.
func (run *scriptRun) poll() error {
	s := run.c.server
	if run.killed.Load() == runKilled {
		return errScriptKilled
	}
	busy := run.busy.Load()
	if !busy && s.scripts.isBusy(run.began) {
		run.beginBusy()
	}
	if s.closing.Load() && (busy || run.killed.Load() != runWrote || time.Since(run.began) > busyAfter*time.Millisecond) {
		return errServerEnds
	}
	return nil
}

// beginBusy makes clients that wait for the script's keys, or for the store, give up.
func (run *scriptRun) beginBusy() {
	c := run.c
	run.busy.Store(true)
	c.server.opts.Logger.Warn("a script runs for long", "client", c.id, "sha", run.s.sha)
	if run.alone {
		c.server.scripts.busyAlone.Add(1)
	} else if c.worker != nil {
		c.worker.session.RefuseWaiters()
	}
	c.server.pool.setBusy(1)
}

func (run *scriptRun) endBusy() {
	run.busy.Store(false)
	if run.alone {
		run.c.server.scripts.busyAlone.Add(-1)
	}
	run.c.server.pool.setBusy(-1)
}

// wrote notes that the script changes something. It returns an error if it is killed.
func (run *scriptRun) wrote() error {
	if run.killed.CompareAndSwap(runGoes, runWrote) || run.killed.Load() == runWrote {
		return nil
	}
	return errScriptKilled
}

// lockFor gets the locks for a command, whose keys are declared or not. It returns the refusal of
// the command, or ends the script.
func (run *scriptRun) lockFor(cmd *command, keys [][]byte) (refusal string) {
	whole := cmd.flags&flagWhole != 0
	if run.alone {
		run.roams = run.roams || whole || !run.declares(keys)
		return ""
	}
	if !whole && run.declares(keys) {
		return ""
	}
	run.roams = true
	if !whole && run.locks && run.c.worker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lockTime)
		defer cancel()
		if run.c.worker.session.LockMore(ctx, keys) == nil {
			return ""
		}
	}
	if run.killed.Load() == runWrote || run.nested() {
		return errScriptKeys
	}
	run.in.state.Meter().End(errScriptAgain)
	return errScriptKeys
}

// nested reports whether the script is part of a transaction, which has begun.
func (run *scriptRun) nested() bool { return run.c.transacting }

// declares reports whether the script has declared all of the keys.
func (run *scriptRun) declares(keys [][]byte) bool {
	for _, key := range keys {
		found := false
		for _, declared := range run.keys {
			if found = string(declared) == string(key); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// answerError replies with the error of a script.
func (run *scriptRun) answerError(err *lua.Error) {
	c, text := run.c, err.Error()
	if err.Ended != nil {
		text = "ERR " + err.Ended.Error()
	}
	if err.Line > 0 {
		text += fmt.Sprintf(" script: %s, on @%s:%d.", run.s.sha, lua.ScriptName, err.Line)
	}
	c.error(text)
}

// wholeFor reports whether a script that is queued by MULTI needs the store alone.
func (s *Server) wholeFor(cmd *command, r request) bool {
	if cmd.flags&flagScript == 0 {
		return false
	}
	var known *script
	if cmd.source() {
		known = s.scripts.find(shaOf(r.arg(1)))
	} else {
		known = s.scripts.find(shaArgument(r.arg(1)))
	}
	habit := habitUnknown
	if known != nil {
		habit = scriptHabit(known.habit.Load())
	}
	n, _ := parseInt(r.arg(2))
	return habit == habitRoams || habit == habitUnknown && n <= 0
}

// isBusy reports whether an error of the store means that a script runs for long.
func isBusy(err error) bool { return errors.Is(err, kv.ErrKeyBusy) }

// storeError returns the reply for an error of the store.
func storeError(err error) string {
	if isBusy(err) {
		return errBusy
	}
	return "ERR " + err.Error()
}

// interpreter is a Lua interpreter with the functions of the library redis.
type interpreter struct {
	state *lua.State
	run   *scriptRun // the one that it runs
	// Scratch memory of a call: the command, and the records' keys that it uses.
	data []byte
	args []span
	keys [][]byte
}

func newInterpreter() *interpreter {
	in := new(interpreter)
	in.state = lua.New(in.functions(), scriptConstants)
	return in
}

// table returns a table of strings.
func (in *interpreter) table(of [][]byte) *glua.LTable {
	t := in.state.NewTable(len(of), 0)
	for i, s := range of {
		t.RawSetInt(i+1, glua.LString(s))
	}
	return t
}
