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

// Options configure a transport.
type Options struct {
	// TLS secures connections of tcp; nil: not secured. mem and shm do not leave the
	// machine and ignore it.
	TLS *tls.Config
	// Silence is the time after which a silent peer of tcp is dead, 3 s by default.
	// Other transports ignore it: their one-sided operations need no process at the peer.
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

// openVerbs refuses TLS, which RDMA does not have.
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
