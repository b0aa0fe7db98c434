package kv

import (
	"fmt"
	"strconv"
	"strings"
)

// modelStep is a line of a script: its parts run concurrently. Its text is the parts with " |
// " between them:
//
//	cut 7         power fails at the device's seventh operation from here
//	fail 7        only that operation fails
//	sick          reads and syncs fail at random
//	snapshot 0    an action: see player.act and player.alone
//	0 do r1 u2:3  operations of session 0, in mode plain, do or stream; locked-do,
//	              …: with the keys locked
type modelStep struct {
	cut, fail int
	sick      bool
	action    string
	argument  int64
	batches   []modelBatch // of different sessions
}

// modelBatch is the part of one session in a step.
type modelBatch struct {
	session int
	mode    string
	ops     []modelOp
}

func (b modelBatch) String() string {
	s := fmt.Sprintf("%d %s", b.session, b.mode)
	for _, o := range b.ops {
		s += " " + o.String()
	}
	return s
}

func (s modelStep) String() string {
	var parts []string
	if s.cut > 0 {
		parts = append(parts, fmt.Sprintf("cut %d", s.cut))
	}
	if s.fail > 0 {
		parts = append(parts, fmt.Sprintf("fail %d", s.fail))
	}
	if s.sick {
		parts = append(parts, "sick")
	}
	if s.action != "" {
		parts = append(parts, fmt.Sprintf("%s %d", s.action, s.argument))
	}
	for _, b := range s.batches {
		parts = append(parts, b.String())
	}
	return strings.Join(parts, " | ")
}

// modelScript is a whole run.
type modelScript struct {
	setup modelSetup
	steps []modelStep
}

func (s modelScript) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", s.setup.seed)
	for _, step := range s.steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}

// parseScript is the inverse of String.
func parseScript(text string) (modelScript, error) {
	var script modelScript
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if seed, ok := strings.CutPrefix(line, "seed "); ok {
			n, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				return script, err
			}
			script.setup = newModelSetup(n)
			continue
		}
		step, err := parseStep(line)
		if err != nil {
			return script, fmt.Errorf("line %d: %w", n+1, err)
		}
		script.steps = append(script.steps, step)
	}
	if script.setup.seed == 0 {
		return script, fmt.Errorf("a script begins with its seed")
	}
	return script, nil
}

func parseStep(line string) (step modelStep, err error) {
	for part := range strings.SplitSeq(line, " | ") {
		words := strings.Fields(part)
		switch {
		case len(words) == 1 && words[0] == "sick":
			step.sick = true
		case len(words) >= 2 && words[0][0] >= '0' && words[0][0] <= '9':
			b := modelBatch{mode: words[1]}
			b.session, err = strconv.Atoi(words[0])
			for _, word := range words[2:] {
				o, e := parseModelOp(word)
				if e != nil {
					return step, e
				}
				b.ops = append(b.ops, o)
			}
			step.batches = append(step.batches, b)
		case len(words) == 2 && words[0] == "cut":
			step.cut, err = strconv.Atoi(words[1])
		case len(words) == 2 && words[0] == "fail":
			step.fail, err = strconv.Atoi(words[1])
		case len(words) == 2:
			step.action = words[0]
			step.argument, err = strconv.ParseInt(words[1], 10, 64)
		default:
			err = fmt.Errorf("what is %q?", part)
		}
		if err != nil {
			return step, err
		}
	}
	return step, nil
}

func parseModelOp(word string) (o modelOp, err error) {
	text, byWord := strings.CutPrefix(word, "w")
	if text == "" {
		return o, fmt.Errorf("operation %q", word)
	}
	o.word, o.kind = byWord, text[0]
	rest, ttl, hasTTL := strings.Cut(text[1:], "@")
	key, seed, hasSeed := strings.Cut(rest, ":")
	o.key, err = strconv.ParseUint(key, 10, 64)
	if err == nil && hasSeed {
		o.seed, err = strconv.ParseUint(seed, 10, 64)
	}
	if err == nil && hasTTL {
		o.ttl, err = strconv.ParseInt(ttl, 10, 64)
	}
	if err != nil {
		err = fmt.Errorf("operation %q: %w", word, err)
	}
	return o, err
}
