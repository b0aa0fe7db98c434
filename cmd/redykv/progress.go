package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

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
