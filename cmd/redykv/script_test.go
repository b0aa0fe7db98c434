package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/browsertest"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
)

// programs are what this test binary is under another name: the redykv command, for scripts
// and for the local allocator, and helpers of tests.
var programs = map[string]func(){"redykv": func() {
	calibrates = false
	main()
}}

func TestMain(m *testing.M) { testscript.Main(m, programs) }

// TestScript runs testdata/script/*.txt. They have these commands in addition to testscript's:
//
//	start NAME REGEXP PROGRAM [ARG...]  start a process and wait until a line of its
//	                                    standard output matches; the first group, if
//	                                    any, becomes $NAME, and a named one its name
//	end NAME [CODE]                     interrupt it and check its exit code
//	                                    (testscript's stop ends the script)
//	interrupt NAME                      interrupt it and continue
//	ends NAME [CODE]                    wait for its end and check its exit code
//	kill9 NAME                          kill it
//	[!] killvm ID                       kill the cache server with that id, by whatever
//	                                    process it was started; !: there is none
//	endedvm ID                          wait until no cache server has that id
//	post STATUS URL BODY FILE           POST JSON, check the status, save the answer
//	posts STATUS URL BODY FILE          the same, until it has that status
//	get URL FILE                        GET, check for status 200, save the answer
//	json VAR FILE PATH                  set $VAR from an answer, e.g. grants.0.vm.id
//	watch MANAGER CACHE FILE            wait for the next event and save it
//	roundtrip MANAGER CAPACITY C S B Q  create a cache, write, read, delete it
//	moves TRANSPORT                     make a cache leave its server, and lose it, during
//	                                    writes and reads
//	survives TRANSPORT [static]         kill the manager of a cache in use, and restart
//	                                    it; static: its servers are started by hand
//	quiet                               check that the last program wrote nothing on standard
//	                                    error but warnings of a busy machine
//	exits STDERR-REGEXP CODE PROGRAM... run a program that must end with that code and
//	                                    one line on standard error, but for such warnings
//	refusing NAME                       set $NAME to an address that refuses connections
//	flip FILE OFFSET                    flip the highest bit of a byte
//	crowd ADDR N ADMITTED               connect a writer to a server of the Redis protocol, then
//	                                    N more clients, of which it admits some; all are told, and
//	                                    the writer's writes are durable
//	crashes DURABILITY [FLAG...]        kill a server of that durability during writes,
//	                                    and check the remaining data
//	outgrows TRANSPORT                  write more data to a server than its memory, with
//	                                    a Redy cache of that transport, and check all
//	certificate NAME                    make NAME.cert, self-signed, and NAME.key
//	redis ADDR REPLY-REGEXP ARG...      send a command to a server of the Redis protocol,
//	                                    and match the lines of its reply
//	rediss CA CERT ADDR REGEXP ARG...   the same over TLS, to a server signed by CA.cert,
//	                                    with the client certificate CERT.cert; -: none
//	becomes ADDR REPLY-REGEXP ARG...    repeat a command until the reply matches
//	freeze NAME                         stop a process
//	thaw NAME                           continue it
//	caches MANAGER N                    wait until a manager has N caches
//	relay NAME ADDR                     set $NAME to an address that forwards connections
//	                                    to ADDR
//	cut NAME                            make a relay hold back all bytes
//	heal NAME                           make it forward again
//	leads VAR NAME...                   wait until one of the started managers leads; $VAR
//	                                    becomes its name, and $VAR_URL its address
//	browse URL                          open a page in Chromium
//	signin TOKEN                        give it a token
//	sees REGEXP                         wait until the page's text matches
//	notified STATE                      wait until $NOTIFY_SOCKET gets STATE; without
//	                                    STATE: make the socket and set the variable
//
// $EXAMPLE is the Python program of package redytier/proxy.
//
// It also has the conditions [transport:NAME], if that fabric is built in, [chromium], if that is
// installed, [race], under the race detector, and [all], if tests run that take long (testrun.All).
func TestScript(t *testing.T) { testscript.Run(t, scripts("script")) }

// scripts returns the parameters of the scripts in a folder of testdata.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Setup: func(env *testscript.Env) error {
			env.Values[processesKey{}] = make(processes)
			env.Values[notifyKey{}] = new(notifySocket)
			env.Values[relaysKey{}] = make(map[string]*relay)
			env.Values[browserKey{}] = &browser{t: env.T()}
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home")) // for the managers' records
			example, err := filepath.Abs("../../redytier/proxy/example.py")
			env.Setenv("EXAMPLE", example)
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "all":
				return testrun.All(), nil
			case "race":
				return machine.RaceDetector, nil
			case "chromium":
				return browsertest.Path() != "", nil
			case "halves": // of this process's processors
				_, _, err := affinity.Halves()
				return err == nil, nil
			}
			name, ok := strings.CutPrefix(cond, "transport:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return slices.Contains(transport.Usable(), name), nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start":       cmdStart,
			"end":         cmdEnd,
			"interrupt":   cmdInterrupt,
			"hangup":      cmdHangup,
			"ends":        cmdEnds,
			"kill9":       cmdKill,
			"killvm":      cmdKillVM,
			"endedvm":     cmdEndedVM,
			"post":        cmdPost,
			"posts":       cmdPosts,
			"quiet":       cmdQuiet,
			"get":         cmdGet,
			"json":        cmdJSON,
			"watch":       cmdWatch,
			"roundtrip":   cmdRoundTrip,
			"moves":       cmdMoves,
			"survives":    cmdSurvives,
			"exits":       cmdExits,
			"refusing":    cmdRefusing,
			"flip":        cmdFlip,
			"redis":       cmdRedis,
			"rediss":      cmdRedisTLS,
			"becomes":     cmdBecomes,
			"browse":      cmdBrowse,
			"signin":      cmdSignIn,
			"sees":        cmdSees,
			"freeze":      cmdFreeze,
			"thaw":        cmdThaw,
			"caches":      cmdCaches,
			"relay":       cmdRelay,
			"cut":         cmdCut,
			"heal":        cmdHeal,
			"notified":    cmdNotified,
			"crashes":     cmdCrashes,
			"outgrows":    cmdOutgrows,
			"certificate": cmdCertificate,
			"leads":       cmdLeads,
			"crowd":       cmdCrowd,
			"elsewhere":   cmdElsewhere,
		},
	}
}

// scriptTimeout bounds each wait of a script.
var scriptTimeout = testrun.Patience(time.Minute)

// scenarioTimeout bounds a command of several waits.
var scenarioTimeout = 10 * scriptTimeout

type processesKey struct{}

// processes has the processes that a script started, by name.
type processes map[string]*exec.Cmd

func want(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

// command returns a command with the script's directory and environment.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if file := filepath.Join(dir, args[0]); args[0] == filepath.Base(args[0]) {
			if _, err := os.Stat(file); err == nil {
				path = file
				break
			}
		}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "WORK", "NOTIFY_SOCKET", access.TokenEnv} {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "start NAME REGEXP PROGRAM [ARG...]")
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	cmd := command(ts, args[2:])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Value(processesKey{}).(processes)[args[0]] = cmd
	ts.Defer(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		ts.Logf("%s said:\n%s", args[0], stderr.String())
	})
	timer := time.AfterFunc(scriptTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if m := re.FindStringSubmatch(lines.Text()); m != nil {
			if len(m) > 1 {
				ts.Setenv(args[0], m[1])
				for i, name := range re.SubexpNames() {
					if name != "" {
						ts.Setenv(name, m[i])
					}
				}
			}
			return
		}
	}
	ts.Fatalf("%s ended without a line like %s", args[0], args[1])
}

// started removes a process from the table.
func started(ts *testscript.TestScript, name string) *exec.Cmd {
	all := ts.Value(processesKey{}).(processes)
	cmd := all[name]
	if cmd == nil {
		ts.Fatalf("%s was not started", name)
	}
	delete(all, name)
	return cmd
}

// exitCode waits for a process. A process that does not end fails the script.
func exitCode(ts *testscript.TestScript, cmd *exec.Cmd) int {
	timer := time.AfterFunc(scriptTimeout, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the exit code has the result
	if !timer.Stop() {
		ts.Fatalf("%v does not end", cmd.Args)
	}
	return cmd.ProcessState.ExitCode()
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	cmdInterrupt(ts, neg, args)
	cmdEnds(ts, neg, args)
}

func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "interrupt NAME")
	send(ts, args[0], syscall.SIGTERM)
}

func cmdHangup(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "hangup NAME")
	send(ts, args[0], syscall.SIGHUP)
}

// send sends a signal to a process of a script.
func send(ts *testscript.TestScript, name string, signal syscall.Signal) {
	cmd := ts.Value(processesKey{}).(processes)[name]
	if cmd == nil {
		ts.Fatalf("%s was not started", name)
	}
	ts.Check(cmd.Process.Signal(signal))
}

func cmdEnds(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "ends NAME [CODE]")
	code := 0
	if len(args) > 1 {
		var err error
		code, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	cmd := started(ts, args[0])
	if got := exitCode(ts, cmd); got != code {
		ts.Fatalf("%s: exit code %d, want %d", args[0], got, code)
	}
}

// cmdRefusing binds a port without listening, so that no other process can listen there.
func cmdRefusing(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "refusing NAME")
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	ts.Check(err)
	ts.Defer(func() { _ = syscall.Close(fd) })
	ts.Check(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port))
}

func cmdKill(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "kill9 NAME")
	cmd := started(ts, args[0])
	ts.Check(cmd.Process.Kill())
	exitCode(ts, cmd)
}

func cmdKillVM(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, false, args, 1, "[!] killvm ID")
	switch pid := pidOfVM(ts, args[0]); {
	case neg && pid != 0:
		ts.Fatalf("process %d has --vm-id %s", pid, args[0])
	case !neg && pid == 0:
		ts.Fatalf("no process has --vm-id %s", args[0])
	case !neg:
		ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	}
}

// pidOfVM returns the process of a VM, or 0.
func pidOfVM(ts *testscript.TestScript, id string) int {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, file := range lines {
		// A process may end after the listing.
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte("\x00--vm-id\x00"+id+"\x00")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			ts.Check(err)
			return pid
		}
	}
	return 0
}

func cmdEndedVM(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "endedvm ID")
	for until := time.Now().Add(scriptTimeout); pidOfVM(ts, args[0]) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			ts.Fatalf("VM %s has not ended", args[0])
		}
	}
}

func cmdPost(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 4, "post STATUS URL BODY FILE")
	if status := post(ts, args[1:]); status != args[0] {
		ts.Fatalf("status %s, want %s", status, args[0])
	}
}

func cmdPosts(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 4, "posts STATUS URL BODY FILE")
	again(ts, func() (string, bool) {
		status := post(ts, args[1:])
		return "status " + status, status == args[0]
	})
}

// post posts a body to a URL, saves the answer in a file, and returns its status.
func post(ts *testscript.TestScript, args []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, args[0], strings.NewReader(args[1]))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(resp.Body.Close())
	ts.Logf("%s: %s", resp.Status, body)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), body, 0o600))
	return strconv.Itoa(resp.StatusCode)
}

// busyMachine matches warnings that say that the machine delayed a process.
var busyMachine = regexp.MustCompile(`level=WARN msg="(manager was delayed|server is suspected)`)

func cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 0, "quiet")
	if text := calm(ts.ReadFile("stderr")); text != "" {
		ts.Fatalf("standard error has: %s", text)
	}
}

// calm returns what a program wrote on standard error, but for warnings of a busy machine.
func calm(stderr string) (text string) {
	for line := range strings.Lines(stderr) {
		if !busyMachine.MatchString(line) {
			text += line
		}
	}
	return text
}

func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "get URL FILE")
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	ts.Check(err)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", resp.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o600))
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "json VAR FILE PATH")
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &v))
	for _, step := range strings.Split(args[2], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				ts.Fatalf("%s: no element %q of %d", args[2], step, len(at))
			}
			v = at[i]
		default:
			ts.Fatalf("%s: nothing at %q", args[2], step)
		}
	}
	text := fmt.Sprint(v)
	if _, ok := v.(map[string]any); ok {
		b, err := json.Marshal(v)
		ts.Check(err)
		text = string(b)
	}
	ts.Setenv(args[0], text)
}

func cmdWatch(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "watch MANAGER CACHE FILE")
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	stream, err := access.Dial(args[0]).Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{CacheId: args[1]}))
	ts.Check(err)
	if !stream.Receive() {
		ts.Fatalf("watch ended: %v", stream.Err())
	}
	e := stream.Msg()
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), fmt.Appendf(nil, "%d %v %s: %s\n", e.GetSequence(), e.GetKind(), e.GetVmId(), e.GetReason()), 0o600))
	cancel()
	_ = stream.Close() // it returns the context's error
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 3, "exits STDERR-REGEXP CODE PROGRAM [ARG...]")
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	code, err := strconv.Atoi(args[1])
	ts.Check(err)
	cmd := command(ts, args[2:])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	got := exitCode(ts, cmd)
	text := calm(stderr.String())
	if got != code || !re.MatchString(text) || strings.Count(text, "\n") != 1 {
		ts.Fatalf("exit code %d, want %d, and one line like %q:\n%s", got, code, args[0], text)
	}
}

func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "flip FILE OFFSET")
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	if at < 0 || at >= len(b) {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
	b[at] ^= 0x80
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}
