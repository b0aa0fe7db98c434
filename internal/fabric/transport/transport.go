// Package transport opens the providers of package fabric by name.
package transport

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/fabric/verbs"
)

// Options are those of tcp. mem and shm do not leave the machine and ignore all but Sparse; verbs
// has no TLS, and its one-sided operations need no process at the peer.
type Options = tcp.Options

var providers = []struct {
	name string
	open func(Options) (fabric.Provider, error)
}{
	{mem.Name, openMem},
	{shm.Name, openShm},
	{tcp.Name, func(o Options) (fabric.Provider, error) { return tcp.Open(o), nil }},
	{verbs.Name, openVerbs},
}

func openMem(o Options) (fabric.Provider, error) {
	if o.Sparse {
		return mem.OpenSparse(), nil
	}
	return mem.Open(), nil
}

func openShm(o Options) (fabric.Provider, error) {
	if o.Sparse {
		return shm.OpenSparse()
	}
	return shm.Open()
}

// openVerbs refuses TLS, which RDMA does not have.
func openVerbs(o Options) (fabric.Provider, error) {
	if o.TLS != nil {
		return nil, errors.New("transport verbs: RDMA is not encrypted; open it without TLS")
	}
	if o.Sparse {
		return verbs.OpenSparse()
	}
	return verbs.Open()
}

// Names lists the transports that Open knows.
func Names() []string {
	names := make([]string, len(providers))
	for i, p := range providers {
		names[i] = p.name
	}
	return names
}

// Usable lists the transports that open here: verbs needs a build tag and a device.
func Usable() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		p, err := Open(name)
		return err != nil || p.Close() != nil
	})
}

// BetweenProcesses lists the transports that reach another process.
func BetweenProcesses() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return name == mem.Name })
}

// Open returns a new provider of the transport of that name, with no options.
func Open(name string) (fabric.Provider, error) { return OpenWith(name, Options{}) }

// OpenWith returns a new provider of the transport of that name.
func OpenWith(name string, opts Options) (fabric.Provider, error) {
	for _, p := range providers {
		if p.name == name {
			return p.open(opts)
		}
	}
	return nil, fmt.Errorf("unknown transport %q: want one of %s", name, strings.Join(Names(), ", "))
}
