package inspect

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// log inspects the log of the state that is opened.
func (in *inspector) log() {
	m := in.manifest
	layout := hlog.VariableLayout()
	if m.KeySize > 0 {
		layout = hlog.FixedLayout(m.KeySize, m.ValueSize)
	}
	src := manifest.RestoredLog{Files: in.src, Flushed: in.Log.Tail}
	defer src.Close()
	if in.from != nil && in.from.Snapshot != "" {
		src.Flushed = in.from.Flushed
		for _, s := range m.Snapshots(in.from) {
			if src.Add(in.src, s) != nil { // already a problem of its checkpoint
				in.Log.Tail = src.Flushed
				break
			}
		}
	}
	in.Log.Flushed = min(in.Log.Tail, src.Flushed)
	in.src.LostSums(in.Log.Begin, in.Log.Flushed, func(from, until int64, err error) {
		in.problem(fmt.Sprintf("the log from %d until %d", from, until),
			"restore that file: until then reads of this part fail, and opening the store may", err)
	})
	replayed := in.Log.Begin // Open reads the log from here on
	if in.state.Index != nil {
		replayed = in.state.Index.Start
	}
	begin := in.Log.Begin
	if end := in.olderEnd(); end < in.state.Begin { // a Clear left a gap, which no state needs
		in.inspectLog(&src, layout, begin, end, replayed)
		begin = in.state.Begin
	}
	in.inspectLog(&src, layout, begin, in.Log.Tail, replayed)
	in.indexesDone()
}

func (in *inspector) inspectLog(src io.ReaderAt, layout hlog.Layout, from, until, replayed int64) {
	hlog.Inspect(src, layout, in.manifest.PageSize, from, until, in.record,
		func(addr, until int64, err error) { in.damagedPage(addr, until, until > replayed, err) })
}

// olderEnd is the end of what the states that begin before the one that is opened need of the log.
func (in *inspector) olderEnd() int64 {
	end := in.Log.Begin
	need := func(s *manifest.State) {
		if s.Begin < in.state.Begin {
			end = max(end, s.Tail)
		}
	}
	need(&in.manifest.Commit)
	for i := range in.manifest.Checkpoints {
		need(&in.manifest.Checkpoints[i].State)
	}
	return end
}

// damagedPage adds a problem between two addresses. It merges the problem with the last
// one if they are the same and adjacent.
func (in *inspector) damagedPage(addr, until int64, replayed bool, err error) {
	in.Log.Damaged++
	advice := "restore its segment: until then reads of this part fail"
	if replayed {
		advice = "restore its segment: until then the store cannot be opened"
	}
	if n := len(in.Checkpoints); n > 1 || n == 1 && in.from == nil {
		advice += "; an older checkpoint may not need it, name it in Options.Recover"
	}
	if n := len(in.Problems); n > 0 && in.damagedTo == addr && in.Problems[n-1].What == err.Error() && in.Problems[n-1].Advice == advice {
		addr = in.damagedFrom
		in.Problems = in.Problems[:n-1]
	}
	in.damagedFrom, in.damagedTo = addr, until
	in.problem(fmt.Sprintf("the log from %d until %d", addr, until), advice, err)
}
