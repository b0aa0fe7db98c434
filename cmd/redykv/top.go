package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// topFlags are the flags of top.
type topFlags struct {
	every time.Duration
	count int
}

func newTopCmd() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top [ADMIN]",
		Short: "Show the metrics of a running server or manager as they change",
		Long: `Shows operations, latencies, where reads are answered, memory, tiers, commits and
checkpoints of a server that runs with --admin; or, of a manager that runs with
--metrics, how much memory is left, of how much, what caches have and cost, and how long
calls take. Each page covers the time since the previous one. On a terminal pages replace
each other; elsewhere they are printed one after the other.

ADMIN is the address of --admin or --metrics, host:port or a URL; default 127.0.0.1:6381.`,
		Example: "  redykv serve --admin 127.0.0.1:6381\n  redykv top\n\n" +
			"  redykv manager --metrics 127.0.0.1:7101\n  redykv top 127.0.0.1:7101",
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr := "127.0.0.1:6381"
			if len(args) > 0 {
				addr = args[0]
			}
			return f.run(cmd, addr)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.every, "every", time.Second, "time between two pages")
	flags.IntVar(&f.count, "count", 0, "pages to show; 0: until interrupted")
	return cmd
}

func (f *topFlags) run(cmd *cobra.Command, addr string) error {
	if err := checkURL("ADMIN", addr); err != nil {
		return err
	}
	switch {
	case addr == "":
		return usagef("ADMIN is empty: want host:port or a URL")
	case f.every < 10*time.Millisecond:
		return usagef("--every %v: want 10ms or more", f.every)
	case f.count < 0:
		return usagef("--count %d: want 0 or more", f.count)
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	before, err := scrape(ctx, addr)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for shown := 0; f.count == 0 || shown < f.count; shown++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := scrape(ctx, addr)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		page := topPage(addr, before, now)
		if isTerminal(out) {
			page = onScreen(page)
		}
		if _, err := io.WriteString(out, page); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// onScreen returns the page with escape codes that draw it over the previous one and clear the
// rest of the screen.
func onScreen(page string) string {
	return "\x1b[H" + strings.ReplaceAll(page, "\n", "\x1b[K\n") + "\x1b[J"
}

// scrapeTimeout bounds a request for metrics.
const scrapeTimeout = 10 * time.Second

// scrape requests the metrics, and of a server whether it is ready.
func scrape(ctx context.Context, url string) (*numbers, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	text, status, err := fetch(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics: %s", url, http.StatusText(status))
	}
	n, err := parseNumbers(text)
	if err != nil {
		return nil, fmt.Errorf("%s/metrics: %w", url, err)
	}
	if text, _, err = fetch(ctx, url+"/readyz"); err != nil {
		return nil, err
	}
	n.ready, n.at = strings.TrimSpace(text), time.Now()
	return n, nil
}

func fetch(ctx context.Context, url string) (text string, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", 0, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	return string(body), response.StatusCode, errors.Join(err, response.Body.Close())
}
