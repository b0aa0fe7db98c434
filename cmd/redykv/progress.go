package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// newProgress returns a progress bar on w if that is a terminal, otherwise nil.
func newProgress(w io.Writer) ycsb.Progress {
	if !isTerminal(w) {
		return nil
	}
	return &barProgress{w: w}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newBar returns a bar that is removed at the end.
func newBar(w io.Writer, total int64, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total, append(more, progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())...)
}

// newPending returns a redytier.Config.Progress that draws what is pending on w, cut to one
// line, if that is a terminal, otherwise nil: then it is logged.
func newPending(w io.Writer) func(pending []string) {
	if !isTerminal(w) {
		return nil
	}
	var mu sync.Mutex // guards bar: a measurement may have several caches
	bar := newBar(w, -1, progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionSetElapsedTime(false))
	return func(pending []string) {
		mu.Lock()
		defer mu.Unlock()
		if len(pending) == 0 {
			_ = bar.Clear()
			return
		}
		bar.Describe(oneLine(pending, columns(w)-len("-   ")-1))
	}
}

// drawOpening returns a kv.EventListener.Recovering that draws how far the opening of a store is,
// and a function for its end. Without a progress bar it draws nothing.
func drawOpening(bar ycsb.Progress) (recovering func(kv.RecoveringInfo), end func()) {
	if bar == nil {
		return nil, func() {}
	}
	var now kv.RecoveringInfo // of the bar that is drawn; no What: there is none
	end = func() {
		if now.What != "" {
			bar.End()
			now.What = ""
		}
	}
	return func(i kv.RecoveringInfo) {
		// The log is read again if a copy of the index is wrong.
		if i.What != now.What || i.Bytes != now.Bytes || i.Read < now.Read {
			end()
			bar.Begin("reading the "+i.What, i.Bytes)
			now = kv.RecoveringInfo{What: i.What, Bytes: i.Bytes}
		}
		bar.Add(i.Read - now.Read)
		now.Read = i.Read
	}, end
}

// oneLine returns the first of several lines, cut to a width, and the number of the others.
func oneLine(lines []string, width int) string {
	line, more := lines[0], ""
	if n := len(lines) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	if room := max(0, width-len(more)); len(line) > room {
		line = strings.ToValidUTF8(line[:room], "")
	}
	return line + more
}

// columns returns the width of a terminal.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// barProgress draws one bar per stage.
type barProgress struct {
	w   io.Writer
	bar *progressbar.ProgressBar // nil except between Begin and End
}

func (p *barProgress) Begin(stage string, total int64) {
	p.bar = newBar(p.w, total, progressbar.OptionSetDescription(stage),
		progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond))
}

// Add is safe for concurrent use. Errors of drawing do not fail a measurement.
func (p *barProgress) Add(n int64) { _ = p.bar.Add64(n) }

func (p *barProgress) End() { _ = p.bar.Finish() }
