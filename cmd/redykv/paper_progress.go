package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/redykv/redykv/internal/paper"
)

// paperProgress shows how far a run of experiments is: on a terminal as one bar that
// goes away, otherwise as a line now and then.
type paperProgress struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar
	said     time.Time
}

// sayEvery is how much time passes between two lines.
const sayEvery = 10 * time.Second

func newPaperProgress(w io.Writer) *paperProgress {
	f, ok := w.(*os.File)
	return &paperProgress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), said: time.Now()}
}

// turn is told of every turn.
func (p *paperProgress) turn(s paper.Standing) {
	left := s.Left.Round(time.Second)
	if !p.terminal {
		if time.Since(p.said) >= sayEvery {
			p.said = time.Now()
			fmt.Fprintf(p.w, "%s: %s: %d of %d turns done, about %v left\n", s.Trial, s.Turn, s.Done, s.Turns, left)
		}
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(s.Turns,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	p.bar.Describe(fmt.Sprintf("%s: %s, about %v left", s.Trial, s.Turn, left))
	_ = p.bar.Set(s.Done) // a bar that cannot be drawn is not worth failing for
}

// wipe takes the bar away until the next turn.
func (p *paperProgress) wipe() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
