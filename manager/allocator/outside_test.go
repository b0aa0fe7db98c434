package allocator_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outside is a program of another module, with an allocator of its own.
const outside = `package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"sync"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
	"github.com/redykv/redykv/redytier"
)

type shelf struct {
	host allocator.Host
	mu   sync.Mutex
	vms  map[string]*node.Node
}

var _ allocator.Allocator = (*shelf)(nil)

func (s *shelf) Transport() string       { return "mem" }
func (s *shelf) Attach(h allocator.Host) { s.host = h }
func (s *shelf) Close() error            { return nil }

func (s *shelf) Offers(context.Context, string, string) ([]plan.Offer, error) {
	return []plan.Offer{{Type: "book", Memory: 1 << 20, Available: -1}}, nil
}

func (s *shelf) Launch(_ context.Context, spec allocator.VMSpec) error {
	n, err := node.Start(node.Options{ID: spec.ID, Memory: spec.Memory, Transport: spec.Transport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.vms[spec.ID] = n
	s.mu.Unlock()
	s.host.Placed(spec.ID, allocator.Place{Machine: "shelf"})
	return s.host.Register(n.VM())
}

func (s *shelf) Terminate(_ context.Context, id, why string) error {
	s.mu.Lock()
	n := s.vms[id]
	delete(s.vms, id)
	s.mu.Unlock()
	if n == nil {
		return nil
	}
	fmt.Println("terminated:", why)
	return n.Close()
}

func main() {
	ctx := context.Background()
	m, err := manager.Embed(ctx, manager.EmbedOptions{Allocator: &shelf{vms: make(map[string]*node.Node)}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	cache, err := redytier.Create(ctx, m, redytier.Config{Capacity: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	if err := cache.Delete(ctx); err != nil {
		log.Fatal(err)
	}
	if err := m.Close(); err != nil {
		log.Fatal(err)
	}
}
`

// An allocator can be written in another module, which sees no internal package.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// The same versions, so that nothing is downloaded.
	text := strings.Replace(string(mod), "module github.com/redykv/redykv", "module example.com/shelf", 1) +
		"\nrequire github.com/redykv/redykv v0.0.0\nreplace github.com/redykv/redykv => " + root + "\n"
	dir := t.TempDir()
	for name, data := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": outside} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "terminated: no cache uses it any more\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
