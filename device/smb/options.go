package smb

import (
	"cmp"
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

// Options are the place of the log and how it is reached. Address, Share, User and Password
// have no defaults.
type Options struct {
	// Address is the server, HOST or HOST:PORT. Default port 445.
	Address string
	// Share is the share's name.
	Share string
	// Dir is a directory of the share, with slashes, that belongs to the log. Open creates
	// it. Empty: the share's root.
	Dir string
	// User and Password, and Domain if the server requires one, are for NTLMv2.
	User, Password, Domain string
	// Sessions is the number of connections to the server. Default 2.
	Sessions int
	// Pipeline is the number of pending requests of each session. Default 32.
	Pipeline int
	// SegmentSize is the size in bytes of a file of the log, a power of two from 64 KiB to
	// 1 TiB: the unit in which truncation releases space. It is fixed when the directory
	// is created; opening it with another size fails, and 0 means the size it has. Default
	// 1 GiB.
	SegmentSize int64
	// Timeout is how long the server may be silent while requests are pending, and how
	// long a read is retried on other connections when one breaks. Default 10 s.
	Timeout time.Duration
	// Sign signs every message even if the server does not require it. It costs
	// throughput.
	Sign bool
	// Logger receives messages for an operator. Default: slog.Default().
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

// ParseURL reads the place of a log from a URL:
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

// ensureDefaults sets the defaults, except of SegmentSize, which the directory may determine,
// and checks the options.
func (o *Options) ensureDefaults() error {
	switch {
	case o.Address == "":
		return errors.New("smb: Address is empty")
	case o.Share == "" || strings.ContainsAny(o.Share, `/\`):
		return fmt.Errorf("smb: share %q, want a name without slashes", o.Share)
	case o.User == "":
		return errors.New("smb: User is empty")
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		o.Address = net.JoinHostPort(strings.Trim(o.Address, "[]"), DefaultPort)
	}
	o.Dir = strings.Trim(path.Clean("/"+strings.ReplaceAll(o.Dir, `\`, "/")), "/")
	o.Sessions = cmp.Or(o.Sessions, DefaultSessions)
	o.Pipeline = cmp.Or(o.Pipeline, DefaultPipeline)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	switch {
	case o.Sessions < 1 || o.Sessions > maxSessions:
		return fmt.Errorf("smb: %d sessions, want 1 to %d", o.Sessions, maxSessions)
	case o.Pipeline < 1 || o.Pipeline > maxPipeline:
		return fmt.Errorf("smb: pipeline of %d requests, want 1 to %d", o.Pipeline, maxPipeline)
	case o.Timeout < 0:
		return fmt.Errorf("smb: timeout of %v, want a positive duration", o.Timeout)
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

// place is the name of the directory in errors.
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
