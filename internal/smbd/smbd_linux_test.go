package smbd

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// owner is the environment variable that makes the test binary start a server and wait to be
// killed. It holds the directory for the server's files.
const owner = "REDYKV_TEST_SMBD_OWNER"

// A server needs both programs: without one of them none is available.
func TestAvailableOfBothPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := os.Stat("/usr/sbin/smbpasswd"); err == nil {
		t.Skip("both programs are found without PATH")
	}
	if err := Available(); !errors.Is(err, ErrMissing) {
		t.Errorf("without smbpasswd: %v", err)
	}
}

// TestOwnerIsKilled checks that a server ends with the process that started it, even by a
// kill.
func TestOwnerIsKilled(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	if os.Getenv(owner) != "" {
		s, err := Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString(s.Address + " " + s.Dir + "\n"); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(path, "-test.run=^TestOwnerIsKilled$")
	cmd.Env = append(os.Environ(), owner+"=1", "TMPDIR="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if killed := cmd.Process.Kill(); err != nil || killed != nil {
		t.Fatalf("%q, %v, %v", line, err, killed)
	}
	_ = cmd.Wait() // it fails, as the process was killed
	address, share, _ := strings.Cut(strings.TrimSpace(line), " ")
	t.Cleanup(func() {
		if filepath.Dir(share) == MemoryDir {
			_ = os.RemoveAll(share) // the killed process could not
		}
	})
	testrun.Until(t, "the server ends", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	// The processes that it started for itself write until they notice its end.
	testrun.Until(t, "its files can be removed", func() bool { return os.RemoveAll(dir) == nil })
}
