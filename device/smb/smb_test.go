package smb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/testrun"
)

var quiet = slog.New(slog.DiscardHandler)

// shared is the server of all tests that do not damage it. The first of them starts it.
var shared struct {
	sync.Once
	server *smbd.Server
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	testrun.Exit(code)
}

// sharedServer returns the server that tests share.
func sharedServer(t testing.TB) *smbd.Server {
	t.Helper()
	testrun.SkipUnlessAll(t, "it starts Samba")
	shared.Do(func() { shared.server, shared.err = smbd.Start(t.Context()) })
	return started(t, shared.server, shared.err)
}

// ownServer returns a server that the test may kill.
func ownServer(t *testing.T) *smbd.Server {
	t.Helper()
	testrun.SkipUnlessAll(t, "it starts Samba")
	server, err := smbd.Start(t.Context())
	if err == nil {
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return started(t, server, err)
}

func started(t testing.TB, server *smbd.Server, err error) *smbd.Server {
	t.Helper()
	if errors.Is(err, smbd.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// optionsFor returns options for a directory of the server that is named after the test. The
// directory is removed when the test ends, so that the test can run again.
func optionsFor(t testing.TB, server *smbd.Server) Options {
	name := strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Join(server.Dir, "tests", name)); err != nil {
			t.Error(err)
		}
	})
	return Options{
		Address: server.Address, Share: smbd.ShareName, Dir: "tests/" + name,
		User: server.User, Password: server.Password, SegmentSize: 256 << 10, Logger: quiet,
	}
}

func mustOpen(t testing.TB, opts Options) *Device {
	t.Helper()
	d, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mustStart(t testing.TB, d device.Device, tail int64) {
	t.Helper()
	if err := d.Start(tail); err != nil {
		t.Fatal(err)
	}
}

// content returns bytes without repetitions.
func content(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// write writes bytes and returns the error.
func write(t testing.TB, d device.Device, b []byte, addr int64) error {
	t.Helper()
	return devicetest.Write(t, d, b, addr).Err
}

func TestConformance(t *testing.T) {
	server := sharedServer(t)
	for _, size := range []int64{minSegmentSize, DefaultSegmentSize} {
		t.Run(fmt.Sprintf("segments of %d", size), func(t *testing.T) {
			opens := 0
			var opts Options
			devicetest.Run(t, func(t *testing.T) device.Device {
				opens++
				opts = optionsFor(t, server)
				opts.SegmentSize = size
				opts.Dir += fmt.Sprintf("/%d", opens)
				return mustOpen(t, opts)
			}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device {
				opts.SegmentSize = 0 // read from the directory
				return mustOpen(t, opts)
			}))
		})
	}
}

// Options: the share's root directory, one session, one request at a time, signing.
func TestOtherOptions(t *testing.T) {
	opts := optionsFor(t, ownServer(t))
	opts.Dir, opts.Sessions, opts.Pipeline, opts.Sign = "", 1, 1, true
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	want := content(1, 1<<20)
	if err := write(t, d, want, 0); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, d, 4)
	defer p.Close()
	p.Read(make([]byte, len(want)), 0, want)
}

// files returns the names in a directory of the server that match a pattern.
func files(t *testing.T, server *smbd.Server, opts Options, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(server.Dir, opts.Dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Truncated space is freed, and stray files are removed when the directory is opened.
func TestSpace(t *testing.T) {
	server := sharedServer(t)
	opts := optionsFor(t, server)
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	size := int(opts.SegmentSize)
	if err := write(t, d, content(2, 4*size), 0); err != nil {
		t.Fatal(err)
	}
	if n := len(files(t, server, opts, "*.seg")); n != 4 {
		t.Errorf("%d segments, want 4", n)
	}
	if err := d.Truncate(int64(2*size + 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(files(t, server, opts, "*.seg")); n != 2 {
		t.Errorf("%d segments after truncation, want 2", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left := files(t, server, opts, "LOCK.*"); len(left) > 0 {
		t.Errorf("left behind %q", left)
	}
	for _, name := range []string{segmentName(0), "LOG.7.tmp", "meta.x.1.tmp", objectName(5), "LOCK.abc.0.0", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(server.Dir, opts.Dir, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, opts)
	var names []string
	for _, path := range files(t, server, opts, "*") {
		if name := filepath.Base(path); !strings.HasPrefix(name, lockPrefix) {
			names = append(names, name)
		}
	}
	if got, want := strings.Join(names, " "), "000000000002.seg 000000000003.seg LOG notes.txt"; got != want {
		t.Errorf("files %q, want %q", got, want)
	}
	if left := files(t, server, opts, "LOCK.abc*"); len(left) > 0 {
		t.Errorf("the lock of one who is gone is there")
	}
}

// A segment that cannot be removed is removed by the next Truncate at the same begin.
func TestTruncateAgain(t *testing.T) {
	server := sharedServer(t)
	opts := optionsFor(t, server)
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	size := int(opts.SegmentSize)
	if err := errors.Join(write(t, d, content(2, 2*size), 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	// What has the name of the first segment cannot be removed: a directory with a file.
	first := filepath.Join(server.Dir, opts.Dir, segmentName(0))
	within := filepath.Join(first, "file")
	if err := errors.Join(os.Remove(first), os.Mkdir(first, 0o777), os.WriteFile(within, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := d.Truncate(int64(size)); err == nil || d.Begin() != int64(size) {
		t.Errorf("%v, begin %d", err, d.Begin())
	}
	if err := errors.Join(os.RemoveAll(first), os.WriteFile(first, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := d.Truncate(int64(size)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the segment is still there: %v", err)
	}
}

// Data that the server lost or altered is reported.
func TestDamage(t *testing.T) {
	server := sharedServer(t)
	opts := optionsFor(t, server)
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	size := int(opts.SegmentSize)
	want := content(3, 3*size)
	if err := errors.Join(write(t, d, want, 0), d.WriteMeta("m", nil), d.Close()); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(server.Dir, opts.Dir, name) }
	if err := os.Truncate(at(segmentName(0)), 1000); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, opts)
	mustStart(t, d, int64(3*size))
	if err := os.Remove(at(segmentName(1))); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, d, 4)
	p.Read(make([]byte, 1000), 0, want[:1000])
	p.ReadFails(make([]byte, 1001), 0, device.ErrNotHeld)
	p.ReadFails(make([]byte, 10), 1000, device.ErrNotHeld)
	p.ReadFails(make([]byte, 10), int64(size), device.ErrCorrupt)
	p.Read(make([]byte, size), int64(2*size), want[2*size:])
	p.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]struct {
		file, text string
		corrupt    bool
	}{
		"head":         {headName, "redykv smb 1 segment 262144 begin -1\n", true},
		"head longer":  {headName, "redykv smb 1 segment 262144 begin 0\nmore", true},
		"version":      {headName, "redykv smb 2 segment 262144 begin 0\n", false},
		"segment size": {headName, "redykv smb 1 segment 12345 begin 0\n", false},
		"other size":   {headName, "redykv smb 1 segment 524288 begin 0\n", false},
		"catalog":      {catalogName, "1 2\n", true},
	} {
		kept, _ := os.ReadFile(at(spoil.file)) // the catalog need not exist
		if err := os.WriteFile(at(spoil.file), []byte(spoil.text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), opts)
		if !errors.Is(err, ErrFormat) || errors.Is(err, device.ErrCorrupt) != spoil.corrupt {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(at(spoil.file), kept, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(at(headName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), opts); !errors.Is(err, ErrFormat) {
		t.Errorf("without %s: %v", headName, err)
	}
}

// cut breaks the connections of some of a device's sessions.
func cut(d *Device, sessions ...int) {
	for _, i := range sessions {
		s := d.sessions[i]
		s.mu.Lock()
		if s.link != nil {
			_ = s.link.conn.Close()
		}
		s.mu.Unlock()
	}
}

// When connections break, reads continue, and objects and metadata stay readable.
func TestConnectionsBreak(t *testing.T) {
	d := mustOpen(t, optionsFor(t, sharedServer(t)))
	mustStart(t, d, 0)
	want := content(4, 1<<20)
	if err := errors.Join(write(t, d, want, 0), d.Sync(), d.WriteMeta("m", []byte("kept"))); err != nil {
		t.Fatal(err)
	}
	w, err := d.CreateObject("o")
	if err == nil {
		_, err = w.Write(want)
	}
	if err = errors.Join(err, w.Commit()); err != nil {
		t.Fatal(err)
	}
	o, err := d.OpenObject("o")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := devicetest.NewPump(t, d, 40)
	defer p.Close()
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 3000 {
		if i%500 == 100 {
			cut(d, r.IntN(2))
		}
		if i%500 == 300 {
			cut(d, 0, 1)
		}
		at := r.IntN(len(want))
		n := 1 + r.IntN(min(len(want)-at, 10_000))
		p.Read(make([]byte, n), int64(at), want[at:at+n])
		if i%500 == 301 {
			testrun.Bytes(d.ReadMeta("m")).Want(t, []byte("kept"), "metadata")
			got := make([]byte, len(want))
			_, err := o.ReadAt(got, 0)
			testrun.Bytes(got, err).Want(t, want, "an object")
		}
	}
	p.Drain()
	// No write was pending or unsynced, so writing continues.
	if err := errors.Join(write(t, d, want, 1<<20), d.Sync()); err != nil {
		t.Error(err)
	}
}

// If a connection breaks while writes are not durable, all writes, and reads of what was written, fail
// until Start.
func TestDoubt(t *testing.T) {
	d := mustOpen(t, optionsFor(t, sharedServer(t)))
	mustStart(t, d, 0)
	want := content(5, 1000)
	if err := errors.Join(write(t, d, want, 0), d.Sync(), write(t, d, want, 1000)); err != nil {
		t.Fatal(err)
	}
	cut(d, 0, 1)
	check := func() {
		t.Helper()
		p := devicetest.NewPump(t, d, 1)
		p.Read(make([]byte, 1000), 0, want)
		p.Close()
	}
	check() // the device has noticed the break
	p := devicetest.NewPump(t, d, 2)
	p.ReadFails(make([]byte, 1000), 1000, ErrDoubt)
	p.ReadFails(make([]byte, 2), 999, ErrDoubt)
	p.Close()
	w, createErr := d.CreateObject("o")
	if createErr == nil {
		_, createErr = w.Write(want)
		createErr = errors.Join(createErr, w.Commit())
	}
	for what, err := range map[string]error{
		"write": write(t, d, want, 2000), "sync": d.Sync(), "truncate": d.Truncate(1), "metadata": d.WriteMeta("m", nil), "object": createErr,
	} {
		if !errors.Is(err, ErrDoubt) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want ErrDoubt in one line", what, err)
		}
	}
	check()
	// The server releases a connection only when it notices that it is broken, with a delay.
	testrun.UntilNil(t, func() error { return d.Start(1000) })
	if err := errors.Join(write(t, d, want, 1000), d.Sync()); err != nil {
		t.Error(err)
	}
	check()
}

// The device reconnects to a server that crashed and was restarted.
func TestServerCrashes(t *testing.T) {
	server := ownServer(t)
	d := mustOpen(t, optionsFor(t, server))
	mustStart(t, d, 0)
	want := content(6, 100_000)
	if err := errors.Join(write(t, d, want, 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	// Nothing is pending: the next write uses new connections.
	server.Kill()
	for _, s := range d.sessions {
		testrun.Until(t, "the connection is broken", s.link.conn.broken.Load)
	}
	if err := server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(t, d, want, 0), d.Sync()); err != nil {
		t.Error(err)
	}
	server.Kill()
	p := devicetest.NewPump(t, d, 8)
	for i := range 8 {
		p.Read(make([]byte, 1000), int64(i*1000), want[i*1000:][:1000])
	}
	if err := server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := errors.Join(write(t, d, want, 100_000), d.Sync()); err != nil {
		t.Error(err)
	}
}

// setTimeout changes the timeout of a device without requests under way, and of its connections.
func setTimeout(d *Device, timeout time.Duration) {
	d.opts.Timeout = timeout
	for _, s := range d.sessions {
		s.mu.Lock()
		if s.link != nil {
			s.link.conn.mu.Lock()
			s.link.conn.patience = timeout
			s.link.conn.mu.Unlock()
		}
		s.mu.Unlock()
	}
}

// A server that hangs is given up after the timeout, and used again when it answers.
func TestServerHangs(t *testing.T) {
	server := ownServer(t)
	opts := optionsFor(t, server)
	opts.Timeout = testrun.Patience(DefaultTimeout)
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	want := content(7, 10_000)
	if err := errors.Join(write(t, d, want, 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	setTimeout(d, time.Second)
	p := devicetest.NewPump(t, d, 8)
	for i := range 8 {
		p.ReadFails(make([]byte, 1000), int64(i*1000), ErrDisconnected)
	}
	p.Close()
	if err := write(t, d, want, 10_000); !errors.Is(err, ErrDisconnected) && !errors.Is(err, ErrDoubt) {
		t.Errorf("write: %v", err)
	}
	server.Resume()
	setTimeout(d, opts.Timeout)
	testrun.UntilNil(t, func() error { return d.Start(10_000) })
	p = devicetest.NewPump(t, d, 8)
	p.Read(make([]byte, len(want)), 0, want)
	p.Close()
}

// A directory belongs to one device. A device whose lock was taken over notices.
func TestLock(t *testing.T) {
	opts := optionsFor(t, sharedServer(t))
	d := mustOpen(t, opts)
	mustStart(t, d, 0)
	if err := errors.Join(write(t, d, []byte("mine"), 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Open(t.Context(), opts); !errors.Is(err, ErrLocked) {
			t.Fatalf("opening it again: %v, want ErrLocked", err)
		}
	}
	cut(d, 0)
	if _, err := Open(t.Context(), opts); !errors.Is(err, ErrLocked) {
		t.Fatalf("opening it while one session holds it: %v, want ErrLocked", err)
	}
	// The sessions end as if the machine was disconnected.
	for _, s := range d.sessions {
		s.mu.Lock()
		s.retryAt = time.Now().Add(time.Hour)
		s.mu.Unlock()
	}
	cut(d, 0, 1)
	var other *Device
	testrun.UntilNil(t, func() (err error) {
		other, err = Open(t.Context(), opts)
		return err
	})
	mustStart(t, other, 0)
	if err := errors.Join(write(t, other, []byte("hers"), 0), other.Sync()); err != nil {
		t.Fatal(err)
	}
	for _, s := range d.sessions {
		s.mu.Lock()
		s.retryAt = time.Time{}
		s.mu.Unlock()
	}
	refused := func() {
		t.Helper()
		p := devicetest.NewPump(t, d, 1)
		p.ReadFails(make([]byte, 4), 0, ErrLocked)
		p.Close()
		for what, err := range map[string]error{"write": write(t, d, []byte("mine"), 0), "Start": d.Start(0)} {
			if !errors.Is(err, ErrLocked) {
				t.Errorf("%s: %v, want ErrLocked", what, err)
			}
		}
	}
	refused()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	refused()
}

func TestOpenRefuses(t *testing.T) {
	server := sharedServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no address":   func(o *Options) { o.Address = "" },
		"no share":     func(o *Options) { o.Share = "" },
		"share":        func(o *Options) { o.Share = "a/b" },
		"other share":  func(o *Options) { o.Share = "nowhere" },
		"no user":      func(o *Options) { o.User = "" },
		"other user":   func(o *Options) { o.User = "nobody-of-that-name" },
		"password":     func(o *Options) { o.Password = "wrong" },
		"sessions":     func(o *Options) { o.Sessions = -1 },
		"pipeline":     func(o *Options) { o.Pipeline = maxPipeline + 1 },
		"segment size": func(o *Options) { o.SegmentSize = 12345 },
		"timeout":      func(o *Options) { o.Timeout = -1 },
		"no server":    func(o *Options) { o.Address = nobody },
	} {
		opts := optionsFor(t, server)
		spoil(&opts)
		d, err := Open(t.Context(), opts)
		if err == nil {
			_ = d.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "smb: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an error in one line", name, err)
		}
		if strings.Contains(fmt.Sprint(err), server.Password) {
			t.Errorf("%s: the error has the password", name)
		}
	}
	if _, err := os.Stat(filepath.Join(server.Dir, optionsFor(t, server).Dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]Options{
		"smb://anne:secret@files.example/data/logs/one": {
			Address: "files.example", Share: "data", Dir: "logs/one", User: "anne", Password: "secret",
		},
		"smb://EXAMPLE;anne:se%2Fcret@[::1]:4450/data": {
			Address: "[::1]:4450", Share: "data", User: "anne", Password: "se/cret", Domain: "EXAMPLE",
		},
	} {
		if got, err := ParseURL(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "smb://", "smb://host", "smb:host/share", "http://host/share", "smb://u:s3cret@/share", "smb://u:s3cret@h%zz/share", "smb://u@h/s?x=1"} {
		_, err := ParseURL(raw)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want an error without the password", raw, err)
		}
	}
	o := Options{Address: "[fe80::1]", Share: "s", User: "u", Dir: `\a/../b//c\`}
	if err := o.ensureDefaults(); err != nil || o.Address != "[fe80::1]:445" || o.Dir != "b/c" {
		t.Errorf("%q, %q, %v", o.Address, o.Dir, err)
	}
}

// Parsers accept exactly what is written.
func FuzzFormat(f *testing.F) {
	f.Add("redykv smb 1 segment 262144 begin 77\n")
	f.Add("1 2 name\n3 4 other\n")
	f.Fuzz(func(t *testing.T, text string) {
		if version, segment, begin, ok := parseHead([]byte(text)); ok && fmt.Sprintf(headLine, version, segment, begin) != text {
			t.Errorf("%q is read as a head", text)
		}
		if byName, ok := parseCatalog([]byte(text)); ok && len(byName) != strings.Count(text, "\n") {
			t.Errorf("%q is read as %d objects", text, len(byName))
		}
	})
}
