// Package transport opens the providers of package fabric by name.
package transport

import (
	"fmt"
	"strings"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
)

var providers = []struct {
	name string
	open func() fabric.Provider
}{
	{mem.Name, mem.Open},
}

// Names lists the transports that Open knows.
func Names() []string {
	names := make([]string, len(providers))
	for i, p := range providers {
		names[i] = p.name
	}
	return names
}

// Open returns a new provider of the transport of that name.
func Open(name string) (fabric.Provider, error) {
	for _, p := range providers {
		if p.name == name {
			return p.open(), nil
		}
	}
	return nil, fmt.Errorf("unknown transport %q: one of %s", name, strings.Join(Names(), ", "))
}
