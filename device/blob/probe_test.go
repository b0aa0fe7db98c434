package blob

import (
	"errors"
	"net/http"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// ignoreConditions makes the bucket ignore that a blob must not exist.
func (s *s3Server) ignoreConditions() {
	s.set(func(_ int64, r *http.Request) int {
		r.Header.Del("If-None-Match")
		return 0
	})
}

// TestUnconditional: a bucket that ignores the condition of a write is refused, empty or not,
// unless this machine is the only writer.
func TestUnconditional(t *testing.T) {
	s3 := newS3(t)
	s3.ignoreConditions()
	b := openBucket(t, s3.url())
	refused := func() {
		t.Helper()
		local := device.NewMemory()
		if d, err := Open(t.Context(), local, b, testOptions()); !errors.Is(err, ErrUnconditional) {
			t.Errorf("%v, %v, want ErrUnconditional", d, err)
		}
		closeAll(t, local)
	}
	refused()
	opts := testOptions()
	opts.OnlyWriter = true
	d, content := filled(t, device.NewMemory(), b, opts, 1000)
	closeAll(t, d)
	refused()
	d = mustOpen(t, device.NewMemory(), b, opts)
	defer closeAll(t, d)
	if err := d.Prepare(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, d, len(content), 0); err != nil || string(got) != string(content) {
		testrun.Wrong(t, "%v, or wrong bytes", err)
	}
}

// TestUnconditionalLater: if the bucket is not reachable when the device is opened, it is
// checked before the first upload.
func TestUnconditionalLater(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	local := device.NewMemory()
	d, content := filled(t, local, b, testOptions(), 1000)
	closeAll(t, d)
	before := names(t, b)
	s3.set(func(int64, *http.Request) int { return http.StatusForbidden })
	d = mustOpen(t, local.Reopen(), b, testOptions())
	defer closeAll(t, d)
	s3.ignoreConditions()
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(t.Context()); !errors.Is(err, ErrUnconditional) {
		t.Errorf("%v, want ErrUnconditional", err)
	}
	if err := d.WriteMeta("meta", nil); !errors.Is(err, ErrUnconditional) {
		t.Errorf("%v, want ErrUnconditional", err)
	}
	if after := names(t, b); len(after) != len(before) {
		t.Errorf("the bucket has %q, want %q", after, before)
	}
}
