package console

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	every = time.Second
	// kept is the number of samples for a page that is opened.
	kept = 300
	// behind is how many samples a page may be late. One that is later has to connect again.
	behind = 8
)

// Options describe the process that is watched.
type Options struct {
	Kind    string // store or manager
	Version string
	Metrics prometheus.Gatherer
	Status  func() string // Ready, or why not, in words; called from any goroutine
	// Details, if set, are what programs get besides the newest sample; called from any goroutine.
	Details func() any
	Logger  *slog.Logger
}

// Ready is the status of a process that does its work.
const Ready = "ready"

// Console takes a sample every second and hands it to the pages that are open. Its methods are
// safe for concurrent use.
type Console struct {
	opts    Options
	sampled sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context // ends at Close

	mu      sync.Mutex // guards the fields below
	samples []*Sample  // the last ones, the oldest first; they do not change
	pages   map[chan *Sample]bool
}

// New returns a Console that samples until Close.
func New(opts Options) *Console {
	c := &Console{opts: opts, pages: make(map[chan *Sample]bool)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.add(c.take())
	c.sampled.Go(c.run)
	return c
}

// Close ends the samples and the connections of pages.
func (c *Console) Close() {
	c.stop()
	c.sampled.Wait()
}

func (c *Console) run() {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			c.add(c.take())
		}
	}
}

// take takes a sample. Metrics that cannot be gathered are missing in it.
func (c *Console) take() *Sample {
	families, err := c.opts.Metrics.Gather()
	if err != nil {
		c.opts.Logger.Warn("gathering metrics for the console", "err", err)
	}
	s := &Sample{Kind: c.opts.Kind, Version: c.opts.Version, At: time.Now().UnixMilli(), Status: c.opts.Status()}
	s.setNumbers(families)
	return s
}

// add keeps a sample, and hands it to all pages. A page that is too late is dropped.
func (c *Console) add(s *Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.samples) == kept {
		c.samples = c.samples[1:]
	}
	c.samples = append(c.samples, s)
	for page := range c.pages {
		select {
		case page <- s:
		default:
			delete(c.pages, page)
			close(page)
		}
	}
}

// newest returns the last sample.
func (c *Console) newest() *Sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.samples[len(c.samples)-1]
}

// open returns the samples so far, and a channel for those to come, which is closed when its
// receiver is too late.
func (c *Console) open() ([]*Sample, chan *Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	page := make(chan *Sample, behind)
	c.pages[page] = true
	return append([]*Sample(nil), c.samples...), page
}

// leave ends a page.
func (c *Console) leave(page chan *Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pages, page)
}
