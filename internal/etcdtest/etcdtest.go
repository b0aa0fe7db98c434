// Package etcdtest starts private etcd servers on loopback, for tests.
package etcdtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/loopback"
	"github.com/redykv/redykv/internal/testrun"
)

// ProgramEnv is the environment variable of the server's path. Without it, the program that
// scripts/etcd built and then PATH are searched.
const ProgramEnv = "REDYKV_TEST_ETCD"

// Options of a server.
type Options struct {
	// Quota is the maximum size of the data in bytes; 0: etcd's default. Beyond, the server
	// takes no more data until Clear.
	Quota int64
	// Sync makes the data survive a power cut, which no test needs, as in production.
	Sync bool
	// TLS requires connections with certificates, those of File.
	TLS bool
}

// Server is a server with one member and temporary data, which do not outlive the test.
type Server struct {
	// Address is the host:port of clients.
	Address string
	// CA is a file of the authority, in PEM, and File one of a certificate for both sides of
	// TLS with its key; empty without Options.TLS.
	CA, File string

	t       testing.TB
	program string
	args    []string
	tls     *tls.Config
	process *Process
}

// Program returns the path of the server's program.
func Program() (string, error) {
	if path := os.Getenv(ProgramEnv); path != "" {
		return path, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		built, _ := filepath.Glob(filepath.Join(cache, "redykv-ci", "etcd-*", "etcd"))
		if len(built) > 0 {
			return built[len(built)-1], nil
		}
	}
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", fmt.Errorf("no etcd server: scripts/etcd builds one: %w", err)
	}
	return path, nil
}

// Start starts a server and waits until it serves. It skips the test unless all run (testrun.All), and if
// there is no program.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	testrun.SkipUnlessAll(t, "it starts etcd")
	s := &Server{t: t, Address: FreeAddress(t)}
	var err error
	if s.program, err = Program(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	scheme := "http://"
	if o.TLS {
		scheme = "https://"
		s.tls = fabrictest.TLS(t)
		s.CA, s.File = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "tls.pem")
		s.write()
		s.args = []string{"--cert-file", s.File, "--key-file", s.File, "--trusted-ca-file", s.CA, "--client-cert-auth"}
	}
	client, peer := scheme+s.Address, "http://"+FreeAddress(t)
	s.args = append(s.args, "--name=test", "--data-dir", filepath.Join(dir, "data"), "--log-level=error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer,
		"--heartbeat-interval=20", "--election-timeout=200", // a single member is elected at once
		"--unsafe-no-fsync="+strconv.FormatBool(!o.Sync), // a kill of the process loses nothing
		"--quota-backend-bytes", strconv.FormatInt(o.Quota, 10))
	t.Cleanup(s.Kill)
	s.Run()
	return s
}

// FreeAddress returns an address of loopback that is free now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := loopback.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// write writes CA and File.
func (s *Server) write() {
	s.t.Helper()
	certificate := s.tls.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	s.check(err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	s.check(os.WriteFile(s.CA, text, 0o600))
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	s.check(os.WriteFile(s.File, text, 0o600))
}

// Run starts the program, again after Kill, with the same address and data, and waits until
// it serves.
func (s *Server) Run() {
	s.t.Helper()
	p, err := Spawn(s.program, s.args...)
	if err != nil {
		s.t.Fatal("etcd:", err)
	}
	s.process = p
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(time.Minute))
	defer cancel()
	go func() {
		select {
		case <-p.Ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	c := s.Client("", "")
	defer func() { _ = c.Close() }()
	if _, err := c.MemberList(ctx); err != nil {
		s.Kill()
		s.t.Fatalf("etcd does not serve: %v\n%s", err, p.Output.Bytes())
	}
}

// Client returns a client, with a login if user is not empty. It waits for a server that is
// away.
func (s *Server) Client(user, password string) *clientv3.Client {
	s.t.Helper()
	endpoint := "http://" + s.Address
	if s.tls != nil {
		endpoint = "https://" + s.Address
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: s.tls, Username: user, Password: password, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}, MinConnectTimeout: time.Second,
		})},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Kill kills the program, as a crash would.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
	}
}

// Pause stops the program until Resume, as if the server hung. On Linux all its threads have
// stopped when it returns; elsewhere it may still answer a request that is sent at once.
func (s *Server) Pause() {
	s.process.Signal(syscall.SIGSTOP)
	for !s.process.stopped() {
		time.Sleep(time.Millisecond)
	}
}

// Resume continues a paused program.
func (s *Server) Resume() { s.process.Signal(syscall.SIGCONT) }

// Fill writes data until the server takes no more.
func (s *Server) Fill() {
	s.t.Helper()
	c := s.Client("", "")
	defer func() { _ = c.Close() }()
	for i := 0; ; i++ {
		if _, err := c.Put(s.t.Context(), fmt.Sprint("filler/", i), string(make([]byte, 1<<20))); err != nil {
			return
		}
	}
}

// Clear deletes the data of Fill, and makes the server take data again.
func (s *Server) Clear() {
	s.t.Helper()
	c := s.Client("", "")
	defer func() { _ = c.Close() }()
	ctx := s.t.Context()
	deleted, err := c.Delete(ctx, "filler/", clientv3.WithPrefix())
	s.check(err)
	_, err = c.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
	s.check(err)
	_, err = c.Defragment(ctx, c.Endpoints()[0])
	s.check(err)
	_, err = c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	s.check(err)
}

// RequirePasswords gives a user all rights under a prefix, and refuses calls without a
// login.
func (s *Server) RequirePasswords(user, password, prefix string) {
	s.t.Helper()
	c := s.Client("", "")
	defer func() { _ = c.Close() }()
	ctx := s.t.Context()
	for name, password := range map[string]string{"root": "root", user: password} {
		_, err := c.RoleAdd(ctx, name)
		s.check(err)
		_, err = c.UserAdd(ctx, name, password)
		s.check(err)
		_, err = c.UserGrantRole(ctx, name, name)
		s.check(err)
	}
	_, err := c.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	s.check(err)
	_, err = c.AuthEnable(ctx)
	s.check(err)
}

func (s *Server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal("etcd:", err)
	}
}
