package smb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/internal/clock"
)

// link is one connection: logged in, with the share mounted. A link that breaks stays broken.
type link struct {
	conn  *watchedConn
	smb   *smb2.Session
	share *smb2.Share
	end   context.CancelFunc // ends all requests on the share
	lock  *smb2.File         // this link's lock file

	mu    sync.Mutex // guards files; held while one is opened
	files map[*file]*handle
}

// handle is an open file of a link.
type handle struct {
	open  *smb2.File
	users sync.WaitGroup // raised under link.mu while the handle is in link.files
}

// file is a file of the directory that is read and written at offsets.
type file struct {
	name string
	made atomic.Bool // it exists on the server
	gone atomic.Bool // it is or was removed: it is not opened any more
}

// maxCredits is the number of credits that a link asks for: one for each 64 KiB of a request
// or its answer.
const maxCredits = 512

// dial connects to the server, logs in and mounts the share.
func dial(o *Options) (_ *link, err error) {
	ctx, cancel := clock.WithAwakeTimeout(context.Background(), o.Timeout, context.DeadlineExceeded)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err // it names the address
	}
	l := &link{conn: &watchedConn{Conn: raw, patience: o.Timeout}, files: make(map[*file]*handle)}
	defer func() {
		if err != nil {
			_ = l.conn.Close() // no request was sent
		}
	}()
	dialer := smb2.Dialer{
		MaxCreditBalance: maxCredits,
		Negotiator:       smb2.Negotiator{RequireMessageSigning: o.Sign},
		Initiator:        &smb2.NTLMInitiator{User: o.User, Password: o.Password, Domain: o.Domain},
	}
	if l.smb, err = dialer.DialConn(ctx, l.conn, o.Address); err != nil {
		return nil, fmt.Errorf("%s: log in as %s: %w", o.Address, o.User, err)
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	share, err := l.smb.WithContext(ctx).Mount(`\\` + host + `\` + o.Share)
	if err != nil {
		return nil, fmt.Errorf("%s: share %s: %w", o.Address, o.Share, err)
	}
	live, end := context.WithCancel(context.Background())
	l.share, l.end = share.WithContext(live), end
	return l, nil
}

// abandon closes the connection of a link that is broken or not needed any more, without
// logging out. Its pending requests fail.
func (l *link) abandon() {
	l.end()
	_ = l.conn.Close()
}

// close logs out and ends a link without pending requests.
func (l *link) close() error {
	var errs []error
	for _, h := range l.files {
		errs = append(errs, h.open.Close())
	}
	errs = append(errs, l.share.Umount(), l.smb.Logoff())
	l.abandon()
	return errors.Join(errs...)
}

// use calls do with the file, and opens it first if necessary.
func (l *link) use(d *Device, f *file, flags int, do func(*smb2.File) error) error {
	h, err := l.acquire(d, f, flags)
	if err != nil {
		return err
	}
	defer h.users.Done()
	return do(h.open)
}

func (l *link) acquire(d *Device, f *file, flags int) (*handle, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.files[f]
	if h == nil {
		if f.gone.Load() {
			return nil, fmt.Errorf("%s: %w", f.name, os.ErrNotExist)
		}
		open, err := l.share.OpenFile(d.path(f.name), os.O_RDWR|flags, 0o666)
		if err != nil {
			return nil, err
		}
		h = &handle{open: open}
		l.files[f] = h
	}
	h.users.Add(1)
	return h, nil
}

// shut closes the file, which is gone, after its users.
func (l *link) shut(f *file) error {
	l.mu.Lock()
	h := l.files[f]
	delete(l.files, f)
	l.mu.Unlock()
	if h == nil {
		return nil
	}
	h.users.Wait()
	return h.open.Close()
}
