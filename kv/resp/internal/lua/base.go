package lua

import (
	"fmt"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

// The functions of Lua's basic library that Redis has. pcall, xpcall and coroutines are those of
// gopher-lua.

// openBase makes the globals.
func (st *State) openBase() {
	l := st.l
	for name, open := range map[string]glua.LGFunction{
		glua.BaseLibName: glua.OpenBase, glua.CoroutineLibName: glua.OpenCoroutine, glua.MathLibName: glua.OpenMath, glua.TabLibName: glua.OpenTable,
	} {
		l.Push(l.NewFunction(open))
		l.Push(glua.LString(name))
		l.Call(1, 0)
	}
	old := l.G.Global
	st.step = l.NewFunction(st.ipairsStep)
	st.globals = l.CreateTable(0, 64)
	for name, fn := range (functions{
		"assert": st.assert, "collectgarbage": st.collectGarbage, "error": st.raise, "gcinfo": st.gcInfo,
		"getmetatable": st.getMetatable, "ipairs": st.ipairs, "load": st.load, "loadstring": st.loadString, "next": st.next,
		"pairs": st.pairs, "rawequal": st.rawEqual, "rawget": st.rawGet, "rawset": st.rawSet, "select": st.selectFrom,
		"setmetatable": st.setMetatable, "tonumber": st.toNumber, "tostring": st.toString, "type": st.typeOf, "unpack": st.unpack,
		"pcall":    st.protected(old.RawGetString("pcall"), flattenError),
		"xpcall":   st.protected(old.RawGetString("xpcall"), func(*glua.LState) {}),
		concatName: st.concat,
	}) {
		st.globals.RawSetString(name, st.function(name, fn))
	}
	st.globals.RawSetString("_VERSION", glua.LString("Lua 5.1"))
	missing := l.NewFunction(func(l *glua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.ToString(2))
		return 0
	})
	env := st.protect(st.globals, missing)
	st.globals.RawSetString("_G", env)
	l.Env = env
	l.G.Global = env

	st.openCoroutines(old.RawGetString(glua.CoroutineLibName).(*glua.LTable))
	st.openMath(old.RawGetString(glua.MathLibName).(*glua.LTable))
	st.open("table", st.tableFunctions(), nil)
	st.openJSON()
	st.open("cmsgpack", st.packFunctions(), packConstants)
	st.open("struct", st.structFunctions(), nil)
	st.open("bit", bitFunctions, nil)
}

// maxProtected is the most calls of pcall and xpcall within each other, as in Lua.
const maxProtected = 190

// protected returns a function that calls pcall or xpcall, then after. An error costs more the more
// calls there are, so it is counted as much work.
func (st *State) protected(fn glua.LValue, after func(l *glua.LState)) glua.LGFunction {
	return func(l *glua.LState) int {
		if st.nesting == maxProtected {
			l.RaiseError("C stack overflow")
		}
		st.nesting++
		defer func() { st.nesting-- }()
		n := st.pass(l, fn)
		if l.Get(1) == glua.LFalse {
			st.meter.work(l, pollEvery)
		}
		after(l)
		return n
	}
}

// pass calls a function with all arguments, and leaves its results on the stack.
func (st *State) pass(l *glua.LState, fn glua.LValue) (results int) {
	n := l.GetTop()
	l.Insert(fn, 1)
	l.Call(n, glua.MultRet)
	return l.GetTop()
}

// flattenError replaces the error that pcall returns by its text if it is a table with one.
func flattenError(l *glua.LState) {
	if l.GetTop() == 2 && l.Get(1) == glua.LFalse {
		if t, ok := l.Get(2).(*glua.LTable); ok {
			if text := t.RawGetString("err"); text.Type() == glua.LTString || text.Type() == glua.LTNumber {
				l.Replace(2, text)
			}
		}
	}
}

func (st *State) assert(l *glua.LState) int {
	if glua.LVAsBool(checkAny(l, 1)) {
		return l.GetTop()
	}
	l.RaiseError("%s", optString(l, 2, "assertion failed!"))
	return 0
}

func (st *State) collectGarbage(l *glua.LState) int {
	switch option := optString(l, 1, "collect"); option {
	case "count":
		return st.gcInfo(l)
	case "collect", "stop", "restart", "step", "setpause", "setstepmul":
		l.Push(glua.LNumber(0)) // the server's memory is not the script's affair
		return 1
	default:
		badArgument(l, 1, "invalid option '"+option+"'")
		return 0
	}
}

func (st *State) gcInfo(l *glua.LState) int {
	l.Push(glua.LNumber(max(heap()-st.meter.before, 1<<10)) / (1 << 10))
	return 1
}

func (st *State) raise(l *glua.LState) int {
	v := l.Get(1)
	if n, ok := v.(glua.LNumber); ok {
		v = glua.LString(numberString(n))
	}
	l.Error(v, optInt(l, 2, 1))
	return 0
}

func (st *State) getMetatable(l *glua.LState) int {
	v := checkAny(l, 1)
	switch v.(type) {
	case *glua.LTable, *glua.LUserData, glua.LString:
		l.Push(l.GetMetatable(v))
	default:
		l.Push(glua.LNil)
	}
	return 1
}

func (st *State) setMetatable(l *glua.LState) int {
	t := checkTable(l, 1)
	mt := l.Get(2)
	if mt.Type() != glua.LTNil && mt.Type() != glua.LTTable || l.GetTop() < 2 {
		badArgument(l, 2, "nil or table expected")
	}
	st.mayChange(l, t)
	if l.GetMetaField(t, "__metatable") != glua.LNil {
		l.RaiseError("cannot change a protected metatable")
	}
	l.SetMetatable(t, mt)
	l.Push(t)
	return 1
}

// mayChange raises an error if a table is read-only.
func (st *State) mayChange(l *glua.LState, t *glua.LTable) {
	if _, ok := st.real[t]; ok {
		l.Error(glua.LString("Attempt to modify a readonly table"), 0)
	}
}

// shows returns the content of a table, also of a read-only one.
func (st *State) shows(t *glua.LTable) *glua.LTable {
	if real, ok := st.real[t]; ok {
		return real
	}
	return t
}

func (st *State) ipairs(l *glua.LState) int {
	t := checkTable(l, 1)
	l.Push(st.step)
	l.Push(t)
	l.Push(glua.LNumber(0))
	return 3
}

// ipairsStep is the iterator of ipairs.
func (st *State) ipairsStep(l *glua.LState) int {
	i := l.ToInt(2) + 1
	v := checkTable(l, 1).RawGetInt(i)
	if v == glua.LNil {
		return 0
	}
	l.Push(glua.LNumber(i))
	l.Push(v)
	return 2
}

func (st *State) pairs(l *glua.LState) int {
	t := checkTable(l, 1)
	l.Push(st.globals.RawGetString("next"))
	l.Push(t)
	l.Push(glua.LNil)
	return 3
}

func (st *State) next(l *glua.LState) int {
	t := st.shows(checkTable(l, 1))
	k, v := t.Next(l.Get(2))
	if name, ok := k.(glua.LString); ok && strings.HasPrefix(string(name), "(") && t == st.globals {
		l.SetTop(1) // a function of the interpreter's own
		l.Push(k)
		return st.next(l)
	}
	if k == glua.LNil {
		l.Push(glua.LNil)
		return 1
	}
	l.Push(k)
	l.Push(v)
	return 2
}

func (st *State) rawEqual(l *glua.LState) int {
	l.Push(glua.LBool(l.RawEqual(checkAny(l, 1), checkAny(l, 2))))
	return 1
}

func (st *State) rawGet(l *glua.LState) int {
	l.Push(l.RawGet(st.shows(checkTable(l, 1)), checkAny(l, 2)))
	return 1
}

func (st *State) rawSet(l *glua.LState) int {
	t := checkTable(l, 1)
	st.mayChange(l, t)
	key, value := checkAny(l, 2), checkAny(l, 3)
	st.chargeGap(l, t, key)
	l.RawSet(t, key, value)
	l.SetTop(1)
	return 1
}

func (st *State) selectFrom(l *glua.LState) int {
	n := l.GetTop()
	if l.Get(1) == glua.LString("#") {
		l.Push(glua.LNumber(n - 1))
		return 1
	}
	i := checkInt(l, 1)
	if i < 0 {
		i = n + i
	} else if i > n {
		i = n
	}
	if i < 1 {
		badArgument(l, 1, "index out of range")
	}
	return n - i
}

func (st *State) toNumber(l *glua.LState) int {
	base := optInt(l, 2, 10)
	if base == 10 {
		if f, ok := num(checkAny(l, 1)); ok {
			l.Push(glua.LNumber(f))
		} else {
			l.Push(glua.LNil)
		}
		return 1
	}
	s := checkString(l, 1)
	if base < 2 || base > 36 {
		badArgument(l, 2, "base out of range")
	}
	if f, ok := parseBase(strings.Trim(s, " \t\n\v\f\r"), base); ok {
		l.Push(glua.LNumber(f))
	} else {
		l.Push(glua.LNil)
	}
	return 1
}

// parseBase parses an integer of a base, which wraps at 64 bits as in C.
func parseBase(s string, base int) (float64, bool) {
	s, negative := strings.CutPrefix(s, "-")
	if !negative {
		s = strings.TrimPrefix(s, "+")
	}
	if base == 16 && len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		s = s[2:]
	}
	n := uint64(0)
	for _, c := range []byte(s) {
		digit := 99
		switch lower := c | 0x20; {
		case c >= '0' && c <= '9':
			digit = int(c - '0')
		case lower >= 'a' && lower <= 'z':
			digit = int(lower-'a') + 10
		}
		if digit >= base {
			return 0, false
		}
		next := n*uint64(base) + uint64(digit)
		if n > (1<<64-1)/uint64(base) || next < n*uint64(base) {
			return float64(uint64(1<<64 - 1)), true // as strtoul
		}
		n = next
	}
	if negative {
		n = -n
	}
	return float64(n), s != ""
}

func (st *State) toString(l *glua.LState) int {
	v := checkAny(l, 1)
	if method := l.GetMetaField(v, "__tostring"); method != glua.LNil {
		l.Push(method)
		l.Push(v)
		l.Call(1, 1)
		return 1
	}
	l.Push(glua.LString(display(v)))
	return 1
}

// display returns a value as tostring does.
func display(v glua.LValue) string {
	if s, ok := str(v); ok {
		return s
	}
	switch v := v.(type) {
	case *glua.LFunction:
		return fmt.Sprintf("function: %p", v)
	case *glua.LTable:
		return fmt.Sprintf("table: %p", v)
	case *glua.LUserData:
		if v.Value == nil {
			return "userdata: (nil)"
		}
	}
	return v.String()
}

func (st *State) typeOf(l *glua.LState) int {
	l.Push(glua.LString(checkAny(l, 1).Type().String()))
	return 1
}

func (st *State) unpack(l *glua.LState) int {
	t := checkTable(l, 1)
	i := optInt(l, 2, 1)
	j := optInt(l, 3, t.Len())
	if i > j {
		return 0
	}
	if n := j - i + 1; n <= 0 || n > maxResults {
		l.RaiseError("too many results to unpack")
	}
	for k := i; k <= j; k++ {
		l.Push(t.RawGetInt(k))
	}
	return j - i + 1
}

func (st *State) loadString(l *glua.LState) int {
	s := checkString(l, 1)
	return st.compiled(l, s, optString(l, 2, s))
}

func (st *State) load(l *glua.LState) int {
	fn := checkFunction(l, 1)
	name := optString(l, 2, "=(load)")
	var source strings.Builder
	for {
		l.Push(fn)
		l.Call(0, 1)
		v := l.Get(-1)
		l.Pop(1)
		piece, ok := str(v)
		if v == glua.LNil || piece == "" && ok {
			break
		}
		if !ok {
			l.Push(glua.LNil)
			l.Push(glua.LString("reader function must return a string"))
			return 2
		}
		if source.WriteString(piece); source.Len() > MaxSource {
			break
		}
	}
	return st.compiled(l, source.String(), name)
}

// parseCost is about the bytes that a byte of source takes while it is compiled.
const parseCost = 64

// compiled returns the function of a chunk, or nil and an error.
func (st *State) compiled(l *glua.LState, source, name string) int {
	st.meter.spend(int64(len(source)) * parseCost)
	st.meter.work(l, pollEvery+uint(len(source)))
	st.meter.stop(l)
	proto, err := compile(source, chunkName(name))
	if err != nil {
		l.Push(glua.LNil)
		l.Push(glua.LString(err.Error()))
		return 2
	}
	l.Push(l.NewFunctionFromProto(proto))
	return 1
}

// chunkName returns the name of a chunk in errors, as Lua shortens it.
func chunkName(name string) string {
	if name != "" && (name[0] == '=' || name[0] == '@') {
		return name[1:min(len(name), 60)]
	}
	line, _, more := strings.Cut(name, "\n")
	if len(line) > 40 {
		line, more = line[:40], true
	}
	if more {
		line += "..."
	}
	return `[string "` + line + `"]`
}
