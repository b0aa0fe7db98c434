package resp

import (
	linked "container/list"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/lua"
)

// Bounds of the scripts that a server keeps. The one that was not used for longest is dropped
// first; its clients get NOSCRIPT and send it again.
const (
	maxScripts     = 10_000
	maxScriptBytes = 64 << 20
	idleScripts    = 16 // interpreters that wait for a script
)

// busyAfter is the default time in milliseconds after which a script is busy: clients that need its
// keys get an error instead of waiting, and SCRIPT KILL ends it.
const busyAfter = 5000

// script is a script that was compiled.
type script struct {
	sha      string
	compiled *lua.Script
	shebang  bool // it has the line that says its flags
	readOnly bool // it has the flag no-writes
	bytes    int
	habit    atomic.Uint32 // a scriptHabit
}

// scriptHabit is what is known about the keys that a script uses. It decides how it is run, see
// scriptRun.
type scriptHabit uint32

const (
	habitUnknown  scriptHabit = iota // it has not ended yet
	habitDeclares                    // so far it used no keys but those that it declared
	habitRoams                       // it has used other keys
)

// scriptCache has the scripts of a server, compiled, and those that run.
type scriptCache struct {
	busyAfter atomic.Int64 // milliseconds; 0 or less: never
	busyAlone atomic.Int32 // busy scripts that have the store alone

	mu      sync.Mutex                 // guards the fields below
	bySHA   map[string]*linked.Element // of *script
	used    linked.List                // the one that was used last is in front
	bytes   int                        // of the scripts' sources
	idle    []*interpreter
	running map[*scriptRun]struct{}
}

func (s *scriptCache) init() {
	s.busyAfter.Store(busyAfter)
	s.bySHA, s.running = make(map[string]*linked.Element), make(map[*scriptRun]struct{})
}

func shaOf(source []byte) string {
	sum := sha1.Sum(source)
	return hex.EncodeToString(sum[:])
}

// find returns the script with this SHA-1 in lower case, or nil.
func (s *scriptCache) find(sha string) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.bySHA[sha]
	if e == nil {
		return nil
	}
	s.used.MoveToFront(e)
	return e.Value.(*script)
}

// load returns the script with this source. It compiles one that is new.
func (s *scriptCache) load(source []byte) (*script, error) {
	sha := shaOf(source)
	if known := s.find(sha); known != nil {
		return known, nil
	}
	made, err := newScript(sha, string(source))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.bySHA[sha]; e != nil { // another client was faster
		return e.Value.(*script), nil
	}
	s.bySHA[sha] = s.used.PushFront(made)
	s.bytes += made.bytes
	for len(s.bySHA) > maxScripts || s.bytes > maxScriptBytes {
		last := s.used.Remove(s.used.Back()).(*script)
		delete(s.bySHA, last.sha)
		s.bytes -= last.bytes
	}
	return made, nil
}

// flush drops all scripts. Those that run go on.
func (s *scriptCache) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.bySHA)
	s.used.Init()
	s.bytes, s.idle = 0, nil
}

// stats returns the number of scripts and the bytes of their sources.
func (s *scriptCache) stats() (n, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bySHA), s.bytes
}

// scriptFlags are the flags of a script's first line. All but no-writes are about states that this
// server does not have.
var scriptFlags = []string{"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"}

// newScript compiles a script. The error is the reply without its code.
func newScript(sha, source string) (*script, error) {
	s := &script{sha: sha, bytes: len(source)}
	if strings.HasPrefix(source, "#!") {
		line, _, ok := strings.Cut(source, "\n")
		if !ok {
			return nil, errors.New("Invalid script shebang") //nolint:staticcheck // Redis's words
		}
		if err := s.parseShebang(line); err != nil {
			return nil, err
		}
		source = source[len(line):]
	}
	compiled, err := lua.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("Error compiling script (new function): %w", err)
	}
	s.compiled = compiled
	return s, nil
}

func (s *script) parseShebang(line string) error {
	words := strings.Fields(line)
	if words[0] != "#!lua" {
		return fmt.Errorf("Unexpected engine in script shebang: %s", words[0]) //nolint:staticcheck // Redis's words
	}
	s.shebang = true
	for _, word := range words[1:] {
		flags, ok := strings.CutPrefix(word, "flags=")
		if !ok {
			return fmt.Errorf("Unknown lua shebang option: %s", word) //nolint:staticcheck // Redis's words
		}
		for flag := range strings.SplitSeq(flags, ",") {
			if flag == "" {
				continue
			}
			if !slices.Contains(scriptFlags, flag) {
				return fmt.Errorf("Unexpected flag in script shebang: %s", flag) //nolint:staticcheck // Redis's words
			}
			s.readOnly = s.readOnly || flag == "no-writes"
		}
	}
	return nil
}

// begin lends an interpreter for a run, and notes that it runs.
func (s *scriptCache) begin(run *scriptRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[run] = struct{}{}
	if n := len(s.idle); n > 0 {
		run.in = s.idle[n-1]
		s.idle = s.idle[:n-1]
	}
}

// end takes an interpreter back, unless it is nil.
func (s *scriptCache) end(run *scriptRun, in *interpreter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, run)
	if in != nil && len(s.idle) < idleScripts {
		s.idle = append(s.idle, in)
	}
}

// kill ends the busy scripts that have changed nothing. busy is the number of busy ones.
func (s *scriptCache) kill() (killed, busy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for run := range s.running {
		if run.busy.Load() {
			busy++
			if run.killed.CompareAndSwap(runGoes, runKilled) {
				killed++
			}
		}
	}
	return killed, busy
}

// isBusy reports whether a script has run for too long.
func (s *scriptCache) isBusy(began time.Time) bool {
	limit := s.busyAfter.Load()
	return limit > 0 && time.Since(began) > time.Duration(limit)*time.Millisecond
}
