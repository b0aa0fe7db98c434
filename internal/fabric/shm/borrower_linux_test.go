package shm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/internal/fabric"
)

const (
	borrowerAddr  = "REDYKV_SHM_BORROWER"
	borrowerToken = "REDYKV_SHM_BORROWED"
)

// borrow imports a region and waits until the process is killed, if TestFenceOfABorrower started
// it.
func borrow() {
	addr := os.Getenv(borrowerAddr)
	if addr == "" {
		return
	}
	var token fabric.Token
	_, err := hex.Decode(token[:], []byte(os.Getenv(borrowerToken)))
	if err == nil {
		var q fabric.QueuePair
		if q, err = open().Dial(context.Background(), addr, nil, 4); err == nil {
			_, err = q.Import(context.Background(), token)
		}
	}
	fmt.Println(err)
	select {} // the test kills it
}

// A fenced region keeps its memory if all processes that have mapped it have exited. While one
// lives, its bytes move to other memory.
func TestFenceOfABorrower(t *testing.T) {
	p := open()
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := p.Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("redy"), 1<<18)
	copy(r.Bytes(), want)
	lend := func() (end func()) {
		t.Helper()
		token := r.Token()
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), borrowerAddr+"="+l.Addr(), borrowerToken+"="+hex.EncodeToString(token[:]))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(end)
		request, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := request.Accept(nil, fabric.ReadWrite); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "<nil>\n" {
			t.Fatalf("the borrower says %q, %v", line, err)
		}
		return end
	}
	fence := func(kept bool) {
		t.Helper()
		before, token := unsafe.SliceData(r.Bytes()), r.Token()
		if r, err = r.Fence(); err != nil {
			t.Fatal(err)
		}
		if same := unsafe.SliceData(r.Bytes()) == before; same != kept {
			t.Errorf("the same memory: %v, want %v", same, kept)
		}
		if r.Token() == token || !bytes.Equal(r.Bytes(), want) {
			t.Error("the token or the bytes are wrong")
		}
	}
	fence(true) // nobody has it
	first, second := lend(), lend()
	first()
	fence(false)
	second()
	fence(true) // new memory
	lend()()
	fence(true)
	third := lend() // the region can be lent again
	third()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
