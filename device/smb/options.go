package smb

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/redykv/redykv/device"
)

// Options say where the log is and how it is reached. Address, Share, User and
// Password have no defaults.
type Options struct {
	// Address is the server, HOST or HOST:PORT. Default port 445.
	Address string
	// Share is the share's name.
	Share string
	// Dir is a directory of the share, with slashes, that belongs to the log. It is
	// made if it is not there. Empty: the share's own.
	Dir string
	// User and Password, and Domain where the server wants one, log in by NTLMv2.
	User, Password, Domain string
	// Sessions is how many connections there are to the server. Default 2.
	Sessions int
	// Pipeline is how many requests each session has under way. Default 32.
	Pipeline int
	// SegmentSize is the size in bytes of a file of the log, a power of two from
	// 64 KiB to 1 TiB: the unit in which truncation gives space back. It is fixed
	// when the directory is made; opening it with another fails, and 0 takes what it
	// was made with. Default 1 GiB.
	SegmentSize int64
	// Timeout is how long the server may be silent while requests are under way, and
	// how long a read is tried on other connections when one breaks. Default 10 s.
	Timeout time.Duration
	// Sign has every message signed, also where the server does not ask for it. It
	// costs throughput.
	Sign bool
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger
}

// Defaults and limits of Options.
const (
	DefaultPort        = "445"
	DefaultSessions    = 2
	DefaultPipeline    = 32
	DefaultSegmentSize = 1 << 30
	DefaultTimeout     = 10 * time.Second

	maxSessions    = 64
	maxPipeline    = 1 << 10
	minSegmentSize = 64 << 10
	maxSegmentSize = 1 << 40
)

// ParseURL reads the place of a log as an URL says it:
//
//	smb://[DOMAIN;]USER:PASSWORD@HOST[:PORT]/SHARE[/DIRECTORY...]
func ParseURL(raw string) (Options, error) {
	u, err := url.Parse(raw)
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err // the whole error has the password
	}
	if err != nil {
		return Options{}, fmt.Errorf("smb: URL: %w", err)
	}
	share, dir, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != "smb" || u.Opaque != "" || u.Host == "" || share == "" || u.RawQuery != "" || u.Fragment != "" {
		return Options{}, fmt.Errorf("smb: URL %s: want smb://USER:PASSWORD@HOST/SHARE/DIRECTORY", u.Redacted())
	}
	o := Options{Address: u.Host, Share: share, Dir: dir, User: u.User.Username()}
	o.Password, _ = u.User.Password()
	if domain, user, ok := strings.Cut(o.User, ";"); ok {
		o.Domain, o.User = domain, user
	}
	return o, nil
}

// ensureDefaults fills in what is unset, but for SegmentSize, which the directory
// may know, and checks the rest.
func (o *Options) ensureDefaults() error {
	switch {
	case o.Address == "":
		return errors.New("smb: no address of a server")
	case o.Share == "" || strings.ContainsAny(o.Share, `/\`):
		return fmt.Errorf("smb: share %q: want the name of one", o.Share)
	case o.User == "":
		return errors.New("smb: no user")
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		o.Address = net.JoinHostPort(strings.Trim(o.Address, "[]"), DefaultPort)
	}
	o.Dir = strings.Trim(path.Clean("/"+strings.ReplaceAll(o.Dir, `\`, "/")), "/")
	if o.Sessions == 0 {
		o.Sessions = DefaultSessions
	}
	if o.Pipeline == 0 {
		o.Pipeline = DefaultPipeline
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Sessions < 1 || o.Sessions > maxSessions:
		return fmt.Errorf("smb: %d sessions, want 1 to %d", o.Sessions, maxSessions)
	case o.Pipeline < 1 || o.Pipeline > maxPipeline:
		return fmt.Errorf("smb: pipeline of %d requests, want 1 to %d", o.Pipeline, maxPipeline)
	case o.Timeout < 0:
		return fmt.Errorf("smb: timeout of %v, want a positive time", o.Timeout)
	case o.SegmentSize != 0:
		return checkSegmentSize(o.SegmentSize)
	}
	return nil
}

func checkSegmentSize(n int64) error {
	if n < minSegmentSize || n > maxSegmentSize || n&(n-1) != 0 {
		return fmt.Errorf("smb: segment size %d, want a power of two from %d to %d",
			n, minSegmentSize, int64(maxSegmentSize))
	}
	return nil
}

// place is the directory as errors name it.
func (o *Options) place() string {
	return strings.TrimSuffix("//"+o.Address+"/"+o.Share+"/"+o.Dir, "/")
}

// checkName is device.CheckName with this package's prefix.
func checkName(what, name string) error {
	if err := device.CheckName(name); err != nil {
		return fmt.Errorf("smb: %s: %w", what, err)
	}
	return nil
}
