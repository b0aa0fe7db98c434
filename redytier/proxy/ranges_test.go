package proxy

import (
	"net/http"
	"testing"
)

// A range to read is as in RFC 9110; one range only.
func TestRange(t *testing.T) {
	for _, x := range []struct {
		header   string
		from, to int64 // to 0: an error
		part     bool
		code     Code
	}{
		{"", 0, 1000, false, ""},
		{"bytes=0-0", 0, 1, true, ""},
		{"bytes=10-19", 10, 20, true, ""},
		{"Bytes = 10-19", 10, 20, true, ""},
		{"bytes=990-", 990, 1000, true, ""},
		{"bytes=990-5000", 990, 1000, true, ""},
		{"bytes=-10", 990, 1000, true, ""},
		{"bytes=-5000", 0, 1000, true, ""},
		{"items=0-1", 0, 1000, false, ""},
		{"bytes", 0, 1000, false, ""},
		{"bytes=1000-", 0, 0, true, CodeOutOfRange},
		{"bytes=1000-1000", 0, 0, true, CodeOutOfRange},
		{"bytes=-0", 0, 0, true, CodeOutOfRange},
		{"bytes=", 0, 0, true, CodeInvalid},
		{"bytes=-", 0, 0, true, CodeInvalid},
		{"bytes=5", 0, 0, true, CodeInvalid},
		{"bytes=5-4", 0, 0, true, CodeInvalid},
		{"bytes=+5-7", 0, 0, true, CodeInvalid},
		{"bytes=5--7", 0, 0, true, CodeInvalid},
		{"bytes=0-1,2-3", 0, 0, true, CodeInvalid},
		{"bytes=0-9223372036854775808", 0, 0, true, CodeInvalid},
		{"bytes=9223372036854775807-9223372036854775807", 0, 0, true, CodeOutOfRange},
		{"bytes=0-9223372036854775807", 0, 1000, true, ""},
	} {
		at, part, err := requestedRange(http.Header{"Range": {x.header}}, 1000)
		if x.code != "" {
			if err == nil || problemOf(err).code != x.code {
				t.Errorf("%q: %v, %v", x.header, at, err)
			}
		} else if err != nil || at != (span{x.from, x.to}) || part != x.part {
			t.Errorf("%q: %v, %v, %v", x.header, at, part, err)
		}
	}
	if at, part, err := requestedRange(http.Header{"Range": {"bytes=1-2"}, "If-Range": {`"x"`}}, 1000); at != (span{0, 1000}) || part || err != nil {
		t.Errorf("with If-Range: %v, %v, %v", at, part, err)
	}
}

func TestContentRange(t *testing.T) {
	for _, x := range []struct {
		header   string
		from, to int64
		code     Code
	}{
		{"", 0, 1000, ""},
		{"bytes 0-0/*", 0, 1, ""},
		{"bytes 990-999/1000", 990, 1000, ""},
		{"bytes 990-1000/*", 0, 0, CodeOutOfRange},
		{"bytes 0-9223372036854775807/*", 0, 0, CodeOutOfRange},
		{"bytes 0-9/999", 0, 0, CodeInvalid},
		{"bytes 9-0/*", 0, 0, CodeInvalid},
		{"bytes 0-9", 0, 0, CodeInvalid},
		{"bytes 0-/*", 0, 0, CodeInvalid},
		{"bytes -9/*", 0, 0, CodeInvalid},
		{"bytes */1000", 0, 0, CodeInvalid},
		{"bytes=0-9/*", 0, 0, CodeInvalid},
		{"0-9/*", 0, 0, CodeInvalid},
	} {
		at, err := contentRange(http.Header{"Content-Range": {x.header}}, 1000)
		if x.code != "" {
			if err == nil || problemOf(err).code != x.code {
				t.Errorf("%q: %v, %v", x.header, at, err)
			}
		} else if err != nil || at != (span{x.from, x.to}) {
			t.Errorf("%q: %v, %v", x.header, at, err)
		}
	}
}

// Whatever the headers are, a range is within the cache and not empty.
func FuzzRanges(f *testing.F) {
	for _, seed := range []string{"bytes=0-9", "bytes=-9", "bytes=9-", "bytes 0-9/*", "bytes 0-9/1000", "bytes=9223372036854775807-", "items=1", "bytes=0-1,2-3", "-", "/"} {
		f.Add(seed, int64(1000))
	}
	f.Fuzz(func(t *testing.T, header string, capacity int64) {
		if capacity < 1 {
			return
		}
		read, _, readErr := requestedRange(http.Header{"Range": {header}}, capacity)
		write, writeErr := contentRange(http.Header{"Content-Range": {header}}, capacity)
		for at, err := range map[span]error{read: readErr, write: writeErr} {
			switch {
			case err != nil:
				if code := problemOf(err).code; code != CodeInvalid && code != CodeOutOfRange {
					t.Errorf("%q: %v", header, err)
				}
			case at.from < 0 || at.from >= at.to || at.to > capacity:
				t.Errorf("%q: %v of %d", header, at, capacity)
			}
		}
	})
}
