// Package smbd starts a Samba file server of its own, on loopback: a real server for
// tests and comparisons.
package smbd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redykv/redykv/internal/dirs"
)

// ErrMissing says that there is no Samba here, or that this user cannot run it.
var ErrMissing = errors.New("no Samba server can be started here")

// ShareName is the name of a server's one share.
const ShareName = "redykv"

// Server is a running server. What it needs is in a temporary directory, and goes with
// it: configuration, one user, and the share, which is kept in memory where that can
// be.
type Server struct {
	// Address is HOST:PORT.
	Address string
	// User and Password log in.
	User, Password string
	// Dir is the share's directory. Share kept in memory: InMemory.
	Dir      string
	InMemory bool

	share *dirs.Temp // Dir, if it is in memory
	temp  *dirs.Temp // configuration and state
	smbd  string     // the program
	port  int

	mu      sync.Mutex // guards what follows
	process *process
}

// process is one run of the server.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{} // closed when it has; then err holds
	err    error
}

// Available says whether Start may succeed: an error that wraps ErrMissing says why
// not.
func Available() error {
	if _, err := find("smbd"); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: smbd changes users, which needs root", ErrMissing)
	}
	return nil
}

// find returns a program's path; smbd is not where users' programs are.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			return "", fmt.Errorf("%w: %s is not installed", ErrMissing, name)
		}
	}
	return path, nil
}

// MemoryDir is where Linux keeps files in memory, and so a server its share.
const MemoryDir = "/dev/shm"

const shares = "redykv-share-*"

// Sweep gives back the memory of shares whose programs were killed.
func Sweep() { dirs.SweepTemp(MemoryDir, shares) }

// Start starts a server and waits until it answers.
func Start(ctx context.Context) (_ *Server, err error) {
	if err := Available(); err != nil {
		return nil, err
	}
	s := &Server{Password: rand.Text()}
	if s.smbd, err = find("smbd"); err != nil {
		return nil, err
	}
	account, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("smbd: %w", err)
	}
	s.User = account.Username
	if s.temp, err = dirs.MakeTemp("", "redykv-smbd-*"); err != nil {
		return nil, fmt.Errorf("smbd: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.share, err = dirs.MakeTemp(MemoryDir, shares); err == nil {
		s.Dir, s.InMemory = s.share.Path, true
	} else if s.Dir, err = os.MkdirTemp(s.temp.Path, "share-*"); err != nil {
		return nil, fmt.Errorf("smbd: %w", err)
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	s.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	if err := s.configure(ctx); err != nil {
		return nil, err
	}
	return s, s.Run(ctx)
}

// freePort returns a port of loopback that nobody uses at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("smbd: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// configuration is smb.conf: %[1]s is the temporary directory, %[2]d the port, %[3]s
// the share's name, %[4]s its directory, %[5]s the user.
const configuration = `[global]
	server role = standalone server
	workgroup = REDYKV
	netbios name = REDYKV
	disable netbios = yes
	bind interfaces only = yes
	interfaces = lo
	smb ports = %[2]d
	server min protocol = SMB2_10
	map to guest = never
	obey pam restrictions = no
	passdb backend = tdbsam:%[1]s/passdb.tdb
	private dir = %[1]s
	lock directory = %[1]s
	state directory = %[1]s
	cache directory = %[1]s
	pid directory = %[1]s
	ncalrpc dir = %[1]s/ncalrpc
	log file = %[1]s/log
	log level = 0
	load printers = no
	printcap name = /dev/null
	disable spoolss = yes
	strict sync = yes
[%[3]s]
	path = %[4]s
	read only = no
	valid users = %[5]s
`

// configure writes the configuration and makes the user known.
func (s *Server) configure(ctx context.Context) error {
	text := fmt.Appendf(nil, configuration, s.temp.Path, s.port, ShareName, s.Dir, s.User)
	if err := os.WriteFile(s.config(), text, 0o600); err != nil {
		return fmt.Errorf("smbd: %w", err)
	}
	program, err := find("smbpasswd")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "-c", s.config(), "-s", "-a", s.User)
	cmd.Stdin = strings.NewReader(s.Password + "\n" + s.Password + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("smbd: smbpasswd: %w: %s", err, lastLine(out))
	}
	return nil
}

func (s *Server) config() string { return filepath.Join(s.temp.Path, "smb.conf") }

// Run starts the program again after Kill, at the same address.
func (s *Server) Run(ctx context.Context) error {
	cmd := exec.Command(s.smbd, "--foreground", "--no-process-group", "--debug-stdout", "--configfile="+s.config())
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	// A group of its own: the program starts one process for each connection.
	cmd.SysProcAttr = attributes()
	// Children may keep the output open.
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// The kernel ends the program with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("smbd: %w", err)
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return s.await(ctx, p)
}

// startTimeout is how long the server may take until it answers.
const startTimeout = 30 * time.Second

// await waits until the server accepts connections.
func (s *Server) await(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("smbd: ended at once: %w: %s", p.err, lastLine(p.output.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("smbd: does not answer: %w", ctx.Err())
		}
	}
}

// Kill ends the program at once, with all its connections, as a crash would.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Pause stops all of the program where it is, until Resume: a server that hangs.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused program go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// signal sends a signal to the program and all its processes.
func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = syscall.Kill(-s.process.cmd.Process.Pid, sig) // all may have ended
	}
}

// end ends the program and waits for it.
func (s *Server) end(sig syscall.Signal) {
	s.signal(syscall.SIGCONT)
	s.signal(sig)
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p != nil {
		<-p.ended
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what is left of its group
	}
}

// Close ends the server and removes its files, the share included.
func (s *Server) Close() error {
	s.end(syscall.SIGTERM)
	var errs []error
	for _, dir := range []*dirs.Temp{s.share, s.temp} {
		if dir != nil {
			errs = append(errs, dir.Remove())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("smbd: %w", err)
	}
	return nil
}

// lastLine is the end of what a program has said.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
