// Package transport opens the providers of package fabric by name.
package transport

import (
	"fmt"
	"strings"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/tcp"
)

var providers = []struct {
	name string
	open func() (fabric.Provider, error)
}{
	{mem.Name, func() (fabric.Provider, error) { return mem.Open(), nil }},
	{shm.Name, shm.Open},
	{tcp.Name, func() (fabric.Provider, error) { return tcp.Open(), nil }},
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
			return p.open()
		}
	}
	return nil, fmt.Errorf("unknown transport %q: one of %s", name, strings.Join(Names(), ", "))
}
