package allocator

import (
	"bytes"
	"log/slog"
	"strings"
)

// lastLine is a writer that logs each line of a process's standard error and keeps the
// last one, which usually says why the process ended. Only the goroutine that copies the
// output writes; last is called after it has ended.
type lastLine struct {
	log  *slog.Logger
	rest []byte // of an unfinished line
	line string
}

// maxLine bounds one line of output that is kept.
const maxLine = 4 << 10

func (l *lastLine) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, after, ended := bytes.Cut(p, []byte{'\n'})
		l.rest = append(l.rest, line[:min(len(line), maxLine-len(l.rest))]...)
		if !ended {
			return n, nil
		}
		l.end()
		p = after
	}
}

func (l *lastLine) end() {
	if text := strings.TrimSpace(string(l.rest)); text != "" {
		l.line = text
		l.log.Warn("cache server output", "line", text)
	}
	l.rest = l.rest[:0]
}

func (l *lastLine) last() string {
	l.end()
	return l.line
}

// endReason describes the end of a process whose last line of output is line.
func endReason(err error, line string) string {
	reason := "exited"
	if err != nil {
		reason = err.Error()
	}
	if line != "" {
		reason += ": " + line
	}
	return reason
}
