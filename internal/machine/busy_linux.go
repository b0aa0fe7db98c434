package machine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	waits "github.com/redykv/redykv/internal/clock"
)

// Busy returns the share of the machine's processors that was used while it watched for that long;
// false: it is not known, or ctx has ended.
func Busy(ctx context.Context, watch time.Duration) (share float64, ok bool) {
	before, ok := ticks()
	if !ok || !waits.Sleep(ctx, watch) {
		return 0, false
	}
	after, ok := ticks()
	if all := after.all - before.all; ok && all > 0 {
		return 1 - float64(after.idle-before.idle)/float64(all), true
	}
	return 0, false
}

// usage are ticks of all processors together since the machine was started.
type usage struct{ all, idle uint64 }

func ticks() (u usage, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	if !lines.Scan() {
		return u, false
	}
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice
	const idle, iowait, last = 3, 4, 7
	for i, field := range strings.Fields(lines.Text()) {
		if i == 0 {
			continue
		}
		n := uint64(0)
		if _, err := fmt.Sscan(field, &n); err != nil || i-1 > last {
			break
		}
		u.all += n
		if i-1 == idle || i-1 == iowait {
			u.idle += n
		}
	}
	return u, u.all > 0
}
