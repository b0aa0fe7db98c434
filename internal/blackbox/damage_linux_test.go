package blackbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestDamage damages the files of stores that were stopped or killed. A server of such a
// store answers correctly, answers with errors, or does not start. Wherever the server has
// an error, inspect must find damage; in undamaged stores it must find none.
func TestDamage(t *testing.T) {
	testrun.SkipUnlessAll(t, "it runs servers for a minute")
	d := &damages{dir: storeDir(t), counts: make(map[string]int)}
	n := cycles(t, 4, "store", d.life)
	t.Logf("%d stores, damaged %d times: %v", n, d.damaged, d.counts)
}

// storeDir returns a directory on a small disk, on which stores have several segments. If
// that disk cannot be made, it is a temporary directory.
func storeDir(t *testing.T) string {
	disk, err := newDisk(t, 1<<30)
	if err != nil {
		t.Logf("stores have one segment each: %v", err)
		return t.TempDir()
	}
	return disk.dir
}

// damages makes damaged copies of one store after the other.
type damages struct {
	dir     string
	damaged int
	counts  map[string]int // outcomes, by the kind of the first damaged file
}

const damagesOfAStore = 16

func (d *damages) life(ctx context.Context, r *rand.Rand, seed uint64) error {
	whole, older := filepath.Join(d.dir, "whole"), filepath.Join(d.dir, "older")
	if err := os.RemoveAll(whole); err != nil {
		return err
	}
	load := newLoad(r, EverySec)           // the faster of the durable promises
	load.Keys, load.MaxValue = 320, 10_000 // much of the log is on the disk only
	var states [2]map[string]State
	for i := range states {
		var err error
		if states[i], err = d.write(ctx, r, load, whole, seed<<8+uint64(i)); err != nil {
			return err
		}
		if out, err := Run(ctx, *binary, "inspect", whole); err != nil {
			return fmt.Errorf("inspect finds faults in a store that is whole: %w\n%s", err, out)
		}
		if i == 0 {
			if err := duplicate(whole, older); err != nil {
				return err
			}
		}
	}
	for range damagesOfAStore {
		if err := d.damage(ctx, r, whole, older, states[1], states[0]); err != nil {
			return err
		}
	}
	return nil
}

// write runs a server of the store in dir under the load for a while. It then starts the
// server again and returns the states of all keys.
func (d *damages) write(ctx context.Context, r *rand.Rand, load *Load, dir string, seed uint64) (map[string]State, error) {
	argv := append([]string{*binary, "serve", "--addr", "127.0.0.1:0", "--dir", dir, "--durability", "everysec"}, someFlags(r)...)
	argv = append(argv, "--checkpoint-every-bytes", []string{"64KiB", "1MiB"}[r.IntN(2)])
	p, err := serve(ctx, argv)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	load.Dial = dialer(p.Ready[0])
	_, err = load.during(ctx, seed, waits(200*time.Millisecond+chance(r, 1300*time.Millisecond)), 0, func() error { return nil })
	if err != nil {
		return nil, err
	}
	at := time.Now()
	if err := endSomehow(r, p); err != nil {
		return nil, err
	}
	if p, err = serve(ctx, argv); err != nil {
		return nil, err
	}
	defer p.Kill()
	conn, err := dialer(p.Ready[0])(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	states, failed, err := Read(NewConn(conn), load.Model.Keys(), patience)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("keys of a store that is whole cannot be read: %v", failed)
	}
	if err == nil {
		err = load.Model.Recovered(states, EverySec, at)
	}
	if err != nil {
		return nil, err
	}
	return states, endSomehow(r, p)
}

// endSomehow stops or kills a server at random.
func endSomehow(r *rand.Rand, p *Process) error {
	if r.IntN(2) == 0 {
		return p.Stop(patience)
	}
	p.Kill()
	return p.Crashed()
}

// duplicate replaces a directory by a copy of another.
func duplicate(from, to string) error {
	return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)))
}

// damage damages a copy of the store whole, whose keys have these states, and checks it.
// The keys of the older copy have the states earlier.
func (d *damages) damage(ctx context.Context, r *rand.Rand, whole, older string, states, earlier map[string]State) error {
	d.damaged++
	dir := filepath.Join(d.dir, "damaged")
	if err := duplicate(whole, dir); err != nil {
		return err
	}
	var done []string
	rolledBack := false
	for range 1 + r.IntN(2)*r.IntN(3) {
		what, back, err := "", false, error(nil)
		for err == nil && what == "" {
			what, back, err = damageOne(r, dir, older)
		}
		if err != nil {
			return err
		}
		done, rolledBack = append(done, what), rolledBack || back
	}
	outcome, err := d.serve(ctx, r, dir, states, earlier, rolledBack)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(done, "; "), err)
	}
	file, _, _ := strings.Cut(digits.ReplaceAllString(done[0], ""), ":")
	file, _, _ = strings.Cut(file, " ")
	d.counts[file+" "+outcome]++
	return nil
}

// serve inspects and serves a damaged store, and returns the outcome.
func (d *damages) serve(ctx context.Context, r *rand.Rand, dir string, states, earlier map[string]State, rolledBack bool) (outcome string, err error) {
	out, inspected := Run(ctx, *binary, "inspect", dir)
	if err := refused(inspected); err != nil {
		return "", fmt.Errorf("inspect: %w\n%s", err, out)
	}
	argv := append([]string{*binary, "serve", "--addr", "127.0.0.1:0", "--dir", dir, "--durability", "always"}, someFlags(r)...)
	argv = append(argv, "--verify", "all") // without it, less is promised
	p, err := serve(ctx, argv)
	if err != nil {
		if err := refused(err); err != nil {
			return "", err
		}
		if inspected == nil {
			return "", fmt.Errorf("inspect finds nothing, and the server does not start: %w\n%s", err, out)
		}
		return "did not start", nil
	}
	defer p.Kill()
	model := Adopt(Always, states)
	failed, err := readDamaged(ctx, model, p.Ready[0])
	if err != nil && rolledBack {
		// A store cannot detect that its manifest is not the newest.
		model = Adopt(Always, earlier)
		_, err = readDamaged(ctx, model, p.Ready[0])
	}
	if err != nil {
		return "", fmt.Errorf("%w\n%s\n%s", err, out, p.Log())
	}
	if len(failed) > 0 && inspected == nil {
		return "", fmt.Errorf("inspect finds nothing, and reads fail: %v\n%s", failed, out)
	}
	load := &Load{Model: model, Connections: 3, Keys: 100, MaxValue: 2000, Dial: dialer(p.Ready[0]), Failures: true}
	at, err := load.during(ctx, r.Uint64(), waits(chance(r, 200*time.Millisecond)), 0, func() error { return nil })
	if err != nil {
		return "", fmt.Errorf("under load: %w\n%s", err, p.Log())
	}
	if r.IntN(2) == 0 {
		p.Kill()
	} else if err := p.Stop(patience); err != nil {
		if err := refused(err); err != nil {
			return "", err
		}
	}
	if err := p.Crashed(); err != nil {
		return "", err
	}
	outcome = "right"
	if len(failed) > 0 {
		outcome = "errors"
	}
	if p, err = serve(ctx, argv); err != nil {
		return outcome + ", then did not start", refused(err)
	}
	defer p.Kill()
	if _, err := readDamagedAt(ctx, model, p.Ready[0], at); err != nil {
		return "", fmt.Errorf("started again: %w\n%s\n%s", err, out, p.Log())
	}
	return outcome, p.Crashed()
}

var clearError = regexp.MustCompile(`(?m)^redykv: .+`)

// refused returns nil if a program ended with a clear error, or did not fail.
func refused(err error) error {
	var ended *EndedError
	if err == nil {
		return nil
	}
	if !errors.As(err, &ended) {
		return err
	}
	if crash := Crashed(ended.Log); crash != nil {
		return crash
	}
	if code := regexp.MustCompile(`exit status (\d+)`).FindString(fmt.Sprint(ended.Err)); code != "exit status 1" || !clearError.MatchString(ended.Log) {
		return fmt.Errorf("no clear error: %w", err)
	}
	return nil
}

func readDamaged(ctx context.Context, m *Model, addr string) (map[string]Reply, error) {
	return readDamagedAt(ctx, m, addr, time.Now())
}

// readDamagedAt reads and checks the readable keys of a damaged store. It reconnects when a
// connection ends.
func readDamagedAt(ctx context.Context, m *Model, addr string, at time.Time) (map[string]Reply, error) {
	failed, states := make(map[string]Reply), make(map[string]State)
	for keys := m.Keys(); len(keys) > 0; {
		conn, err := dialer(addr)(ctx)
		if err != nil {
			return failed, err
		}
		some, bad, err := Read(NewConn(conn), keys, patience)
		maps.Copy(states, some)
		maps.Copy(failed, bad)
		_ = conn.Close()
		if err == nil {
			break
		}
		if errors.As(err, new(*ProtocolError)) || errors.Is(err, errContradiction) || errors.Is(err, os.ErrDeadlineExceeded) {
			return failed, err
		}
		if len(some)+len(bad) == 0 { // the connection ended at the first key
			failed[keys[0]] = Reply{Kind: Error, Text: err.Error()}
		}
		keys = slices.DeleteFunc(keys, func(key string) bool {
			_, read := states[key]
			_, bad := failed[key]
			return read || bad
		})
	}
	return failed, m.Recovered(states, Always, at)
}

var digits = regexp.MustCompile(`[0-9]+`)

// likely makes kinds of files with many parts to damage more frequent.
var likely = map[string]int{".seg": 5, ".sum": 3, "object.index-": 3, "object.snapshot-": 3, "meta.store": 2}

// damageOne damages one file, or two. It returns what it did, empty if nothing, and whether
// that may restore an earlier state of the store.
func damageOne(r *rand.Rand, dir, older string) (what string, back bool, err error) {
	kinds := make(map[string][]string)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			kind := digits.ReplaceAllString(e.Name(), "")
			kinds[kind] = append(kinds[kind], path)
		}
		return err
	})
	if err != nil {
		return "", false, err
	}
	var names []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		names = append(names, slices.Repeat([]string{kind}, max(1, likely[kind]))...)
	}
	same := kinds[names[r.IntN(len(names))]]
	file, other := same[r.IntN(len(same))], same[r.IntN(len(same))]
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false, err
	}
	name := strings.TrimPrefix(file, dir+"/")
	write := func(format string, args ...any) (string, bool, error) {
		return name + ": " + fmt.Sprintf(format, args...), false, os.WriteFile(file, data, 0o600)
	}
	at, n := r.IntN(len(data)+1), 1+r.IntN(1<<r.IntN(16))
	if r.IntN(2) == 0 {
		at = at / 4096 * 4096
	}
	part := data[at:min(at+n, len(data))]
	switch action := r.IntN(10); {
	case action == 0:
		return name + " is removed", false, os.Remove(file)
	case action == 1:
		if data, err = os.ReadFile(filepath.Join(older, name)); errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		} else if err != nil {
			return "", false, err
		}
		what, _, err = write("an older version, of %d bytes", len(data))
		// The journal has the metadata in place of its file, and was as it is after a crash at that time.
		return what, strings.HasPrefix(name, "meta.") || name == "JOURNAL", err
	case action == 2 && other != file:
		temp := file + ".swapped"
		return fmt.Sprintf("%s and %s change places", name, filepath.Base(other)), false,
			errors.Join(os.Rename(file, temp), os.Rename(other, file), os.Rename(temp, other))
	case action == 3 && other != file:
		return fmt.Sprintf("%s is a copy of %s", filepath.Base(other), name), false, os.WriteFile(other, data, 0o600)
	case len(part) == 0:
		return "", false, nil
	case action == 4:
		size := len(data)
		data = data[:at]
		return write("cut off at %d of %d", at, size)
	case action == 5:
		clear(part)
		return write("zeros from %d to %d of %d", at, at+len(part), len(data))
	case action == 6:
		for i := range part {
			part[i] = byte(r.Uint32())
		}
		return write("random bytes from %d to %d of %d", at, at+len(part), len(data))
	case action == 7:
		data = append(data, part...)
		return write("its bytes from %d on, %d of them, once more at its end", at, len(part))
	}
	flip := byte(1 + r.IntN(255))
	part[0] ^= flip
	return write("byte %d of %d is flipped by %#x", at, len(data), flip)
}
