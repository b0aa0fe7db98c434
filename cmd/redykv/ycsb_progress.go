package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/redykv/redykv/ycsb"
)

// newProgress shows progress on w if that is a terminal; otherwise there is
// nobody to look at it, and nil is returned.
func newProgress(w io.Writer) ycsb.Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &barProgress{w: f}
}

// barProgress draws one bar for each stage and wipes it away afterwards.
type barProgress struct {
	w   io.Writer
	bar *progressbar.ProgressBar // between Begin and End
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

// Add is safe for concurrent use, as the bar is. A bar that cannot be drawn is
// not worth failing a measurement for; neither is one that runs over its end.
func (p *barProgress) Add(n int64) { _ = p.bar.Add64(n) }

func (p *barProgress) End() { _ = p.bar.Finish() }
