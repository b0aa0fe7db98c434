package manager

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
)

// This file makes the test binary a manager that takes orders at its standard input. An order
// is a line NUMBER STEPS AFTER SIGNAL: the manager waits until it rests, and from then on sends
// itself the signal at the step after so many others: after it, or before. It writes its log, and
// lines that begin with said:
//
//	NUMBER true      it rests, and the order is in force
//	NUMBER false     it does not lead
//	acts             it sends itself the signal
//	goes on PROBLEM  it was continued, and has made the step
const (
	managerChild = "manages" // value of childEnv
	said         = "said: "
)

// order is an order to a manager.
type order struct {
	number, steps int // steps may be none
	after         bool
	signal        syscall.Signal
}

// child is the manager of this process.
type child struct {
	injector
	m       *Manager
	present order
}

// manage is the main function of a manager: its arguments are the catalog and its address.
func manage(args []string) error {
	store, err := catalog.Open(args[0], catalog.Options{})
	if err != nil {
		return err
	}
	c := new(child)
	c.injector = injector{Store: store, servers: api.HTTPClient.Transport, at: c.act, left: none}
	api.HTTPClient = &http.Client{Transport: c}
	ln, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	// Servers are lost by their restart only, and caches by no silence, however slow the machine.
	if c.m, err = New(Options{Transport: "mem", store: c, Heartbeat: 100 * time.Millisecond, Silence: time.Hour, Lease: time.Hour}); err != nil {
		return err
	}
	go c.obey(os.Stdin)
	return c.m.Serve(ln)
}

// RoundTrip makes a call of a server. Audits are no steps: they change nothing and come at
// any time.
func (c *child) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/Status") {
		return c.servers.RoundTrip(req)
	}
	return c.injector.RoundTrip(req)
}

// obey carries out orders.
func (c *child) obey(orders io.Reader) {
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		var o order
		if _, err := fmt.Sscan(lines.Text(), &o.number, &o.steps, &o.after, &o.signal); err != nil {
			panic(err)
		}
		leads := c.rests()
		if leads {
			c.present = o
			c.choose(o.steps)
		}
		fmt.Printf("%s%d %v\n", said, o.number, leads)
	}
}

// rests waits until all servers have called the leader, and it has nothing to do. It returns
// false if the manager does not lead.
func (c *child) rests() bool {
	for ; ; time.Sleep(time.Millisecond) {
		l, err := c.m.leading()
		if err != nil {
			return false
		}
		if l.state.settled() && l.idle() {
			return true
		}
	}
}

// settled reports whether all servers have called, and no grant is being taken back.
func (c *state) settled() bool {
	if c.takesBack() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if !v.called {
			return false
		}
	}
	return true
}

// act makes the chosen step, before or after which the process sends itself the signal.
func (c *child) act(do func() error) {
	if c.present.after {
		_ = do() // the caller has its error
	}
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	fmt.Println(said + "acts")
	_ = syscall.Kill(os.Getpid(), c.present.signal) // it can not fail
	<-goesOn
	signal.Stop(goesOn)
	var err error
	if !c.present.after {
		err = outdated(do())
	}
	fmt.Println(said+"goes on", err)
}

// process is a manager that the test binary has started.
type process struct {
	*etcdtest.Process
	client access.Client // of no other manager
	url    string
	orders io.Writer
	part   []byte // of a line that it writes

	done   chan string   // answers to orders
	acts   chan struct{} // it sends itself the signal
	goesOn chan string   // the problem of a step; <nil>: none
	halted bool          // it has sent itself the signal, and does not run
}

// startProcess starts a manager at an address, which the test ends.
func startProcess(t *testing.T, catalog, address string) *process {
	t.Helper()
	p := &process{
		url: "http://" + address, client: access.Dial(address),
		done: make(chan string, 100), acts: make(chan struct{}, 1), goesOn: make(chan string, 1),
	}
	cmd := exec.Command(os.Args[0], catalog, address)
	cmd.Env, cmd.Stdout = append(os.Environ(), childEnv+"="+managerChild, "GORACE=halt_on_error=1"), p
	var err error
	if p.orders, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.Process, err = etcdtest.Run(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Write receives what the process writes.
func (p *process) Write(text []byte) (int, error) {
	p.part = append(p.part, text...)
	for {
		line, rest, whole := bytes.Cut(p.part, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		p.part = rest
		what, ours := strings.CutPrefix(string(line), said)
		switch wrong, goesOn := strings.CutPrefix(what, "goes on "); {
		case !ours:
		case what == "acts":
			p.acts <- struct{}{}
		case goesOn:
			p.goesOn <- wrong
		default:
			p.done <- what
		}
	}
}
