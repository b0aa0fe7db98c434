// Package transport opens the providers of package fabric by name.
package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/shm"
	"github.com/redykv/redykv/internal/fabric/tcp"
	"github.com/redykv/redykv/internal/fabric/verbs"
)

// Options are what a transport may be given.
type Options struct {
	// TLS is how connections of tcp are secured; nil: not at all. mem and shm do
	// not leave the machine and have no use for it.
	TLS *tls.Config
	// Silence is how long a connected peer of tcp may be silent before it is given up.
	// Default: 3 s. A peer of another transport need not answer: its memory does.
	Silence time.Duration
}

var providers = []struct {
	name string
	open func(Options) (fabric.Provider, error)
}{
	{mem.Name, func(Options) (fabric.Provider, error) { return mem.Open(), nil }},
	{shm.Name, func(Options) (fabric.Provider, error) { return shm.Open() }},
	{tcp.Name, openTCP},
	{verbs.Name, openVerbs},
}

func openTCP(o Options) (fabric.Provider, error) {
	return tcp.OpenWith(tcp.Options{TLS: o.TLS, Silence: o.Silence}), nil
}

// openVerbs refuses to promise what RDMA does not do.
func openVerbs(o Options) (fabric.Provider, error) {
	if o.TLS != nil {
		return nil, errors.New("verbs: RDMA is not encrypted: no TLS")
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
	return nil, fmt.Errorf("unknown transport %q: one of %s", name, strings.Join(Names(), ", "))
}
