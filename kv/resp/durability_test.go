package resp

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// committing starts a committer over commits that take so long and end as outcome
// says.
func committing(t *testing.T, promise Durability, takes time.Duration, outcome *atomic.Pointer[error]) (c *committer, commits *atomic.Int64) {
	t.Helper()
	commits = new(atomic.Int64)
	c = newCommitter(func(context.Context) error {
		time.Sleep(takes)
		commits.Add(1)
		if err := outcome.Load(); err != nil {
			return *err
		}
		return nil
	}, promise, quietly)
	c.start()
	return c, commits
}

// With always, who has written waits for a commit that began afterwards, together
// with all others that did so.
func TestAlwaysSharesCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, commits := committing(t, DurabilityAlways, time.Second, new(atomic.Pointer[error]))
		start := time.Now()
		ended := make(chan time.Duration, 30)
		for i := range 30 {
			// Ten at once, ten while these are committed, ten more after that.
			time.AfterFunc(time.Duration(i/10)*1500*time.Millisecond, func() {
				if err := c.wait(); err != nil {
					t.Error(err)
				}
				ended <- time.Since(start)
			})
		}
		want := []time.Duration{1 * time.Second, 2500 * time.Millisecond, 4 * time.Second}
		for i := range 30 {
			if got := <-ended; got < want[i/10] || got > want[i/10]+time.Second {
				t.Errorf("answer %d came after %v", i, got)
			}
		}
		c.stop()
		if n := commits.Load(); n < 3 || n > 5 {
			t.Errorf("%d commits for three times ten writes", n)
		}
	})
}

// A write that comes while a commit is under way needs the next one.
func TestAlwaysWaitsForTheNextCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, commits := committing(t, DurabilityAlways, time.Second, new(atomic.Pointer[error]))
		go func() { _ = c.wait() }()
		time.Sleep(500 * time.Millisecond)
		if err := c.wait(); err != nil {
			t.Error(err)
		}
		if n := commits.Load(); n != 2 {
			t.Errorf("answered after %d commits", n)
		}
		c.stop()
	})
}

// With always, a commit that fails is an error to those who waited for it, and
// to nobody else.
func TestAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var outcome atomic.Pointer[error]
		outcome.Store(&broken)
		c, _ := committing(t, DurabilityAlways, time.Second, &outcome)
		if err := c.wait(); !errors.Is(err, broken) {
			t.Error(err)
		}
		outcome.Store(nil)
		if err := c.wait(); err != nil {
			t.Error(err)
		}
		c.stop()
	})
}

// With everysec, at any time the answered writes that no commit has made durable
// are none older than a second, however slow commits are.
func TestEverySecond(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 900 * time.Millisecond, 3 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun atomic.Pointer[time.Time] // of the last commit that has ended
				begun.Store(new(time.Time))
				var c *committer
				commits := 0
				c = newCommitter(func(context.Context) error {
					at := time.Now()
					time.Sleep(takes)
					begun.Store(&at)
					commits++
					return nil
				}, DurabilityEverySecond, quietly)
				c.start()
				var written []time.Time // and answered
				for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(70 * time.Millisecond) {
					at := time.Now()
					if err := c.wait(); err != nil {
						t.Fatal(err)
					}
					written = append(written, at)
					for len(written) > 0 && !written[0].After(*begun.Load()) {
						written = written[1:]
					}
					if len(written) > 0 && time.Since(written[0]) > mostAtRisk {
						t.Fatalf("after %v: a write from %v before is at risk", time.Since(start), time.Since(written[0]))
					}
				}
				c.stop()
				if len(written) > 0 && written[len(written)-1].After(*begun.Load()) {
					t.Error("the last writes are not durable at the end")
				}
				if most := int(30*time.Second/commitDelay) + 2; commits == 0 || commits > most {
					t.Errorf("%d commits", commits)
				}
			})
		})
	}
}

// With everysec, writes are refused when none can be made durable, and answered
// again when that has changed; a server at rest commits nothing.
func TestEverySecondFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var outcome atomic.Pointer[error]
		outcome.Store(&broken)
		c, commits := committing(t, DurabilityEverySecond, 0, &outcome)
		if err := c.wait(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := c.wait(); !errors.Is(err, broken) {
			t.Errorf("a write that cannot become durable: %v", err)
		}
		outcome.Store(nil)
		time.Sleep(time.Second)
		if err := c.wait(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		before := commits.Load()
		time.Sleep(time.Hour)
		if n := commits.Load() - before; n != 0 {
			t.Errorf("%d commits of nothing", n)
		}
		c.stop()
	})
}

// The reply to a write comes after its commit; the reply to a read does not wait.
func TestServerAlways(t *testing.T) {
	st, addr := start(t, inMemory(), Options{Durability: DurabilityAlways})
	p := dial(t, addr)
	for n := range 10 {
		if got := p.do("SET", "a", strings.Repeat("x", n)); got != "+OK" {
			t.Fatal(got)
		}
		if commits := st.store.Metrics().Commits; commits != uint64(n+1) {
			t.Fatalf("%d commits for %d answered writes", commits, n+1)
		}
	}
	for range 10 {
		_ = p.do("GET", "a")
	}
	if commits := st.store.Metrics().Commits; commits != 10 {
		t.Errorf("%d commits; reads need none", commits)
	}
}

// A write that cannot be committed is not answered.
func TestServerCannotCommit(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	_, addr := start(t, kv.Options{Device: faulty, Memory: 64 << 20, Records: 1 << 10}, Options{Durability: DurabilityAlways})
	p := dial(t, addr)
	if got := p.do("SET", "a", "1"); got != "+OK" {
		t.Fatal(got)
	}
	faulty.Set(device.FaultyOptions{SyncError: 1})
	p.send(encode("SET", "a", "2") + encode("SET", "a", "3"))
	if got := p.reply(); !strings.HasPrefix(got, "-MISCONF ") || !strings.Contains(got, device.ErrFault.Error()) {
		t.Error(got)
	}
	p.expectEnd()
	p = dial(t, addr)
	_ = p.do("SAVE")
	for _, line := range []string{"aof_last_write_status:err", "rdb_last_bgsave_status:err"} {
		if got := p.do("INFO", "persistence"); !strings.Contains(got, line) {
			t.Errorf("%s lacks %s", got, line)
		}
	}
	faulty.Set(device.FaultyOptions{})
	if got := p.do("SET", "a", "4"); got != "+OK" {
		t.Error(got)
	}
	_ = p.do("SAVE")
	for _, line := range []string{"aof_last_write_status:ok", "rdb_last_bgsave_status:ok"} {
		if got := p.do("INFO", "persistence"); !strings.Contains(got, line) {
			t.Errorf("%s lacks %s", got, line)
		}
	}
}

func TestDurabilityText(t *testing.T) {
	for d := range durabilities {
		var back Durability
		text, err := d.MarshalText()
		if err == nil {
			err = back.UnmarshalText(text)
		}
		if back != d || err != nil {
			t.Errorf("%v becomes %v, %v", d, back, err)
		}
	}
	if err := new(Durability).UnmarshalText([]byte("sometimes")); err == nil || durabilities.String() != "Durability(3)" {
		t.Error(err, durabilities)
	}
}
