package allocator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
)

// processFile identifies a process that outlives its allocator. Each such process has a
// file in the state directory. A process whose file could not be written is no problem: the
// next manager does not know its VM and refuses it, and then the cache server exits.
type processFile struct {
	ID     string       `json:"id"` // of the VM
	Which  processStamp `json:"process"`
	Memory uint64       `json:"memory"` // bytes
	Kind   menu.Kind    `json:"kind"`   // of the offer
}

// processStamp identifies a process of this machine, also after its pid is used again.
type processStamp struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks from boot
	Boot  string `json:"boot"`
}

const (
	processSuffix = ".json"
	logSuffix     = ".log"
)

func processDir(state string) string { return filepath.Join(state, catalog.VMsDir) }

func (a *Local) path(id, suffix string) string {
	return filepath.Join(processDir(a.opts.State), id+suffix)
}

// startDetached starts a process that outlives this one. Called under mu.
func (a *Local) startDetached(spec VMSpec, args []string) (_ *process, err error) {
	log, err := os.OpenFile(a.path(spec.ID, logSuffix), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, log.Close()); err != nil {
			a.forget(spec.ID)
		}
	}()
	cmd := exec.Command(a.opts.Command[0], args...)
	cmd.Env = a.environment(spec.ID)
	cmd.Stderr = log
	detach(cmd)
	if err := a.start(cmd); err != nil {
		return nil, err
	}
	h, err := openProcess(cmd.Process.Pid)
	if err == nil {
		err = a.write(processFile{ID: spec.ID, Which: h.stamp, Memory: spec.Memory, Kind: spec.Kind})
	}
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if h != nil {
			h.close()
		}
		return nil, err
	}
	return a.adopt(spec.ID, h, spec.Memory, cmd), nil
}

// adopt returns a running process. cmd is not nil if this process started it; then wait
// waits for cmd, too.
func (a *Local) adopt(id string, h *handle, memory uint64, cmd *exec.Cmd) *process {
	return &process{
		pid: h.stamp.PID, memory: memory, ask: func() { _ = h.kill() }, kill: h.kill,
		wait: func() (reason string, ended bool) {
			defer h.close()
			if !h.wait(a.leave) {
				return "", false
			}
			var err error
			if cmd != nil {
				err = cmd.Wait()
			}
			reason = endReason(err, a.lastLogLine(id))
			a.forget(id)
			return reason, true
		},
	}
}

// write writes the file of a process atomically.
func (a *Local) write(f processFile) error {
	content, err := json.Marshal(f)
	if err != nil {
		return err
	}
	path := a.path(f.ID, processSuffix)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// forget removes the files of a process that has ended.
func (a *Local) forget(id string) {
	for _, suffix := range []string{processSuffix, logSuffix} {
		if err := os.Remove(a.path(id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.opts.Logger.Warn("file of an ended VM not removed", "vm", id, "err", err)
		}
	}
}

// lastLogLine returns the last line of a process's output.
func (a *Local) lastLogLine(id string) string {
	text, err := os.ReadFile(a.path(id, logSuffix))
	if err != nil {
		a.opts.Logger.Warn("log of a VM not read", "vm", id, "err", err)
	}
	text = bytes.TrimSpace(text)
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	return string(line[:min(len(line), maxLine)])
}

// Restore implements [Restorer]. A file that cannot be read is removed; its process exits
// when the manager refuses it. It needs no epoch: only the process that holds the lock of the
// state directory calls it, a process that is stopped keeps the lock, and the processes of a
// manager without a state directory are known to no other.
func (a *Local) Restore(ctx context.Context, _ uint64, lent, idle []string) (running []string, err error) {
	wanted := slices.Concat(lent, idle)
	var unwanted []string
	for _, id := range a.known() { // of an earlier term of the manager in this process
		if slices.Contains(wanted, id) {
			running = append(running, id)
		} else {
			unwanted = append(unwanted, id)
		}
	}
	var names []string
	if a.opts.State != "" {
		if names, err = dirs.Match(processDir(a.opts.State), "*"+processSuffix); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		id := strings.TrimSuffix(filepath.Base(name), processSuffix)
		if _, here := a.find(id); here {
			continue
		}
		switch err := a.restore(id); {
		case isShortage(err): // the process may run, and its file is the only way to it
			return nil, fmt.Errorf("VM %s: %w", id, err)
		case err != nil:
			a.opts.Logger.Warn("VM not restored", "vm", id, "err", err)
			a.forget(id)
		case slices.Contains(wanted, id):
			running = append(running, id)
		default:
			unwanted = append(unwanted, id)
		}
	}
	err = a.forgetUnstarted()
	for _, id := range unwanted {
		err = errors.Join(err, a.Terminate(ctx, id, "no cache of the catalog has it"))
	}
	return running, err
}

// isShortage reports whether this process or machine lacks descriptors or memory.
func isShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// forgetUnstarted removes the logs of processes that never got a file: a manager was killed
// while it started them.
func (a *Local) forgetUnstarted() error {
	if a.opts.State == "" {
		return nil
	}
	logs, err := dirs.Match(processDir(a.opts.State), "*"+logSuffix)
	for _, name := range logs {
		id := strings.TrimSuffix(filepath.Base(name), logSuffix)
		if _, here := a.find(id); !here {
			a.forget(id)
		}
	}
	return err
}

// restore takes over the process of a file, if it still runs.
func (a *Local) restore(id string) error {
	content, err := os.ReadFile(a.path(id, processSuffix))
	if err != nil {
		return err
	}
	var f processFile
	if err := json.Unmarshal(content, &f); err != nil {
		return err
	}
	if f.ID != id || f.Which.PID < 1 || f.Memory > node.MaxMemory {
		return fmt.Errorf("process file: want VM %s with its pid and memory, have %.200s", id, content)
	}
	h, err := openProcess(f.Which.PID)
	if err != nil {
		return err
	}
	if h.stamp != f.Which {
		h.close()
		return fmt.Errorf("process %d: %w", f.Which.PID, os.ErrProcessDone)
	}
	a.resume(id, f.Kind, f.Memory)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(id, a.adopt(id, h, f.Memory, nil))
	return nil
}
