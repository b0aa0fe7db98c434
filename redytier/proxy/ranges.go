package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// span is the addresses from to to-1 of a cache.
type span struct{ from, to int64 }

func (s span) length() int64 { return s.to - s.from }

// requestedRange returns the bytes that a read asks for, and whether it asks for a part. As
// RFC 9110 requires, the header is ignored if its unit is not bytes, or with If-Range, as there
// are no validators.
func requestedRange(h http.Header, capacity int64) (at span, part bool, err error) {
	text, bytes := cutUnit(h.Get("Range"), "=")
	if !bytes || h.Get("If-Range") != "" {
		return span{0, capacity}, false, nil
	}
	at, err = parseRange(text, capacity)
	return at, true, err
}

// parseRange parses the ranges of a header Range without its unit. Only one range is allowed:
// several would need an answer of several parts.
func parseRange(text string, capacity int64) (at span, err error) {
	first, last, ok := strings.Cut(strings.TrimSpace(text), "-")
	from, fromOK := parseNumber(first)
	to, toOK := parseNumber(last)
	switch {
	case !ok || strings.Contains(text, ",") || first == "" && !toOK || first != "" && !fromOK || last != "" && !toOK || first != "" && last != "" && to < from:
		return at, problemf(CodeInvalid, "Range: bytes=%.60q: want one range such as bytes=0-4095", text)
	case first == "": // the last bytes
		at = span{capacity - min(to, capacity), capacity}
	case last == "" || to >= capacity:
		at = span{from, capacity}
	default:
		at = span{from, to + 1}
	}
	if at.from >= at.to {
		return at, outOfRange(capacity, "Range: bytes=%.60s: the cache has the bytes 0 to %d", text, capacity-1)
	}
	return at, nil
}

// contentRange returns the bytes that a write replaces: all without a header Content-Range.
func contentRange(h http.Header, capacity int64) (span, error) {
	header := h.Get("Content-Range")
	if header == "" {
		return span{0, capacity}, nil
	}
	text, bytes := cutUnit(header, " ")
	if !bytes {
		return span{}, problemf(CodeInvalid, "Content-Range: %.60q: want bytes FROM-TO/*", header)
	}
	return parseContentRange(text, capacity)
}

// parseContentRange parses a header Content-Range without its unit. Unlike a range to read it
// must be within the cache.
func parseContentRange(text string, capacity int64) (at span, err error) {
	bounds, length, ok := strings.Cut(strings.TrimSpace(text), "/")
	first, last, bounded := strings.Cut(bounds, "-")
	from, fromOK := parseNumber(first)
	to, toOK := parseNumber(last)
	total, totalOK := parseNumber(length)
	switch {
	case !ok || !bounded || !fromOK || !toOK || to < from || length != "*" && !totalOK:
		return at, problemf(CodeInvalid, "Content-Range: bytes %.60q: want one such as bytes 0-4095/*", text)
	case length != "*" && total != capacity:
		return at, problemf(CodeInvalid, "Content-Range: bytes %.60s: the cache has %d bytes, not %d", text, capacity, total)
	case to >= capacity:
		return at, outOfRange(capacity, "Content-Range: bytes %.60s: the cache has the bytes 0 to %d", text, capacity-1)
	}
	return span{from, to + 1}, nil
}

// cutUnit returns what follows the unit bytes in a header. Units are not case-sensitive.
func cutUnit(header, separator string) (rest string, bytes bool) {
	unit, rest, ok := strings.Cut(strings.TrimSpace(header), separator)
	return rest, ok && strings.EqualFold(strings.TrimSpace(unit), "bytes")
}

// parseNumber parses a number without a sign. One that exceeds an int64 is not a number: no
// address is that high.
func parseNumber(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

func outOfRange(capacity int64, format string, args ...any) error {
	p := problemf(CodeOutOfRange, format, args...)
	p.header("Content-Range", fmt.Sprintf("bytes */%d", capacity))
	return p
}
