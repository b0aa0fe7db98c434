// Package transporttest is for tests that run over every transport.
package transporttest

import (
	"testing"

	"github.com/redykv/redykv/internal/fabric/transport"
)

// Names lists the transports that open here. For each other one there is a subtest of
// its name, which is skipped and says why: no build tag, no device.
func Names(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range transport.Names() {
		p, err := transport.Open(name)
		if err == nil {
			err = p.Close()
		}
		if err != nil {
			t.Run(name, func(t *testing.T) { t.Skip(err) })
			continue
		}
		names = append(names, name)
	}
	return names
}
