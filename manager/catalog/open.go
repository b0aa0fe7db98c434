package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Options of [Open].
type Options struct {
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// ErrURL reports a catalog URL that is not valid.
var ErrURL = errors.New("catalog URL")

// Open opens the store that a URL names:
//
//	memory:
//	pebble:DIRECTORY
//
// A parameter delay=DURATION makes each Commit take so much longer, for measurements.
// Parts of a URL are percent-encoded as usual. Errors are ErrURL and those of [OpenPebble].
func Open(catalogURL string, o Options) (Store, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	at, err := parse(catalogURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	s, err := at.open(o)
	if err != nil || at.delay == 0 {
		return s, err
	}
	return delayed{s, at.delay}, nil
}

// location is a parsed catalog URL.
type location struct {
	scheme string
	dir    string // of pebble
	delay  time.Duration
}

func (l location) open(o Options) (Store, error) {
	if l.scheme == "pebble" {
		s, err := OpenPebble(l.dir, o.Logger)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	return NewMemory(), nil
}

// parse parses a catalog URL. Its errors do not contain the URL, which can contain a
// password.
func parse(s string) (l location, err error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return l, errors.New("no scheme: want memory:, pebble:DIRECTORY")
	}
	l.scheme = scheme
	rest, query, _ := strings.Cut(rest, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return l, errors.New("parameters are not percent-encoded")
	}
	switch scheme {
	case "memory":
		if rest != "" {
			return l, errors.New("memory: has no path")
		}
	case "pebble":
		if l.dir, err = url.PathUnescape(rest); err != nil || l.dir == "" {
			return l, errors.New("pebble: needs a directory")
		}
	default:
		return l, fmt.Errorf("scheme %.40q: want memory:, pebble:DIRECTORY", scheme)
	}
	for name, values := range parameters {
		if err := l.set(name, values); err != nil {
			return l, err
		}
	}
	return l, nil
}

// set sets a parameter.
func (l *location) set(name string, values []string) (err error) {
	if len(values) != 1 {
		return fmt.Errorf("parameter %.40q is given %d times", name, len(values))
	}
	value := values[0]
	switch name {
	case "delay":
		if l.delay, err = time.ParseDuration(value); err != nil || l.delay < 0 {
			return fmt.Errorf("delay=%.40q: want a duration such as 5ms", value)
		}
		return nil
	}
	return fmt.Errorf("parameter %.40q is unknown", name)
}

// delayed is a store whose commits take longer.
type delayed struct {
	Store
	by time.Duration
}

type delayedTerm struct {
	Term
	by time.Duration
}

func (d delayed) Campaign(ctx context.Context, url string) (Term, error) {
	t, err := d.Store.Campaign(ctx, url)
	if err != nil {
		return nil, err
	}
	return delayedTerm{t, d.by}, nil
}

func (t delayedTerm) Commit(ctx context.Context, changes []Change) error {
	select {
	case <-time.After(t.by):
	case <-t.Lost(): // Commit returns the error
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return t.Term.Commit(ctx, changes)
}
