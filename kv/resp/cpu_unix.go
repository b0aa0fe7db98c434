//go:build unix

package resp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// infoCPU is the processors' time that the process, and those that it started and that
// have ended, have used.
func infoCPU(*Server) string {
	var b strings.Builder
	for _, who := range []struct {
		number int
		suffix string
	}{{unix.RUSAGE_SELF, ""}, {unix.RUSAGE_CHILDREN, "_children"}} {
		var used unix.Rusage
		if unix.Getrusage(who.number, &used) != nil {
			continue
		}
		fmt.Fprintf(&b, "used_cpu_sys%s:%.6f\nused_cpu_user%s:%.6f\n", who.suffix, float64(used.Stime.Nano())/1e9, who.suffix, float64(used.Utime.Nano())/1e9)
	}
	return b.String()
}
