package fabrictest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

const childVariable = "REDYKV_FABRICTEST_CHILD"

// ServeChild serves a region until the process is killed, if this test binary was started by
// RunKilledPeer or a similar test. Otherwise it returns at once. A TestMain calls it first.
func ServeChild(open Open) {
	if os.Getenv(childVariable) == "" {
		return
	}
	fmt.Fprintln(os.Stderr, serve(open()))
	os.Exit(1)
}

// serve accepts connections until an error.
func serve(p fabric.Provider) error {
	l, err := p.Listen("", 64)
	if err != nil {
		return err
	}
	r, err := p.Alloc(1 << 20)
	if err != nil {
		return err
	}
	copy(r.Bytes(), "from the child")
	token := r.Token()
	fmt.Println(l.Addr(), hex.EncodeToString(token[:]))
	for {
		request, err := l.Accept(context.Background())
		if err != nil {
			return err
		}
		if _, err := request.Accept(nil, fabric.ReadWrite); err != nil {
			return err
		}
	}
}

// RunKilledPeer kills a child process with SIGKILL while reads from it are pending, and checks
// that all operations end with fabric.ErrDisconnected.
func RunKilledPeer(t *testing.T, open Open) {
	c := startChild(t, open)
	check(t, c.process.Kill())
	readUntilGone(t, c.q, c.r)
	wantError(t, errorOf(c.q.Import(deadline(t), c.token)), fabric.ErrDisconnected, "import from a killed peer")
}

// RunStoppedPeer reads and writes the memory of a stopped child process.
func RunStoppedPeer(t *testing.T, open Open) {
	c := startChild(t, open)
	check(t, c.process.Signal(syscall.SIGSTOP))
	write(t, c.q, []byte("into"), c.r, 0)
	readText(t, c.q, c.r, "into the child")
}

// RunSilentPeer stops a child process, whose kernel continues to answer for it, and checks
// that pending operations and an idle connection end with fabric.ErrDisconnected. open's
// providers must have a timeout for silent peers well below a minute.
func RunSilentPeer(t *testing.T, open Open) {
	c := startChild(t, open)
	idle, err := c.provider.Dial(deadline(t), c.addr, nil, 64)
	check(t, err)
	check(t, c.process.Signal(syscall.SIGSTOP))
	readUntilGone(t, c.q, c.r)
	for idle.Err() == nil {
		if err := idle.Wait(deadline(t)); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
			t.Fatalf("a silent peer without pending operations: %v", err)
		}
	}
	wantError(t, errorOf(idle.Import(deadline(t), c.token)), fabric.ErrDisconnected, "import from a silent peer")
	// The peer does not know that its connection is closed, and detects it once it runs again.
	check(t, c.process.Signal(syscall.SIGCONT))
	q, err := c.provider.Dial(deadline(t), c.addr, nil, 64)
	check(t, err)
	r, err := q.Import(deadline(t), c.token)
	check(t, err)
	readText(t, q, r, "from the child")
}

// readText reads the beginning of r, which must be want.
func readText(t *testing.T, q fabric.QueuePair, r fabric.Remote, want string) {
	t.Helper()
	b := make([]byte, len(want))
	read(t, q, b, r, 0)
	if string(b) != want {
		t.Fatalf("read %q, want %q", b, want)
	}
}

// child is a process that serves a region, and a queue pair to it.
type child struct {
	process  *os.Process
	provider fabric.Provider // connects to the process
	addr     string
	q        fabric.QueuePair
	r        fabric.Remote
	token    fabric.Token
}

func startChild(t *testing.T, open Open) child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	addr, hexToken, _ := strings.Cut(strings.TrimSpace(line), " ")
	var token fabric.Token
	_, err = hex.Decode(token[:], []byte(hexToken))
	check(t, err)
	if i := strings.LastIndex(addr, "/"); i > 0 {
		t.Cleanup(func() { _ = os.RemoveAll(addr[:i]) }) // a killed listener leaves its directory
	}

	p := open()
	t.Cleanup(func() { check(t, p.Close()) })
	q, err := p.Dial(deadline(t), addr, nil, 64)
	check(t, err)
	r, err := q.Import(deadline(t), token)
	check(t, err)
	readText(t, q, r, "from the child")
	return child{process: cmd.Process, provider: p, addr: addr, q: q, r: r, token: token}
}

// readUntilGone reads until the connection ends. Every operation must succeed or fail with
// ErrDisconnected.
func readUntilGone(t *testing.T, q fabric.QueuePair, r fabric.Remote) {
	t.Helper()
	ctx := deadline(t)
	buf := make([]byte, 4096)
	var done [64]fabric.Completion
	for enqueued, finished := 0, 0; ; {
		err := q.Read(buf, r, 0, 1)
		if err == nil {
			enqueued++
		} else if !errors.Is(err, fabric.ErrQueueFull) && !errors.Is(err, fabric.ErrDisconnected) {
			t.Fatalf("read: %v", err)
		}
		if err := q.Submit(); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
			t.Fatalf("submit: %v", err)
		}
		n := q.Poll(done[:])
		for _, c := range done[:n] {
			if c.Err != nil && !errors.Is(c.Err, fabric.ErrDisconnected) {
				t.Fatalf("completion: %+v", c)
			}
		}
		finished += n
		if err := q.Err(); err != nil && finished == enqueued {
			if !errors.Is(err, fabric.ErrDisconnected) {
				t.Fatalf("ended with %v", err)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the peer's death was not noticed")
		}
	}
}
