package blackbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestPowerCut cuts the power of the disk below a server that is under load, idle, or
// starting, and checks the store afterwards. Each cycle is the life of one store, whose
// directories may not exist before.
func TestPowerCut(t *testing.T) {
	testrun.SkipUnlessAll(t, "it runs servers for a minute")
	disk, err := newDisk(t, 1<<30)
	if err != nil {
		t.Skipf("no ext4 on a loop device: %v", err)
	}
	c := &powerCuts{disk: disk}
	n := cycles(t, 6, "store", c.life)
	t.Logf("%d stores, %d cuts and %d kills under load, %d of starts; %d replies and %d keys checked", n, c.cuts, c.kills, c.starts, c.replies, c.verified)
}

// powerCuts is a store whose power is cut repeatedly.
type powerCuts struct {
	disk    *disk
	promise Promise
	dir     string
	load    *Load

	cuts, kills, starts, replies, verified int
}

func (c *powerCuts) life(ctx context.Context, r *rand.Rand, seed uint64) error {
	c.promise = []Promise{Always, EverySec}[r.IntN(2)]
	c.load = newLoad(r, c.promise)
	c.load.Model.Slack = 2 * time.Second
	stores := filepath.Join(c.disk.dir, "stores")
	c.dir = filepath.Join(stores, filepath.Join([]string{"a", "b", "c", "d"}[:1+r.IntN(4)]...))
	for round := range 1 + r.Uint64N(8) {
		if err := c.round(ctx, r, seed<<8+round); err != nil {
			return fmt.Errorf("%s, round %d: %w", c.promise, round, err)
		}
	}
	replies, verified := c.load.Model.Counts()
	c.replies, c.verified = c.replies+replies, c.verified+verified
	return os.RemoveAll(stores)
}

func newLoad(r *rand.Rand, promise Promise) *Load {
	return &Load{
		Model: NewModel(promise), Connections: 1 + r.IntN(4), Keys: 20 << r.IntN(5), MaxValue: 100 << r.IntN(8), Pauses: r.IntN(2) == 0,
	}
}

// round runs the server under the load until its power is cut or it is killed, and then
// checks the store.
func (c *powerCuts) round(ctx context.Context, r *rand.Rand, seed uint64) error {
	p, err := serve(ctx, c.argv(r))
	if err != nil {
		return err
	}
	defer p.Kill()
	longest := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 2500 * time.Millisecond}[r.IntN(3)]
	c.load.Dial = dialer(p.Ready[0])
	rest := busy
	switch r.IntN(12) {
	case 0, 1, 2:
		rest = 0
	case 3:
		rest = 4 * time.Second // long enough for every write to be durable, with any promise
	}
	at, err := c.load.during(ctx, seed, waits(chance(r, longest)), rest, func() error {
		defer p.Kill()
		if r.IntN(4) == 0 {
			c.kills++
			return nil
		}
		c.cuts++
		err := c.disk.cut()
		if r.IntN(2) == 0 {
			time.Sleep(chance(r, 1200*time.Millisecond)) // the server runs on a dead disk
		}
		return err
	})
	if err = errors.Join(err, p.Crashed()); err == nil {
		err = c.power(ctx, r)
	}
	for err == nil && r.IntN(3) == 0 {
		err = c.cutStart(ctx, r)
	}
	if err != nil {
		return err
	}
	return c.verify(ctx, r, at)
}

// argv returns the server's command line.
func (c *powerCuts) argv(r *rand.Rand) []string {
	return append([]string{
		*binary, "serve", "--addr", "127.0.0.1:0", "--dir", c.dir, "--durability", string(c.promise),
	}, someFlags(r)...)
}

// someFlags returns random flags that do not affect the store's contents. With little
// memory, much of the log is on the disk; checkpoints and compactions are frequent.
func someFlags(r *rand.Rand) []string {
	kinds := []string{"index", "fold-over", "snapshot", "incremental"}
	return []string{
		"--memory", "2MiB", // always the same, as the page size depends on it
		"--records", "1000",
		"--checkpoint-kind", kinds[r.IntN(len(kinds))],
		"--checkpoint-every-bytes", []string{"64KiB", "1MiB", "4GiB"}[r.IntN(3)],
		"--checkpoint-keep", []string{"1", "2", "3"}[r.IntN(3)],
		"--compact-dead", []string{"0.2", "0.5"}[r.IntN(2)],
		"--recycle", []string{"0", "1", "3"}[r.IntN(3)],
		"--verify", []string{"all", "blocks"}[r.IntN(2)],
		"--read-cache", []string{"0", "0.3"}[r.IntN(2)],
		"--loops", []string{"-1", "0", "2"}[r.IntN(3)],
	}
}

// power mounts the disk again.
func (c *powerCuts) power(ctx context.Context, r *rand.Rand) error {
	if err := c.disk.unmount(ctx); err != nil {
		return err
	}
	return c.disk.mount(ctx, []string{"", "data=writeback", "nodelalloc", "commit=1"}[r.IntN(4)])
}

// cutStart starts the server, and cuts the power or kills it during the start.
func (c *powerCuts) cutStart(ctx context.Context, r *rand.Rand) error {
	c.starts++
	argv, wait, cut := c.argv(r), chance(r, 80*time.Millisecond), r.IntN(2) == 0
	starting, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		defer stop()
		time.Sleep(wait)
		var err error
		if cut {
			err = c.disk.cut()
		}
		ended <- err
	}()
	p, err := Start(starting, readyAt, argv...)
	failed := <-ended
	if err == nil {
		p.Kill()
		err = p.Crashed()
	} else {
		err = Crashed(err.Error())
	}
	if err = errors.Join(failed, err); err == nil && cut {
		err = c.power(ctx, r)
	}
	return err
}

// verify starts the server and checks all keys. Sometimes it runs inspect before.
func (c *powerCuts) verify(ctx context.Context, r *rand.Rand, at time.Time) error {
	inspect, kill := r.IntN(4) == 0, r.IntN(2) == 0
	if _, err := os.Stat(filepath.Join(c.dir, "FORMAT")); err == nil && inspect {
		if out, err := Run(ctx, *binary, "inspect", c.dir); err != nil {
			return fmt.Errorf("inspect finds faults in a store that was cut off: %w\n%s", err, out)
		}
	}
	p, err := serve(ctx, c.argv(r))
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := check(ctx, c.load.Model, dialer(p.Ready[0]), c.promise, at); err != nil {
		return err
	}
	if kill {
		p.Kill()
		return p.Crashed()
	}
	return p.Stop(patience)
}
