package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/server"
)

// LocalOptions configure a local allocator.
type LocalOptions struct {
	// Command is a cache server's program, and its first arguments; Launch adds
	//
	//	--manager URL --vm-id ID --memory BYTES --cores N --transport NAME --log-level warn --until-stdin-ends
	//
	// and --pinning MODE if Pinning is set. The program registers with the manager when it
	// is ready, and exits when its standard input ends, as then its parent has ended. Its
	// standard error is logged. With State the last flag is omitted, and the program is
	// killed to end it. Default: this executable with the argument cacheserver, which is
	// right for the redykv command only.
	Command []string
	// Transport is shm, tcp or verbs. Default: shm.
	Transport string
	// Memory is the maximum of all VMs' memory together, in bytes. Default: the machine's
	// memory.
	Memory uint64
	// Menu has the VM types and prices of a simulated market, and Market its options.
	// Default: VMs of any size, for nothing.
	Menu   *menu.Menu
	Market menu.Options
	// State is the manager's state directory. If it is set, processes outlive the allocator,
	// and the next allocator on the directory takes them over; their standard error goes to
	// files there. It needs Linux. Default: none; processes end with the allocator.
	State string
	// Pinning is as in [server.Options].
	Pinning server.Pinning
	// CPUs are the processors that the servers may use; Linux only. Default: those of this
	// process.
	CPUs []int
	// Logger receives messages for the operator, and the standard error of cache servers.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Local launches VMs that are processes of this machine.
type Local struct {
	fleet[*process]
	opts LocalOptions

	// starts sends processes to startLoop. A child is killed when the thread that started
	// it ends, and Go may end threads; so one locked thread starts all children and lives
	// as long as the allocator. Children inherit its processors.
	starts  chan start
	quit    chan struct{}  // closed by Close, ends startLoop
	running sync.WaitGroup // startLoop, and one waiter for each process
	leave   *leaving       // ends the waiters of processes that outlive the allocator; nil without State
}

// process is one cache server.
type process struct {
	pid  int
	ask  func()       // asks it to exit
	kill func() error // no error if it has ended
	// wait returns why the process has ended, or false if the allocator ends first and the
	// process goes on. It is called once.
	wait   func() (string, bool)
	memory uint64
	gone   chan struct{} // closed when wait has returned true
	ending bool          // its end was requested; guarded by the allocator's mu
}

type start struct {
	cmd *exec.Cmd
	err chan error
}

var (
	_ Restorer    = (*Local)(nil)
	_ Marketer    = (*Local)(nil)
	_ Transporter = (*Local)(nil)
)

// NewLocal returns an allocator for a manager's Options.
func NewLocal(opts LocalOptions) (*Local, error) {
	if len(opts.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("local allocator: path of this program: %w", err)
		}
		opts.Command = []string{self, "cacheserver"}
	}
	opts.Transport = cmp.Or(opts.Transport, "shm")
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	a := &Local{opts: opts, starts: make(chan start), quit: make(chan struct{})}
	if err := a.CheckTransport(opts.Transport); err != nil {
		return nil, err
	}
	var err error
	if opts.State != "" {
		if err = catalog.CheckDir(opts.State); err == nil {
			err = makeDetached(opts.State)
		}
		if err == nil {
			a.leave, err = newLeaving()
		}
	}
	if err == nil {
		a.vms = make(map[string]*process)
		a.shop, err = newShop(opts.Memory, opts.Menu, opts.Market, marketEvents{a.manager, a.Kill, a.Reclaim})
	}
	if err != nil {
		if a.leave != nil {
			err = errors.Join(err, a.leave.begin(), a.leave.end())
		}
		return nil, fmt.Errorf("local allocator: %w", err)
	}
	confined := make(chan error, 1)
	a.running.Add(1)
	go a.startLoop(confined)
	if err := <-confined; err != nil {
		return nil, fmt.Errorf("local allocator: %w", errors.Join(err, a.Close()))
	}
	return a, nil
}

// CheckTransport implements [Transporter].
func (*Local) CheckTransport(name string) error {
	return checkTransport("local", name, transport.BetweenProcesses())
}

// Transport implements [Allocator].
func (a *Local) Transport() string { return a.opts.Transport }

// Launch implements [Allocator]. The end of the process is reported to the host.
func (a *Local) Launch(ctx context.Context, spec VMSpec) error {
	if err := a.CheckTransport(spec.Transport); err != nil {
		return err
	}
	url := a.manager().URL()
	if url == "" {
		return errors.New("local allocator: the manager is not served yet: set its URL")
	}
	if err := a.buy(spec); err != nil {
		return err
	}
	if err := a.run(ctx, url, spec); err != nil {
		a.giveBack(spec.ID, spec.Memory)
		return fmt.Errorf("local allocator: %s: %w", a.opts.Command[0], err)
	}
	return nil
}

// run starts a process. ctx bounds the start only.
func (a *Local) run(ctx context.Context, url string, spec VMSpec) error {
	// Hold mu, so that Close either comes first or kills the process.
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errors.New("allocator is closed")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	args := append(a.opts.Command[1:len(a.opts.Command):len(a.opts.Command)],
		"--manager", url, "--vm-id", spec.ID, "--memory", strconv.FormatUint(spec.Memory, 10),
		"--cores", strconv.FormatUint(uint64(spec.Cores), 10), "--transport", spec.Transport,
		"--log-level", "warn")
	if a.opts.Pinning != server.PinAuto {
		args = append(args, "--pinning", a.opts.Pinning.String())
	}
	start := a.startChild
	if a.opts.State != "" {
		start = a.startDetached
	}
	p, err := start(spec, args)
	if err != nil {
		return err
	}
	a.keep(spec.ID, p)
	return nil
}

// keep records a running process. Called under mu.
func (a *Local) keep(id string, p *process) {
	p.gone = make(chan struct{})
	a.vms[id] = p
	a.running.Add(1)
	go a.wait(id, p)
}

// startChild starts a process that ends with this one. Called under mu.
func (a *Local) startChild(spec VMSpec, args []string) (*process, error) {
	cmd := exec.Command(a.opts.Command[0], append(args, "--until-stdin-ends")...)
	cmd.Env = a.environment(spec.ID)
	output := &lastLine{log: a.opts.Logger.With("vm", spec.ID)}
	dieWithParent(cmd)
	cmd.Stderr = output
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := a.start(cmd); err != nil {
		return nil, err
	}
	return &process{
		pid: cmd.Process.Pid, memory: spec.Memory,
		ask: func() { _ = stdin.Close() }, // closed already if the process has gone
		kill: func() error {
			if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return nil
		},
		wait: func() (string, bool) {
			err := cmd.Wait() // first: after it, output is complete
			return endReason(err, output.last()), true
		},
	}, nil
}

// settings begins the names of environment variables that configure redykv.
const settings = "REDYKV_"

// environment returns that of a cache server: this process's without its settings, among which are
// the secrets of an operator and of the catalog, and with the server's credentials. Called under mu.
func (a *Local) environment(id string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, settings) })
	return append(env, a.manager().Credentials(id).Env()...)
}

// start starts a process on startLoop's thread. Called under mu, so that startLoop has not
// ended.
func (a *Local) start(cmd *exec.Cmd) error {
	s := start{cmd: cmd, err: make(chan error, 1)}
	a.starts <- s
	return <-s.err
}

// startLoop starts processes: see starts. It reports whether its thread could be confined
// to the processors of the options.
func (a *Local) startLoop(confined chan<- error) {
	defer a.running.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(a.opts.CPUs) > 0 {
		undo, err := affinity.ConfineThread(a.opts.CPUs)
		if err != nil {
			confined <- err
			return
		}
		defer undo()
	}
	close(confined)
	for {
		select {
		case s := <-a.starts:
			s.err <- s.cmd.Start()
		case <-a.quit:
			return
		}
	}
}

// wait waits for a process, and reports its end to the manager if it was not requested.
func (a *Local) wait(id string, p *process) {
	defer a.running.Done()
	reason, ended := p.wait()
	if !ended {
		return // the process outlives the allocator
	}
	a.mu.Lock()
	delete(a.vms, id)
	ending := p.ending
	a.mu.Unlock()
	a.giveBack(id, p.memory)
	close(p.gone)
	if !ending {
		a.manager().Failed(id, "cache server process: "+reason)
	}
}

// Terminate implements [Allocator].
func (a *Local) Terminate(ctx context.Context, id, _ string) error {
	a.mu.Lock()
	p := a.vms[id]
	if p != nil {
		p.ending = true
	}
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.end(ctx)
}

// Kill kills a VM's process. Its end is reported to the manager as a failure. It returns
// false if the VM is unknown.
func (a *Local) Kill(id string) bool {
	p, ok := a.find(id)
	if ok {
		if err := p.kill(); err != nil {
			a.opts.Logger.Warn("VM not killed", "vm", id, "err", err)
		}
	}
	return ok
}

// grace is the time that a process has to exit before it is killed.
const grace = time.Second

// end asks a process to exit, and kills it if it does not.
func (p *process) end(ctx context.Context) error {
	p.ask()
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-p.gone:
		return nil
	case <-patience.Done():
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("local allocator: kill process %d: %w", p.pid, err)
	}
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("local allocator: process %d does not end: %w", p.pid, ctx.Err())
	}
}

// Close implements [Allocator]. With State, processes keep running.
func (a *Local) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.close()
	var running []*process
	if a.opts.State == "" {
		for _, p := range a.vms {
			p.ending = true
			running = append(running, p)
		}
	}
	a.mu.Unlock()
	for _, p := range running {
		p.ask() // all at once; end waits for one after the other
	}
	var err error
	for _, p := range running {
		err = errors.Join(err, p.end(context.Background()))
	}
	close(a.quit)
	if a.leave != nil {
		err = errors.Join(err, a.leave.begin())
	}
	a.running.Wait()
	if a.leave != nil {
		err = errors.Join(err, a.leave.end())
	}
	return err
}
