package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// The test of this file kills a process that serves a store; durability_test.go tests the waits
// for commits in this process.

// Environment variables of the process that is killed: the store to serve, its durability, and
// its number of loops.
const (
	servedDir     = "REDYKV_TEST_SERVED_DIR"
	servedPromise = "REDYKV_TEST_SERVED_PROMISE"
	servedLoops   = "REDYKV_TEST_SERVED_LOOPS"
)

// TestAnsweredWritesSurvive repeatedly kills a server. Random pipelines of all commands write
// to it, mixed with reads so large that replies are sent in the middle of a pipeline, while
// the client reads slowly. After a restart, every answered command has had its effect, as far
// as promised, and the state is that after some prefix of the commands.
func TestAnsweredWritesSurvive(t *testing.T) {
	if dir := os.Getenv(servedDir); dir != "" {
		serveUntilKilled(t, dir)
		return
	}
	for promise, rounds := range map[Durability]int{DurabilityAlways: 12, DurabilityEverySecond: 5} {
		rounds = testrun.Scale(2, rounds, 10*rounds)
		if machine.RaceDetector && !testrun.Soak() { // the processes that are killed are what takes long
			rounds = (rounds + 2) / 3
		}
		for _, loops := range []int{-1, 1} {
			t.Run(fmt.Sprint(promise, loops), func(t *testing.T) {
				_, addr := start(t, inMemory(), Options{})
				random := rand.New(rand.NewPCG(testrun.Seed(t, 0), uint64(loops)<<8+uint64(promise)))
				k := &killing{
					t: t, dir: t.TempDir(), promise: promise, loops: loops,
					commander: commander{random}, model: dial(t, addr), seen: dial(t, addr),
				}
				k.restart()
				for round := range rounds {
					k.round(round)
				}
				k.kill()
			})
		}
	}
}

// killing is a served store that is killed, and a model: a server that gets the commands one
// at a time.
type killing struct {
	t *testing.T
	commander
	dir     string
	promise Durability
	loops   int
	model   *peer
	seen    *peer // another connection to the model

	process *exec.Cmd
	ask     io.Writer
	said    *bufio.Reader
	addr    string
}

// restart starts the served process.
func (k *killing) restart() {
	k.process = exec.Command(os.Args[0], "-test.run=^TestAnsweredWritesSurvive$")
	k.process.Env = append(os.Environ(), servedDir+"="+k.dir, servedPromise+"="+k.promise.String(), servedLoops+"="+strconv.Itoa(k.loops))
	k.process.Stderr = os.Stderr
	in, err := k.process.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := k.process.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.process.Start(); err != nil {
		k.t.Fatal(err)
	}
	process := k.process
	k.t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	k.ask, k.said = in, bufio.NewReader(out)
	k.addr = k.line()
}

func (k *killing) line() string {
	line, err := k.said.ReadString('\n')
	if err != nil {
		k.t.Fatalf("the served process: %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// settle waits until the server has made all commits that it considers necessary.
func (k *killing) settle() {
	if _, err := io.WriteString(k.ask, "settle\n"); err != nil {
		k.t.Fatal(err)
	}
	k.line()
}

// kill ends the process like kill -9.
func (k *killing) kill() {
	if err := k.process.Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	_ = k.process.Wait() // an error is expected
}

// serveUntilKilled is the main function of the served process.
func serveUntilKilled(t *testing.T, dir string) {
	var promise Durability
	loops, err := strconv.Atoi(os.Getenv(servedLoops))
	if err := errors.Join(err, promise.UnmarshalText([]byte(os.Getenv(servedPromise)))); err != nil {
		t.Fatal(err)
	}
	dev, err := ssdtier.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, err := kv.Open(kv.Options{Device: dev, Memory: 4 << 20, Records: 1 << 10, CountKeys: true, KeyClass: KeyClass, Inner: Inner, Orphans: Orphans, Logger: quietly})
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	s := NewServer(st, Options{Durability: promise, Loops: loops, Logger: quietly})
	go func() { _ = s.Serve(ln) }()
	fmt.Println(ln.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		testrun.Until(t, "all commits are made", func() bool {
			c := s.committer
			c.mu.Lock()
			defer c.mu.Unlock()
			c.forget()
			return len(c.atRisk) == 0
		})
		fmt.Println("settled")
	}
	os.Exit(1) // the parent has gone
}

// pipelines returns commands to be sent at once. Each pipeline begins in database 0, outside of a
// transaction. A pipeline with as many large reads as a batch has operations makes the
// server send replies before the next command has taken effect; with huge values, the sending
// blocks until the client reads.
func (k *killing) pipelines() (all [][][]string) {
	all = [][][]string{{
		{"SELECT", "0"}, {"FLUSHALL"}, {"SET", "dumped", k.value()},
		{"SET", "large", strings.Repeat("v", 4<<10)}, {"SET", "huge", strings.Repeat("v", largeValues-100)},
	}}
	for n := 4 + k.IntN(4); n > 0; n-- {
		commands := [][]string{{"SELECT", "0"}}
		key, reads := k.one("large", "large", "large", "huge"), maxBatch
		if k.IntN(4) == 0 {
			reads = 1 + k.IntN(2*maxBatch)
		}
		for range reads {
			commands = append(commands, []string{"GET", key})
		}
		for wanted := 1 + k.IntN(4)/3; wanted > 0; {
			switch command := k.command(); strings.ToLower(command[0]) {
			case "reset", "flushall", "flushdb", "slowlog", "client", "watch", "multi":
			case "get", "mget", "strlen": // replaced by a write
				commands = append(commands, []string{"RESTORE", k.key(), "0", k.dump(), "REPLACE"})
				wanted--
			case "eval", "eval_ro":
				commands = append(commands, []string{
					"EVAL", "redis.call('SET', KEYS[1], ARGV[1]) redis.call('HSET', KEYS[2], 'f', ARGV[1]) return redis.call('INCR', KEYS[3])", "3",
					k.key(), k.key(), k.key(), k.value(),
				})
				wanted--
			case "exec":
				commands = append(commands, []string{"MULTI"}, []string{"SET", k.key(), k.value()}, []string{"INCR", k.key()}, []string{"EXEC"})
				wanted--
			default:
				commands = append(commands, command)
				wanted--
			}
		}
		all = append(all, commands)
	}
	return all
}

// dump returns a payload for RESTORE.
func (k *killing) dump() string {
	if got := k.model.do("SET", "restored", k.value()); got != "+OK" {
		k.t.Fatal(got)
	}
	dump, err := strconv.Unquote(k.model.do("DUMP", "restored"))
	if err != nil {
		k.t.Fatal(err)
	}
	return dump
}

// state returns the number and the values of the keys of each database, and which of them expire.
func (k *killing) state(p *peer) string {
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "key with\r\nlines", "", mark + "e", mark, mark + "d\x01a", "dumped", "large"}
	var all strings.Builder
	for db := range 3 {
		ask := encode("SELECT", strconv.Itoa(db)) + encode("DBSIZE")
		for _, key := range keys {
			ask += encode("DUMP", key) + encode("HGETALL", key) + encode("SMEMBERS", key) + encode("OBJECT", "ENCODING", key) + encode("PTTL", key)
		}
		p.send(ask)
		fmt.Fprintf(&all, "database %d: %s %s\n", db, p.reply(), p.reply())
		for _, key := range keys {
			dump, hash, set, encoding, ttl := p.reply(), p.reply(), p.reply(), p.reply(), p.reply()
			if hash[0] != '-' && hash != "[]" { // the order of large ones is random
				dump = encoding + sorted(hash)
			} else if set[0] != '-' && set != "[]" {
				dump = encoding + sorted(set)
			}
			if ttl > ":0" {
				ttl = "expires"
			}
			fmt.Fprintf(&all, "%q: %s %s\n", key, dump, ttl)
		}
	}
	return all.String()
}

// round runs pipelines until the kill, then compares. The client does not read before the
// server has committed another client's write, and may stop at any point.
func (k *killing) round(round int) {
	k.model.goOn()
	k.seen.goOn()
	pipelines := k.pipelines()
	commands := slices.Concat(pipelines...)
	stop := len(commands)
	if k.IntN(3) == 0 {
		stop = len(pipelines[0]) + k.IntN(stop-len(pipelines[0]))
	}
	p, other := dial(k.t, k.addr), dial(k.t, k.addr)
	answered := 0
	for _, pipeline := range pipelines {
		var all strings.Builder
		for _, command := range pipeline {
			all.WriteString(encode(command...))
		}
		p.send(all.String())
		if k.promise == DurabilityEverySecond && pipeline[0][len(pipeline[0])-1] == "huge" {
			if got := other.do("SET", "other", "1"); got != "+OK" {
				k.t.Fatal(got)
			}
			k.settle()
		}
		for _, command := range pipeline {
			if answered == stop {
				break
			}
			if got, err := readReply(p.in); err != nil {
				k.t.Fatalf("round %d: reply to %q: %v", round, command, err)
			} else if answered < len(pipelines[0]) && got != "+OK" {
				k.t.Fatalf("round %d: %q: %s", round, command, got)
			}
			answered++
		}
		if answered == stop {
			break
		}
	}
	k.settle()
	k.kill()
	k.restart()
	got := k.state(dial(k.t, k.addr))
	var states []string
	for i, command := range commands {
		if command[0] != "GET" {
			_ = k.model.do(command...)
		}
		if i == stop-1 || i >= stop && command[0] != "GET" {
			states = append(states, k.state(k.seen))
		}
	}
	if !slices.Contains(states, got) {
		testrun.Wrong(k.t, "round %d: after %d answers, the last ones to %.80q:\n%s\nwant\n%s", round, stop, commands[max(stop-3, 0):stop], got, states[0])
	}
}
