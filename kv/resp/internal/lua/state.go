package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// Limits of an interpreter.
const (
	callDepth    = 4_000   // calls within calls
	registers    = 1 << 10 // at first
	mostRegister = 1 << 18
	maxResults   = 8000 // values that a function returns, as Redis's Lua
)

// State is an interpreter. It runs one script at a time. Globals and libraries cannot be changed
// by a script, so the next one finds them as they were.
type State struct {
	l        *glua.LState
	meter    Meter
	globals  *glua.LTable
	real     map[*glua.LTable]*glua.LTable // what a read-only table shows
	readOnly *glua.LFunction               // raises the error
	step     *glua.LFunction               // of ipairs
	nesting  int                           // calls of pcall that have not ended, and coroutines: see resumeCost
	resumed  map[*glua.LState]bool         // coroutines that run, or have resumed another one
	random   random
	json     jsonSettings
	null     *glua.LUserData // cjson.null
}

// functions are functions of a library.
type functions map[string]glua.LGFunction

// New returns an interpreter whose library "redis" has these functions and constants. The
// interpreter may be used by any goroutine, but by one at a time.
func New(redis map[string]glua.LGFunction, constants map[string]glua.LValue) *State {
	st := &State{real: make(map[*glua.LTable]*glua.LTable)}
	st.l = glua.NewState(glua.Options{
		SkipOpenLibs: true, CallStackSize: callDepth, MinimizeStackMemory: true,
		RegistrySize: registers, RegistryMaxSize: mostRegister, RegistryGrowStep: registers,
	})
	st.readOnly = st.l.NewFunction(func(l *glua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	})
	st.openBase()
	st.openTypes()
	st.open("redis", redis, constants)
	return st
}

// open adds a library to the globals.
func (st *State) open(name string, of functions, constants map[string]glua.LValue) *glua.LTable {
	t := st.l.CreateTable(0, len(of)+len(constants))
	for name, fn := range of {
		t.RawSetString(name, st.function(name, fn))
	}
	for name, v := range constants {
		t.RawSetString(name, v)
	}
	shown := st.protect(t, glua.LNil)
	st.globals.RawSetString(name, shown)
	return shown
}

func (st *State) function(name string, fn glua.LGFunction) *glua.LFunction {
	return st.l.NewClosure(fn, glua.LString(name))
}

// protect returns a read-only table that shows t. missing is called for what t lacks, unless it is
// nil.
func (st *State) protect(t *glua.LTable, missing glua.LValue) *glua.LTable {
	if missing != glua.LNil {
		mt := st.l.CreateTable(0, 1)
		mt.RawSetString("__index", missing)
		t.Metatable = mt
	}
	mt := st.l.CreateTable(0, 3)
	mt.RawSetString("__index", t)
	mt.RawSetString("__newindex", st.readOnly)
	mt.RawSetString("__metatable", glua.LFalse)
	shown := st.l.CreateTable(0, 0)
	shown.Metatable = mt
	st.real[shown] = t
	return shown
}

// Meter returns the meter of the script that runs.
func (st *State) Meter() *Meter { return &st.meter }

// Error is the error with which a script ended.
type Error struct {
	// Value is what the script raised.
	Value glua.LValue
	// Line is the line at which it did, or 0.
	Line int
	// Ended is the error with which the meter ended the script, or nil.
	Ended error
}

// Error implements error.
func (e *Error) Error() string {
	if t, ok := e.Value.(*glua.LTable); ok {
		if text, ok := str(t.RawGetString("err")); ok {
			return text
		}
		return "ERR unknown error"
	}
	text, ok := str(e.Value)
	if !ok {
		text = e.Value.String()
	}
	return "ERR " + text
}

// Run runs a script with the global tables KEYS and ARGV, and returns the first of its results.
// poll is called from time to time; if it returns an error, the script ends with it, and the
// result is an *Error with that error as Ended. reusable is false if the interpreter may be
// damaged.
func (st *State) Run(s *Script, keys, args *glua.LTable, poll func() error) (result glua.LValue, reusable bool, err *Error) {
	l := st.l
	st.meter.begin(poll)
	st.random.seed(0)
	st.nesting = 0
	clear(st.resumed)
	st.json = jsonDefaults
	l.SetContext(&st.meter)
	st.globals.RawSetString("KEYS", keys)
	st.globals.RawSetString("ARGV", args)
	l.SetTop(0)
	l.Push(l.NewFunctionFromProto(s.proto))
	raised := l.PCall(0, 1, nil)
	if raised == nil && st.meter.err == nil {
		result = l.Get(-1)
		l.SetTop(0)
		return result, true, nil
	}
	var e *glua.ApiError
	err = &Error{Value: glua.LNil, Ended: st.meter.err}
	if errors.As(raised, &e) {
		err.Value, err.Line = e.Object, lineOf(e.StackTrace)
		reusable = e.Type != glua.ApiErrorPanic
	}
	if st.meter.err != nil {
		reusable = false
	} else if !reusable {
		err.Value = glua.LString(fmt.Sprintf("the interpreter failed: %v", raised))
	}
	l.SetTop(0)
	return nil, reusable, err
}

// NewTable returns a table.
func (st *State) NewTable(array, fields int) *glua.LTable { return st.l.CreateTable(array, fields) }

// lineOf returns the line of the innermost function of the script in a stack trace, or 0.
func lineOf(trace string) int {
	_, rest, _ := strings.Cut(trace, ScriptName+":")
	digits, _, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return line
}
