package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/manager"
)

// open makes the manager, and its directory by default, and listens. It listens first: if
// another manager has the address, nothing is changed.
func (f managerFlags) open(ctx context.Context, opts *manager.Options) (m *manager.Manager, ln net.Listener, err error) {
	defer func() {
		if err != nil && ln != nil {
			err = errors.Join(err, ln.Close())
		}
		if err != nil && opts.Allocator != nil {
			err = errors.Join(err, opts.Allocator.Close())
		}
	}()
	if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", f.listen); err != nil {
		return nil, nil, err
	}
	byDefault := f.state == "" && f.catalog == "" && f.inDirectory()
	if byDefault {
		if opts.State, err = defaultState(ln.Addr()); err != nil {
			return nil, nil, fmt.Errorf("directory for the manager's records: %w; give --state or --catalog", err)
		}
	}
	m, err = manager.New(*opts)
	if _, ok := errors.AsType[*fs.PathError](err); ok && byDefault {
		err = fmt.Errorf("%w; give --state or --catalog", err)
	}
	return m, ln, err
}

// inDirectory reports whether the records are in a directory. With a port of 0 nobody could find
// the next manager by its address, so by default the records are in memory then.
func (f managerFlags) inDirectory() bool {
	switch {
	case f.state != "":
		return true
	case f.catalog != "":
		return strings.HasPrefix(f.catalog, "pebble:")
	}
	_, name, _ := net.SplitHostPort(f.listen) // checked by checkListen
	port, _ := net.LookupPort("tcp", name)
	return port != 0
}

// defaultState returns the directory of the user's state for the records of a manager at an
// address.
func defaultState(at net.Addr) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // as the XDG specification has it
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, ".local", "state")
	}
	host, port, err := net.SplitHostPort(at.String())
	return filepath.Join(base, "redykv", "manager", host+"-"+port), err
}
