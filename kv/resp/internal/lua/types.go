package lua

import (
	"math"

	glua "github.com/yuin/gopher-lua"
)

// openTypes gives the types that are no tables metatables, which scripts do not see. They are for
// arithmetic with strings, which are parsed as Lua parses them, and for errors in Lua's words.
func (st *State) openTypes() {
	l := st.l
	for _, v := range []glua.LValue{glua.LNil, glua.LTrue, glua.LNumber(0), st.readOnly, l} {
		mt := l.CreateTable(0, 16)
		st.addErrors(mt, v.Type().String())
		l.SetMetatable(v, mt)
	}
	mt := l.CreateTable(0, 16)
	st.addErrors(mt, glua.LTString.String())
	mt.RawSetString("__index", st.open("string", st.stringFunctions(), nil))
	shown := st.protect(mt, glua.LNil)
	mt.RawSetString("__metatable", shown)
	l.SetMetatable(glua.LString(""), mt)
}

// arithmetic are the operators on numbers, by their metamethods.
var arithmetic = map[string]func(a, b float64) float64{
	"__add": func(a, b float64) float64 { return a + b },
	"__sub": func(a, b float64) float64 { return a - b },
	"__mul": func(a, b float64) float64 { return a * b },
	"__div": func(a, b float64) float64 { return a / b },
	"__pow": math.Pow,
	"__mod": func(a, b float64) float64 { return a - math.Floor(a/b)*b },
	"__unm": func(a, _ float64) float64 { return -a },
}

// addErrors adds the metamethods that raise errors for a type.
func (st *State) addErrors(mt *glua.LTable, name string) {
	raises := func(text string) *glua.LFunction {
		return st.l.NewFunction(func(l *glua.LState) int {
			l.RaiseError("attempt to %s a %s value", text, name)
			return 0
		})
	}
	mt.RawSetString("__index", raises("index"))
	mt.RawSetString("__newindex", raises("index"))
	mt.RawSetString("__call", raises("call"))
	if name != "string" {
		mt.RawSetString("__len", raises("get length of"))
	}
	if name == "number" {
		return // the other operand's metatable decides
	}
	for event, apply := range arithmetic {
		mt.RawSetString(event, st.l.NewFunction(func(l *glua.LState) int {
			a, okA := num(l.Get(1))
			b, okB := num(l.Get(2))
			if event == "__unm" {
				b, okB = a, okA
			}
			if !okA || !okB {
				of := l.Get(2)
				if method := l.GetMetaField(of, event); of.Type() == glua.LTTable && method != glua.LNil {
					l.SetTop(2)
					return st.pass(l, method)
				}
				if !okA {
					of = l.Get(1)
				}
				l.RaiseError("attempt to perform arithmetic on a %s value", of.Type().String())
			}
			l.Push(glua.LNumber(apply(a, b)))
			return 1
		}))
	}
}
