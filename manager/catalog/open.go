package catalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redykv/redykv/manager/access"
)

// Options of [Open]. A URL's login and parameters take precedence.
type Options struct {
	// User and Password are the login at etcd, so that they need not be in the URL.
	User, Password string
	// CA, Cert and Key are files as those of access.Credentials, for etcd+tls.
	CA, Cert, Key string
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// Environment variables of Options.
const (
	UserEnv     = "REDYKV_CATALOG_USER"
	PasswordEnv = "REDYKV_CATALOG_PASSWORD"
	CAEnv       = "REDYKV_CATALOG_CA"
	CertEnv     = "REDYKV_CATALOG_CERT"
	KeyEnv      = "REDYKV_CATALOG_KEY"
)

// FromEnv returns the Options of the environment. One newline at the end of the password is cut
// off.
func FromEnv() Options {
	return Options{
		User: os.Getenv(UserEnv), Password: strings.TrimSuffix(os.Getenv(PasswordEnv), "\n"),
		CA: os.Getenv(CAEnv), Cert: os.Getenv(CertEnv), Key: os.Getenv(KeyEnv),
	}
}

// ErrURL reports a catalog URL that is not valid.
var ErrURL = errors.New("catalog URL")

// Open opens the store that a URL names:
//
//	memory:
//	pebble:DIRECTORY
//	etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/PREFIX]
//	etcd+tls://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/PREFIX]
//
// Parameters of etcd are lease=DURATION (EtcdOptions.LeaseTTL), and ca, cert and key=FILE
// (Options). The parameter delay=DURATION makes each Commit of any store take so much
// longer, for measurements. Parts of a URL are percent-encoded as usual. Errors are ErrURL
// and those of [OpenPebble].
func Open(catalogURL string, o Options) (Store, error) {
	l, err := parse(catalogURL, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	s, err := l.open()
	if err != nil {
		return nil, err
	}
	if l.delay > 0 {
		s = delayed{s, l.delay}
	}
	return s, nil
}

// Check returns an ErrURL if Open would refuse the URL, and opens nothing.
func Check(catalogURL string, o Options) error {
	if _, err := parse(catalogURL, o); err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	return nil
}

// location is a parsed catalog URL.
type location struct {
	Options
	scheme string
	dir    string // of pebble
	etcd   EtcdOptions
	delay  time.Duration
}

func (l *location) open() (Store, error) {
	switch l.scheme {
	case "memory":
		return NewMemory(), nil
	case "pebble":
		return opened(OpenPebble(l.dir, cmp.Or(l.Logger, slog.Default())))
	}
	return opened(OpenEtcd(l.etcd))
}

// opened returns no Store with an error, instead of one that is a nil pointer.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

const schemes = "memory:, pebble:DIRECTORY, etcd://HOST:PORT or etcd+tls://HOST:PORT"

// parse parses a catalog URL. Its errors do not contain the URL, which can contain a
// password. net/url does not parse URLs with several hosts.
func parse(s string, o Options) (*location, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return nil, errors.New("no scheme: want " + schemes)
	}
	l := &location{Options: o, scheme: scheme}
	rest, query, _ := strings.Cut(rest, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("parameters are not percent-encoded")
	}
	for name, values := range parameters {
		if err := l.set(name, values); err != nil {
			return nil, err
		}
	}
	switch scheme {
	case "memory":
		if rest != "" {
			return nil, errors.New("memory: has no path")
		}
	case "pebble":
		if l.dir, err = url.PathUnescape(rest); err != nil || l.dir == "" {
			return nil, errors.New("pebble: needs a directory")
		}
	case "etcd", "etcd+tls":
		rest, ok := strings.CutPrefix(rest, "//")
		if !ok {
			return nil, fmt.Errorf("%s: needs //HOST:PORT", scheme)
		}
		return l, l.parseEtcd(rest)
	default:
		return nil, fmt.Errorf("scheme %.40q: want %s", scheme, schemes)
	}
	return l, nil
}

// set sets a parameter.
func (l *location) set(name string, values []string) (err error) {
	if len(values) != 1 {
		return fmt.Errorf("parameter %.40q is given %d times", name, len(values))
	}
	value := values[0]
	etcd := strings.HasPrefix(l.scheme, "etcd")
	switch {
	case name == "delay":
		l.delay, err = time.ParseDuration(value)
	case name == "lease" && etcd:
		l.etcd.LeaseTTL, err = time.ParseDuration(value)
	case name == "ca" && etcd:
		l.CA = value
	case name == "cert" && etcd:
		l.Cert = value
	case name == "key" && etcd:
		l.Key = value
	default:
		return fmt.Errorf("parameter %.40q is unknown", name)
	}
	if err != nil || l.delay < 0 {
		return fmt.Errorf("parameter %s: %.40q: want a duration such as 5s", name, value)
	}
	return nil
}

// parseEtcd parses [USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/PREFIX].
func (l *location) parseEtcd(rest string) (err error) {
	hosts, prefix, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, password, _ := strings.Cut(hosts[:at], ":")
		hosts = hosts[at+1:]
		var err2 error
		l.User, err = url.PathUnescape(user)
		l.Password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			return errors.New("user and password are not percent-encoded")
		}
	}
	e := &l.etcd
	e.Endpoints, e.User, e.Password, e.Logger = strings.Split(hosts, ","), l.User, l.Password, l.Logger
	if e.Prefix, err = url.PathUnescape(prefix); err != nil {
		return errors.New("the prefix is not percent-encoded")
	}
	files := access.Credentials{CA: l.CA, Cert: l.Cert, Key: l.Key}
	if e.TLS, err = files.TLS(); err != nil {
		return err
	}
	switch {
	case l.scheme == "etcd" && e.TLS != nil:
		return errors.New("certificates are for etcd+tls only")
	case l.scheme == "etcd+tls" && e.TLS == nil:
		e.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return e.ensureDefaults()
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
