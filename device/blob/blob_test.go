package blob

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"
	gcblob "gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/ssdtier"
)

func TestMain(m *testing.M) {
	// The driver keeps idle connections.
	testrun.Main(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

var quiet = slog.New(slog.DiscardHandler)

// testOptions use small segments and upload continuously.
func testOptions() Options {
	return Options{SegmentSize: minSegmentSize, Every: time.Millisecond, Logger: quiet}
}

// s3Server is an S3 server with injected faults.
type s3Server struct {
	*httptest.Server
	requests atomic.Int64
	// fault returns the status with which a request fails; 0: no fault, -1: the connection is
	// closed.
	fault atomic.Pointer[func(n int64, r *http.Request) int]
}

func newS3(t *testing.T) *s3Server {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "us-east-1")
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s := &s3Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.requests.Add(1)
		status := 0
		if f := s.fault.Load(); f != nil {
			status = (*f)(n, r)
		}
		switch {
		case status == 0:
			handler.ServeHTTP(w, r)
		case status > 0:
			w.WriteHeader(status)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// url is the URL of the bucket.
func (s *s3Server) url() string {
	return fmt.Sprintf("s3://bucket?endpoint=%s&use_path_style=true&prefix=store/", s.URL)
}

func (s *s3Server) set(f func(n int64, r *http.Request) int) { s.fault.Store(&f) }

// openBucket opens a bucket that outlives the devices on it.
func openBucket(t *testing.T, url string) *gcblob.Bucket {
	t.Helper()
	b, err := gcblob.OpenBucket(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func memBucket(t *testing.T) *gcblob.Bucket {
	t.Helper()
	b := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func mustOpen(t *testing.T, local device.Device, b *gcblob.Bucket, opts Options) *Device {
	t.Helper()
	d, err := Open(t.Context(), local, b, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openSSD(t *testing.T, dir string) *ssdtier.Device {
	t.Helper()
	d, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeAll(t *testing.T, closers ...interface{ Close() error }) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// flush waits until everything is in the bucket.
func flush(t *testing.T, d *Device) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	if err := d.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestConformance reopens the device over the same local device, and over an empty one with
// the contents of the bucket.
func TestConformance(t *testing.T) {
	for name, bucket := range map[string]func(t *testing.T) *gcblob.Bucket{
		"memory": memBucket,
		"files":  func(t *testing.T) *gcblob.Bucket { return openBucket(t, "file://"+t.TempDir()+"?no_tmp_dir=true") },
		"S3":     func(t *testing.T) *gcblob.Bucket { return openBucket(t, newS3(t).url()) },
	} {
		for local, open := range map[string]func(t *testing.T, old device.Device) device.Device{
			"memory": func(t *testing.T, old device.Device) device.Device {
				if old != nil {
					return old.(*device.Memory).Reopen()
				}
				return device.NewMemory()
			},
			"ssd": func(t *testing.T, old device.Device) device.Device {
				if old != nil {
					return openSSD(t, old.(*ssdtier.Device).Dir())
				}
				return openSSD(t, t.TempDir())
			},
		} {
			for _, fresh := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, fresh %v", name, local, fresh), func(t *testing.T) {
					var b *gcblob.Bucket
					devicetest.Run(t, func(t *testing.T) device.Device {
						b = bucket(t)
						return mustOpen(t, open(t, nil), b, testOptions())
					}, devicetest.Reopen(func(t *testing.T, old device.Device) device.Device {
						var before device.Device
						if !fresh {
							before = old.(*Device).local
						}
						return mustOpen(t, open(t, before), b, testOptions())
					}), devicetest.Size(256<<10))
				})
			}
		}
	}
}
