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
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &barProgress{w: f}
}

// barProgress draws one bar per stage and removes it at the end.
type barProgress struct {
	w   io.Writer
	bar *progressbar.ProgressBar // nil except between Begin and End
}

func (p *barProgress) Begin(stage string, total int64) {
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(stage),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// Add is safe for concurrent use. Errors of drawing do not fail a measurement.
func (p *barProgress) Add(n int64) { _ = p.bar.Add64(n) }

func (p *barProgress) End() { _ = p.bar.Finish() }
