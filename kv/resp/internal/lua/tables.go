package lua

import (
	"math"
	"sort"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

func (st *State) tableFunctions() functions {
	return functions{
		"concat": st.tableConcat, "foreach": st.tableForeach, "foreachi": st.tableForeachi, "getn": st.tableGetn,
		"insert": st.tableInsert, "maxn": st.tableMaxn, "remove": st.tableRemove, "setn": st.tableSetn, "sort": st.tableSort,
	}
}

func (st *State) tableConcat(l *glua.LState) int {
	t, sep := checkTable(l, 1), optString(l, 2, "")
	i, j := optInt(l, 3, 1), optInt(l, 4, t.Len())
	size := 0
	for k := i; k <= j; k++ {
		s, ok := str(t.RawGetInt(k))
		if !ok {
			l.RaiseError("invalid value (%s) at index %d in table for 'concat'", t.RawGetInt(k).Type().String(), k)
		}
		if size += len(s) + len(sep); size > MaxString {
			break
		}
		st.meter.work(l, 1)
	}
	st.meter.Charge(l, size)
	var out strings.Builder
	out.Grow(size)
	for k := i; k <= j; k++ {
		s, _ := str(t.RawGetInt(k))
		out.WriteString(s)
		if k < j {
			out.WriteString(sep)
		}
	}
	l.Push(glua.LString(out.String()))
	return 1
}

func (st *State) tableForeach(l *glua.LState) int {
	t, fn := st.shows(checkTable(l, 1)), checkFunction(l, 2)
	for k, v := t.Next(glua.LNil); k != glua.LNil; k, v = t.Next(k) {
		if st.visit(l, fn, k, v) {
			return 1
		}
	}
	return 0
}

func (st *State) tableForeachi(l *glua.LState) int {
	t, fn := checkTable(l, 1), checkFunction(l, 2)
	for i := 1; i <= t.Len(); i++ {
		if st.visit(l, fn, glua.LNumber(i), t.RawGetInt(i)) {
			return 1
		}
	}
	return 0
}

// visit calls fn, and reports whether it returned a value, which is then on the stack.
func (st *State) visit(l *glua.LState, fn *glua.LFunction, k, v glua.LValue) bool {
	st.meter.work(l, 1)
	l.Push(fn)
	l.Push(k)
	l.Push(v)
	l.Call(2, 1)
	if l.Get(-1) != glua.LNil {
		return true
	}
	l.Pop(1)
	return false
}

func (st *State) tableGetn(l *glua.LState) int {
	l.Push(glua.LNumber(checkTable(l, 1).Len()))
	return 1
}

func (st *State) tableSetn(l *glua.LState) int {
	checkTable(l, 1)
	l.RaiseError("'setn' is obsolete")
	return 0
}

func (st *State) tableInsert(l *glua.LState) int {
	t := checkTable(l, 1)
	st.mayChange(l, t)
	end := t.Len() + 1
	switch l.GetTop() {
	case 2:
		t.RawSetInt(end, l.Get(2))
	case 3:
		at := checkInt(l, 2)
		if int(int32(at)) != at {
			l.RaiseError("bad argument #2 to 'insert' (position out of bounds)")
		}
		st.chargeGap(l, t, glua.LNumber(at))
		for i := max(end, at); i > at; i-- {
			if i%(16*pollEvery) == 0 {
				st.meter.work(l, pollEvery)
			}
			t.RawSetInt(i, t.RawGetInt(i-1))
		}
		st.meter.work(l, uint(max(end-at, 0))%(16*pollEvery)/16)
		t.RawSetInt(at, l.Get(3))
	default:
		l.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

// chargeGap counts the memory of a table that is filled up to a key beyond its end, if that is an index.
func (st *State) chargeGap(l *glua.LState, t *glua.LTable, key glua.LValue) {
	at, ok := key.(glua.LNumber)
	if !ok || !(at > pollEvery && at < glua.LNumber(glua.MaxArrayIndex)) {
		return
	}
	if gap := int(at) - t.Len(); gap > pollEvery {
		st.meter.spend(16 * int64(gap))
		st.meter.stop(l)
	}
}

func (st *State) tableMaxn(l *glua.LState) int {
	most := 0.0
	t := checkTable(l, 1)
	for k, _ := t.Next(glua.LNil); k != glua.LNil; k, _ = t.Next(k) {
		if n, ok := k.(glua.LNumber); ok {
			most = max(most, float64(n))
		}
	}
	l.Push(glua.LNumber(most))
	return 1
}

func (st *State) tableRemove(l *glua.LState) int {
	t := checkTable(l, 1)
	st.mayChange(l, t)
	end := t.Len()
	at := optInt(l, 2, end)
	if at < 1 || at > end {
		return 0
	}
	st.meter.work(l, uint(end-at)/16)
	l.Push(t.RawGetInt(at))
	for ; at < end; at++ {
		t.RawSetInt(at, t.RawGetInt(at+1))
	}
	t.RawSetInt(end, glua.LNil)
	return 1
}

// sorter sorts the first n elements of a table.
type sorter struct {
	st   *State
	l    *glua.LState
	t    *glua.LTable
	n    int
	less *glua.LFunction // nil: the operator <
}

func (s *sorter) Len() int { return s.n }

func (s *sorter) Swap(i, j int) {
	a, b := s.t.RawGetInt(i+1), s.t.RawGetInt(j+1)
	s.t.RawSetInt(i+1, b)
	s.t.RawSetInt(j+1, a)
}

func (s *sorter) Less(i, j int) bool {
	s.st.meter.work(s.l, 1)
	a, b := s.t.RawGetInt(i+1), s.t.RawGetInt(j+1)
	if s.less == nil {
		return s.l.LessThan(a, b)
	}
	s.l.Push(s.less)
	s.l.Push(a)
	s.l.Push(b)
	s.l.Call(2, 1)
	less := glua.LVAsBool(s.l.Get(-1))
	s.l.Pop(1)
	return less
}

func (st *State) tableSort(l *glua.LState) int {
	s := &sorter{st: st, l: l, t: checkTable(l, 1)}
	st.mayChange(l, s.t)
	if l.Get(2) != glua.LNil {
		s.less = checkFunction(l, 2)
	}
	s.n = s.t.Len()
	sort.Sort(s)
	return 0
}

// random is Redis's generator of random numbers, so that a script draws the same ones each time.
type random uint64

const (
	randomFactor = 0x5DEECE66D
	randomMask   = 1<<48 - 1
	randomMost   = 1<<31 - 1
)

func (r *random) seed(n int32) { *r = random(uint64(uint32(n))<<16 | 0x330E) }

func (r *random) next() float64 {
	*r = (*r*randomFactor + 11) & randomMask
	return float64(uint64(*r>>17)%randomMost) / randomMost
}

// openMath opens gopher-lua's library of mathematics with Redis's random numbers.
func (st *State) openMath(theirs *glua.LTable) {
	all := make(map[string]glua.LValue)
	theirs.ForEach(func(k, v glua.LValue) { all[k.String()] = v })
	all["huge"] = glua.LNumber(math.Inf(1))
	all["random"] = st.function("random", st.mathRandom)
	all["randomseed"] = st.function("randomseed", func(l *glua.LState) int {
		st.random.seed(int32(checkInt(l, 1)))
		return 0
	})
	for name, fn := range map[string]func(float64) float64{"floor": math.Floor, "ceil": math.Ceil, "abs": math.Abs, "sqrt": math.Sqrt} {
		all[name] = st.function(name, func(l *glua.LState) int {
			l.Push(glua.LNumber(fn(checkNumber(l, 1))))
			return 1
		})
	}
	for name, better := range map[string]func(a, b float64) bool{
		"max": func(a, b float64) bool { return a > b }, "min": func(a, b float64) bool { return a < b },
	} {
		all[name] = st.function(name, func(l *glua.LState) int {
			best := checkNumber(l, 1)
			for i := 2; i <= l.GetTop(); i++ {
				if n := checkNumber(l, i); better(n, best) {
					best = n
				}
			}
			l.Push(glua.LNumber(best))
			return 1
		})
	}
	for _, name := range []string{"fmod", "mod"} {
		all[name] = st.function(name, func(l *glua.LState) int {
			l.Push(glua.LNumber(math.Mod(checkNumber(l, 1), checkNumber(l, 2))))
			return 1
		})
	}
	st.open("math", nil, all)
}

func (st *State) mathRandom(l *glua.LState) int {
	r := st.random.next()
	switch l.GetTop() {
	case 0:
	case 1:
		most := float64(checkInt(l, 1))
		if most < 1 {
			badArgument(l, 1, "interval is empty")
		}
		r = math.Floor(r*most) + 1
	case 2:
		least, most := float64(checkInt(l, 1)), float64(checkInt(l, 2))
		if least > most {
			badArgument(l, 2, "interval is empty")
		}
		r = math.Floor(r*(most-least+1)) + least
	default:
		l.RaiseError("wrong number of arguments")
	}
	l.Push(glua.LNumber(r))
	return 1
}

// resumeCost is how many calls of pcall a coroutine is as deep as that another one has resumed: it has calls of
// its own on the same stack.
const resumeCost = 10

// openCoroutines opens gopher-lua's library of coroutines. Each has the meter. The depth of those that resume
// each other is limited, with that of pcall.
func (st *State) openCoroutines(theirs *glua.LTable) {
	all := make(map[string]glua.LValue)
	theirs.ForEach(func(k, v glua.LValue) { all[k.String()] = v })
	create := all["create"]
	all["create"] = st.function("create", func(l *glua.LState) int {
		st.newThread(l, create)
		return 1
	})
	theirResume := all["resume"]
	refuse := func(l *glua.LState, why string) int {
		l.SetTop(0)
		l.Push(glua.LFalse)
		l.Push(glua.LString(why))
		return 2
	}
	resume := func(l *glua.LState) int {
		thread, _ := l.Get(1).(*glua.LState)
		switch {
		case thread != nil && thread != l && st.resumed[thread]: // theirs would resume it for ever
			return refuse(l, "cannot resume normal coroutine")
		case st.nesting+resumeCost > maxProtected:
			return refuse(l, "C stack overflow")
		}
		if thread != nil && thread != l {
			if st.resumed == nil {
				st.resumed = make(map[*glua.LState]bool)
			}
			st.resumed[thread] = true
			defer delete(st.resumed, thread)
		}
		st.nesting += resumeCost
		defer func() { st.nesting -= resumeCost }()
		return st.pass(l, theirResume)
	}
	all["resume"] = st.function("resume", resume)
	all["wrap"] = st.function("wrap", func(l *glua.LState) int {
		thread := st.newThread(l, create)
		l.Push(l.NewFunction(func(l *glua.LState) int {
			l.Insert(thread, 1)
			n := resume(l)
			if l.Get(1) == glua.LFalse {
				l.Error(l.Get(2), 0)
			}
			return n - 1
		}))
		return 1
	})
	st.open("coroutine", nil, all)
}

// threadBytes is about the memory of a coroutine.
const threadBytes = registers*16 + 4<<10

func (st *State) newThread(l *glua.LState, create glua.LValue) *glua.LState {
	fn := checkFunction(l, 1)
	st.meter.Charge(l, threadBytes)
	l.SetContext(&st.meter)
	l.Push(create)
	l.Push(fn)
	l.Call(1, 1)
	thread := l.ToThread(-1)
	thread.SetContext(&st.meter)
	return thread
}
