package allocator_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/server"
)

// childEnv selects what the test binary does as the child of a local allocator.
const childEnv = "MANAGER_TEST_CHILD"

const (
	childRegisters = "registers" // like a cache server, and waits for the end of its input
	childDies      = "dies"      // with a line that says why
	childTells     = "tells"     // dies with its arguments as output
	childShows     = "shows"     // dies with the settings of its environment as output
	childIsSilent  = "is silent" // for ever
	childIsDeaf    = "is deaf"   // registers, and ignores the end of its input
	childIsParent  = "parent"    // runs an embedded manager with a child until it is killed
)

func childMain() int {
	err := fmt.Errorf("no such part: %s", os.Getenv(childEnv))
	switch os.Getenv(childEnv) {
	case childRegisters:
		err = register(os.Args[1:])
	case childIsDeaf:
		if err = register(os.Args[1:]); err == nil {
			select {}
		}
	case childDies:
		err = fmt.Errorf("no memory\ntoday")
	case childTells:
		err = errors.New(strings.Join(os.Args[1:], " "))
	case childShows:
		env := slices.DeleteFunc(os.Environ(), func(v string) bool { return !strings.HasPrefix(v, "REDYKV_") })
		err = errors.New("settings:" + strings.Join(env, " "))
	case childIsSilent:
		_, err = io.Copy(io.Discard, os.Stdin)
	case childIsParent:
		err = parent()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// testTimeout bounds each wait of a test; it is not a measurement.
var testTimeout = testrun.Patience(time.Minute)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testContext ends with the test, or when it takes too long.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a manager whose heartbeats and leases are never due, and closes it with
// the test.
func serve(t *testing.T, opts manager.Options) (*manager.Manager, access.Client) {
	t.Helper()
	opts.Heartbeat, opts.Lease, opts.Logger = time.Hour, -1, quiet()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	<-m.Serving()
	t.Cleanup(func() {
		if err := errors.Join(m.Close(testContext(t)), <-served); err != nil {
			t.Error(err)
		}
	})
	return m, access.Dial(ln.Addr().String())
}

// heldUp reports whether a call failed in transit, as when a process was suspended.
func heldUp(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return err != nil
	}
	return false
}

// register takes the flags in the order in which Launch gives them.
func register(args []string) error {
	flags := make(map[string]string)
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	var memory uint64
	if _, err := fmt.Sscan(flags["--memory"], &memory); err != nil {
		return err
	}
	vm := node.VM{ID: flags["--vm-id"], Start: 1, ControlURL: "http://127.0.0.1:1", Transport: flags["--transport"], FabricAddr: "nowhere", Memory: memory, Free: memory}
	mgr, err := access.DialWith(flags["--manager"], access.FromEnv())
	if err != nil {
		return err
	}
	// Repeated as by a node: either side ends a handshake that takes too long on a busy
	// machine.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for {
		_, err := mgr.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true)}))
		if err == nil {
			break
		}
		if !heldUp(err) || ctx.Err() != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// parent allocates a cache, prints the process that serves it, and waits.
func parent() error {
	if err := os.Setenv(childEnv, childRegisters); err != nil {
		return err
	}
	a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Logger: quiet()})
	if err != nil {
		return err
	}
	mgr, err := manager.Embed(context.Background(), manager.EmbedOptions{Allocator: a, Logger: quiet()})
	if err != nil {
		return err
	}
	if _, err := mgr.Allocate(context.Background(), connect.NewRequest(&managerv1.AllocateRequest{RequestId: rand.Text(), Capacity: 1})); err != nil {
		return err
	}
	for _, pid := range a.PIDs() {
		fmt.Println(pid)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// serveLocal starts a manager whose VMs are processes of this test binary, which do part.
func serveLocal(t *testing.T, part string, opts manager.Options) (*allocator.Local, *manager.Manager, access.Client) {
	t.Helper()
	t.Setenv(childEnv, part)
	a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	opts.Allocator = a
	m, client := serve(t, opts)
	return a, m, client
}

func allocateBytes(t *testing.T, client access.Client, capacity uint64) (*managerv1.AllocateResponse, error) {
	t.Helper()
	r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: rand.Text(), Capacity: capacity, RegionSize: 1 << 20}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// The death of a cache server is reported to the watchers of its cache at once: here no
// heartbeat is ever due.
func TestLocalProcessKilled(t *testing.T) {
	a, _, client := serveLocal(t, childRegisters, manager.Options{VMMemory: 2 << 20})
	ca, err := allocateBytes(t, client, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(ca.GetGrants()) != 2 || ca.GetGrants()[0].GetVm().GetTransport() != "shm" {
		t.Fatalf("shares: %v", ca.GetGrants())
	}
	stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId()}))
	if err != nil {
		t.Fatal(err)
	}
	victim := ca.GetGrants()[1].GetVm().GetId()
	if !a.Kill(victim) {
		t.Fatalf("no VM %s", victim)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	if e := stream.Msg(); e.GetKind() != managerv1.WatchResponse_KIND_VM_FAILED || e.GetVmId() != victim || !strings.Contains(e.GetReason(), "signal: killed") {
		t.Errorf("event %v, want the failure of %s", e, victim)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Error(err)
	}
	if !stream.Receive() || stream.Msg().GetKind() != managerv1.WatchResponse_KIND_CACHE_DELETED || stream.Msg().GetSequence() != 2 {
		t.Errorf("last event %v, %v", stream.Msg(), stream.Err())
	}
	if stream.Receive() || stream.Err() != nil {
		t.Errorf("after the last event: %v, %v", stream.Msg(), stream.Err())
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	a.CheckEmpty(t)
}

// If a process ends before it registers, the allocation's error has its last line of
// output. Earlier lines are only logged.
func TestLocalProcessDies(t *testing.T) {
	a, _, client := serveLocal(t, childDies, manager.Options{})
	_, err := allocateBytes(t, client, 1<<20)
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "exit status 1: today") {
		t.Errorf("error %v", err)
	}
	a.CheckEmpty(t)
}

// The manager's pinning option is passed to servers.
func TestLocalPinning(t *testing.T) {
	t.Setenv(childEnv, childTells)
	for pinning, want := range map[server.Pinning]string{server.PinAuto: "", server.PinAlways: "always", server.PinNever: "never"} {
		a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, Pinning: pinning, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		_, client := serve(t, manager.Options{Allocator: a})
		_, err = allocateBytes(t, client, 1<<20)
		_, after, told := strings.Cut(fmt.Sprint(err), " --pinning ")
		got, _, _ := strings.Cut(after, " ")
		if !strings.Contains(fmt.Sprint(err), "--vm-id") || told != (want != "") || got != want {
			t.Errorf("%v: the server was told %q", pinning, err)
		}
	}
}

// A server's process has none of the manager's settings and secrets.
func TestLocalEnvironment(t *testing.T) {
	for _, name := range []string{access.TokenEnv, "REDYKV_CATALOG_PASSWORD", "REDYKV_REQUIREPASS"} {
		t.Setenv(name, "secret")
	}
	_, _, client := serveLocal(t, childShows, manager.Options{})
	_, err := allocateBytes(t, client, 1<<20)
	if _, shown, ok := strings.Cut(fmt.Sprint(err), "settings:"); !ok || strings.Contains(shown, "REDYKV_") {
		t.Errorf("a server's process shows: %v", err)
	}
}

// A process that does not exit on request is killed.
func TestLocalProcessIsDeaf(t *testing.T) {
	a, _, client := serveLocal(t, childIsDeaf, manager.Options{})
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Error(err)
	}
	a.CheckEmpty(t)
}

// A client that gives up leaves no process behind.
func TestLocalCallerGivesUp(t *testing.T) {
	a, _, client := serveLocal(t, childIsSilent, manager.Options{})
	id := rand.Text()
	failed := make(chan error)
	go func() {
		_, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: id, Capacity: 1}))
		failed <- err // when all work of the request has ended
	}()
	testrun.Until(t, "a process is started", func() bool { return len(a.PIDs()) > 0 })
	ca, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: id, Capacity: 1, WaitMs: 1}))
	if err != nil || len(ca.Msg.GetPending()) == 0 {
		t.Fatalf("%v, %v", ca, err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.Msg.GetCacheId()})); err != nil {
		t.Error(err)
	}
	if err := <-failed; connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("error %v", err)
	}
	a.CheckEmpty(t)
}

func TestLocalRefuses(t *testing.T) {
	_, _, client := serveLocal(t, childRegisters, manager.Options{})
	_, err := allocateBytes(t, client, 17<<20)
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "17MiB asked for, 16MiB available") {
		t.Errorf("too much memory: %v", err)
	}
	_, err = client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: rand.Text(), Capacity: 1, Transport: "mem"}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "want one of shm, tcp, verbs") {
		t.Errorf("memory of one process: %v", err)
	}
	if _, err := allocator.NewLocal(allocator.LocalOptions{Memory: 1 << 62}); err == nil {
		t.Error("an allocator of more memory than the machine has")
	}
}

// A program that cannot be started fails the call; the allocator remains usable.
func TestLocalNoSuchProgram(t *testing.T) {
	a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{"/nowhere/redykv"}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, client := serve(t, manager.Options{Allocator: a})
	for range 2 {
		if _, err := allocateBytes(t, client, 1<<20); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "/nowhere/redykv") {
			t.Errorf("error %v", err)
		}
	}
	a.CheckEmpty(t)
}

// A cache server ends with its manager, however the manager ends.
func TestLocalProcessDiesWithParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+childIsParent)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	var pid int
	_, scanErr := fmt.Fscan(bufio.NewReader(stdout), &pid)
	ended := make(chan error, 1)
	if scanErr == nil {
		wait := processEnd(t, pid)
		go func() { ended <- wait() }()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	code := m.Run()
	api.HTTPClient.CloseIdleConnections()
	testrun.Exit(code)
}
