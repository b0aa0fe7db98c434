// Package smbd starts a private Samba file server on loopback, for tests and comparisons.
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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/loopback"
)

// ErrMissing means that Samba is not installed, or that this user cannot run it.
var ErrMissing = errors.New("no Samba server can be started here")

// ShareName is the name of a server's only share.
const ShareName = "redykv"

// Server is a running server. Its configuration, its user and its share are in temporary
// directories, which Close removes. The share is in memory if possible.
type Server struct {
	Address string // host:port
	// User and Password are the login.
	User, Password string
	// Dir is the share's directory. InMemory means that it is in memory.
	Dir      string
	InMemory bool

	share *dirs.Temp // Dir; nil: it is not in memory
	temp  *dirs.Temp // configuration and state
	smbd  string     // the program

	mu      sync.Mutex // guards process
	process *process
}

// process is one run of the program.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{} // closed when the program has ended; then err is set
	err    error
}

// Available returns an error that wraps ErrMissing if Start cannot succeed.
func Available() error {
	for _, program := range []string{"smbd", "smbpasswd"} {
		if _, err := find(program); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: smbd must run as root", ErrMissing)
	}
	return nil
}

// find returns the path of a program. smbd is usually not in PATH.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			return "", fmt.Errorf("%w: %s is not installed", ErrMissing, name)
		}
	}
	return path, nil
}

// MemoryDir is a file system in memory, where Linux has one. Shares are made there.
const MemoryDir = "/dev/shm"

const shares = "redykv-share-*"

// Sweep removes the shares in memory whose programs were killed.
func Sweep() { dirs.SweepTemp(MemoryDir, shares) }

// Start starts a server and waits until it accepts connections.
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
	if s.Address, err = loopback.FreeAddress(); err != nil {
		return nil, fmt.Errorf("smbd: %w", err)
	}
	if err := s.configure(ctx); err != nil {
		return nil, err
	}
	return s, s.Run(ctx)
}

// configuration is smb.conf, a format of the temporary directory, the port, the share's name,
// the share's directory and the user.
const configuration = `[global]
	server role = standalone server
	workgroup = REDYKV
	netbios name = REDYKV
	disable netbios = yes
	bind interfaces only = yes
	interfaces = lo
	smb ports = %[2]s
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

// configure writes the configuration and adds the user.
func (s *Server) configure(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(s.Address)
	text := fmt.Appendf(nil, configuration, s.temp.Path, port, ShareName, s.Dir, s.User)
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
	// A new group: the program starts one process for each connection.
	cmd.SysProcAttr = attributes()
	// Children may keep the output open.
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// Pdeathsig takes effect when the thread that started the program ends.
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

// startTimeout bounds the time until the server accepts connections.
const startTimeout = 2 * time.Minute

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
			return fmt.Errorf("smbd: the program ended before it accepted a connection: %w: %s", p.err, lastLine(p.output.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("smbd: no connection to %s: %w", s.Address, ctx.Err())
		}
	}
}

// Kill kills the program and its connections, as a crash would.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Pause stops all processes of the program until Resume, as if the server hung. On Linux all have
// stopped when it returns; elsewhere one may still answer a request that is sent at once.
func (s *Server) Pause() {
	s.signal(syscall.SIGSTOP)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.process != nil && !stopped(s.process.cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
}

// Resume continues a paused program.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// signal sends a signal to all processes of the program.
func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = syscall.Kill(-s.process.cmd.Process.Pid, sig) // the processes may have ended
	}
}

// end stops the program with sig and waits for it.
func (s *Server) end(sig syscall.Signal) {
	s.signal(syscall.SIGCONT)
	s.signal(sig)
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p != nil {
		<-p.ended
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // remaining processes of its group
	}
}

// Close stops the server and removes its files and its share.
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

// lastLine returns the last line of a program's output.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
