package manager

import (
	"errors"
	"time"

	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
)

// VMs of a kind of which none comes up, as their image cannot be fetched or their program does not
// start, are launched less and less often: after backoffFree tries the kind counts as sold out for
// firstBackoff, and twice as long after each further try, at most maxBackoff. One that comes up ends that.

// VMs that were ordered before the last one failed belong to the same try.
const (
	backoffFree  = 3
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// backoff are the tries of a kind that failed one after the other.
type backoff struct {
	tries int
	last  time.Time // when the last one was counted
	until time.Time // none is launched before; zero: they may be
	why   string    // the last one failed
}

// launchFailed notes that a launched VM has failed before it came up, unless the allocator has said that
// there is no room. Called under mu.
func (c *state) launchFailed(v *vm) {
	_, full := errors.AsType[*api.CapacityError](v.launchErr)
	if full || errors.Is(v.launchErr, menu.ErrSoldOut) || v.unwanted != nil {
		return
	}
	kind := shopKind(v.kind())
	b := c.backoffs[kind]
	if b == nil {
		b = new(backoff)
		c.backoffs[kind] = b
	}
	if b.why = v.failed; !v.entered.After(b.last) {
		return
	}
	b.tries, b.last = b.tries+1, time.Now()
	b.begin()
}

// begin begins the pause after a try, or during one: others wait for how it ends.
func (b *backoff) begin() {
	if b.tries >= backoffFree {
		b.until = time.Now().Add(min(maxBackoff, firstBackoff<<min(b.tries-backoffFree, 10)))
	}
}

// launching notes that a VM is to be launched. Called under mu.
func (c *state) launching(v *vm) {
	if b := c.backoffs[shopKind(v.kind())]; b != nil {
		b.begin()
	}
}

// backsOff returns why no VM of a kind is launched now; empty: it may be. Called under mu.
func (c *state) backsOff(kind menu.Kind) string {
	if b := c.backoffs[shopKind(kind)]; b != nil && time.Now().Before(b.until) {
		return "launches fail: " + b.why
	}
	return ""
}
