package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/redykv/redykv/internal/paper"
)

// paperProgress shows the progress of a run of experiments: a bar on a terminal, otherwise a
// line at intervals.
type paperProgress struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar
	printed  time.Time // when the last line was printed
}

// lineEvery is the interval between two lines.
const lineEvery = 10 * time.Second

func newPaperProgress(w io.Writer) *paperProgress {
	return &paperProgress{w: w, terminal: isTerminal(w), printed: time.Now()}
}

// turn is called for every turn.
func (p *paperProgress) turn(s paper.Standing) {
	left := s.Left.Round(time.Second)
	if !p.terminal {
		if time.Since(p.printed) >= lineEvery {
			p.printed = time.Now()
			fmt.Fprintf(p.w, "%s: %s: %d of %d turns done, about %v left\n", s.Trial, s.Turn, s.Done, s.Turns, left)
		}
		return
	}
	if p.bar == nil {
		p.bar = newBar(p.w, int64(s.Turns), progressbar.OptionSetPredictTime(false))
	}
	p.bar.Describe(fmt.Sprintf("%s: %s, about %v left", s.Trial, s.Turn, left))
	_ = p.bar.Set(s.Done) // a bar that cannot be drawn is no reason to fail
}

// wipe removes the bar until the next turn.
func (p *paperProgress) wipe() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
