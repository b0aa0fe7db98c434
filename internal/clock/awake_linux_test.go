package clock

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stopper is the environment variable that makes this program stop itself while it waits.
const stopper = "REDYKV_TEST_STOPPED"

const (
	waits   = 150 * time.Millisecond
	stopped = 300 * time.Millisecond
)

// The time in which the process is stopped does not count.
func TestStopped(t *testing.T) {
	if os.Getenv(stopper) != "" {
		began := time.Now()
		ctx, cancel := WithAwakeTimeout(context.Background(), waits, errSilent)
		defer cancel()
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if took, want := time.Since(began), stopped+waits-2*waits/awakeSlices; took < want {
			t.Errorf("waited for %v, %v of it stopped; want %v", took, stopped, want)
		}
		return
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-test.run=^TestStopped$")
	cmd.Env = append(os.Environ(), stopper+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %v, error %v, want a stop:\n%s", status, err, out.String())
	}
	time.Sleep(stopped) // the length of the stop
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
