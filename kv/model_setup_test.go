package kv

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// modelSetup describes a store to be tested, and what a script for it may use.
type modelSetup struct {
	seed     uint64
	opts     Options
	rules    modelRules
	rack     rackSetup
	sessions int
	keys     uint64 // keys of the sessions, numbers from 0
	counters uint64 // counters, numbers after the keys
}

// newModelSetup draws options.
func newModelSetup(seed uint64) modelSetup {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := modelSetup{seed: seed, sessions: 1 + rng.IntN(3), counters: 1 + rng.Uint64N(3)}
	m.rack = rackSetup{
		kind:     rackKinds[rng.IntN(len(rackKinds))],
		seed:     rng.Uint64(),
		capacity: 1 << (10 + rng.IntN(6)),
	}
	if rng.IntN(2) == 0 {
		m.rack.delay = rng.Float64() / 2
	}
	o := &m.opts
	*o = Options{
		PageSize:        m.rack.alignment() << rng.IntN(4),
		hashSeed:        m.seed + 1,
		QueueDepth:      1 + rng.IntN(20),
		Records:         1 + rng.Int64N(200),
		FixedIndex:      rng.IntN(2) == 0,
		MutableFraction: 0.1 + 0.9*rng.Float64(),
		Checkpoints:     CheckpointPolicy{Keep: 1 + rng.IntN(4)},
	}
	o.Memory = int64(o.PageSize) * (4 + rng.Int64N(12))
	if rng.IntN(2) == 0 {
		cache := 2<<10 + rng.Int64N(16<<10)
		o.Memory += cache
		o.ReadCache = float64(cache) / float64(o.Memory)
	}
	o.MaxMemory = o.Memory * (2 + rng.Int64N(3))
	switch rng.IntN(3) {
	case 0:
		o.KeySize, o.ValueSize = 8, 8
	case 1:
		o.KeySize, o.ValueSize = 2+rng.IntN(20), 1+rng.IntN(100)
	}
	if rng.IntN(8) == 0 {
		o.Compaction = AutoCompaction{LogSize: o.Memory, DeadShare: 0.5, Share: 1, Every: time.Millisecond}
	}
	if rng.IntN(8) == 0 {
		o.Checkpoints.Every = 2 * time.Millisecond
		o.Checkpoints.Kind = CheckpointKind(rng.IntN(int(manifest.Kinds)))
	}
	m.rules = modelRules{keySize: o.KeySize, valueSize: o.ValueSize, longest: o.PageSize / (2 + rng.IntN(10))}
	m.keys = 1 + rng.Uint64N(300)
	if rng.IntN(4) == 0 { // all keys collide, in one bucket and one tag
		o.hash = func([]byte) uint64 { return 42 }
		m.keys = min(m.keys, 40)
	}
	if o.CountKeys = rng.IntN(2) == 0; o.CountKeys {
		o.KeyClass = modelClass
	}
	m.keys += uint64(m.sessions) - m.keys%uint64(m.sessions) // the same number for each
	return m
}

// automatic reports whether checkpoints or commits are made that are not in the script.
func (m *modelSetup) automatic() bool {
	return m.opts.Checkpoints.Every > 0 || m.opts.Compaction.Every > 0
}

func (m *modelSetup) String() string {
	o := &m.opts
	return fmt.Sprintf("%s,key=%d,value=%d,page=%d,memory=%d,cache=%.2f,collide=%v,sessions=%d,automatic=%v",
		m.rack.kind, o.KeySize, o.ValueSize, o.PageSize, o.Memory, o.ReadCache, o.hash != nil, m.sessions, m.automatic())
}

// newModelScript generates a script.
func newModelScript(m modelSetup) modelScript {
	g := scriptGenerator{modelSetup: m, rng: rand.New(rand.NewPCG(m.seed, 2))}
	script := modelScript{setup: m}
	for range 10 + g.rng.IntN(50) {
		g.last = g.step()
		script.steps = append(script.steps, g.last)
	}
	return script
}

type scriptGenerator struct {
	modelSetup
	rng  *rand.Rand
	last modelStep
}

// Actions that run concurrently with operations, and those that do not.
var (
	modelActions = []string{
		"commit", "commit", "foldover", "snapshot", "incremental", "incremental", "index",
		"lookup", "scan", "grow", "memory", "drop", "iterate",
	}
	modelBreaks = []string{"crash", "crash", "crash", "close", "recover", "uncheckpoint", "tick", "tick", "verify", "verify", "cursor", "cursor", "sessions", "clear"}
)

func (g *scriptGenerator) step() modelStep {
	var s modelStep
	switch n := g.rng.IntN(10); {
	case len(g.last.batches) > 0 && g.last.action != "" && n < 3: // checks the durability of the last action
		s.action, s.argument = []string{"crash", "recover", "verify"}[g.rng.IntN(3)], g.rng.Int64N(1000)
		return s
	case n < 3: // one session alone
		s.batches = []modelBatch{g.batch(g.rng.IntN(g.sessions), 7)}
		return s
	case n < 5: // one action alone
		s.action = modelActions[g.rng.IntN(len(modelActions))]
	case n < 8: // everything concurrently
		s.action = modelActions[g.rng.IntN(len(modelActions))]
		for i := range g.sessions {
			s.batches = append(s.batches, g.batch(i, 10))
		}
	default:
		s.action, s.argument = modelBreaks[g.rng.IntN(len(modelBreaks))], g.rng.Int64N(1000)
		if g.rng.IntN(4) == 0 && (s.action == "crash" || s.action == "recover" || s.action == "uncheckpoint") {
			s.cut = g.soon()
		}
		return s
	}
	s.argument = g.rng.Int64N(1000)
	switch g.rng.IntN(10) {
	case 0, 1:
		s.cut = g.soon()
	case 2:
		s.fail = g.soon()
	case 3:
		s.sick = true
	}
	return s
}

// soon returns a number of device operations.
func (g *scriptGenerator) soon() int { return 1 + g.rng.IntN(1<<(2+g.rng.IntN(6))) }

// batch returns a batch of less than 1 << most operations.
func (g *scriptGenerator) batch(session, most int) modelBatch {
	b := modelBatch{session: session, mode: []string{"plain", "do", "stream"}[g.rng.IntN(3)]}
	if g.rng.IntN(5) == 0 {
		b.mode = "locked-" + b.mode
	}
	for range g.rng.IntN(1 << (2 + g.rng.IntN(most-1))) {
		b.ops = append(b.ops, g.op(session))
	}
	return b
}

// modelMix is the distribution of kinds of operations.
const modelMix = "uuuuuurrrrrddmmmpppiikxccs"

func (g *scriptGenerator) op(session int) modelOp {
	o := modelOp{kind: modelMix[g.rng.IntN(len(modelMix))], key: g.rng.Uint64N(g.keys)}
	sessions := uint64(g.sessions)
	switch o.kind {
	case modelCount, modelSum:
		o.key = g.keys + g.rng.Uint64N(g.counters)
	default: // each session has separate keys
		o.key = o.key/sessions*sessions + uint64(session)
	}
	switch o.kind {
	case modelUpsert, modelInsert, modelModify, modelInPlace, modelCount:
		o.seed = 1 + g.rng.Uint64N(10_000)
	}
	switch o.kind {
	case modelUpsert, modelInsert, modelModify:
		if g.rng.IntN(6) == 0 {
			o.ttl = 1 + g.rng.Int64N(2000)
		}
	}
	o.word = g.rules.byWord(o) && g.rng.IntN(2) == 0
	return o
}
