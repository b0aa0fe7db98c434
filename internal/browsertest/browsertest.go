// Package browsertest opens a real browser for tests of pages.
package browsertest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/redykv/redykv/internal/testrun"
)

// Path returns the path of Chromium; empty if there is none.
func Path() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	return ""
}

// patience bounds the life of a browser.
var patience = testrun.Patience(5 * time.Minute)

// Start returns a context in which [chromedp.Run] runs actions in a headless Chromium that it
// starts. stop ends it, and returns the errors of the pages' scripts.
func Start(ctx context.Context) (_ context.Context, stop func() error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(Path()), chromedp.NoSandbox, chromedp.WSURLReadTimeout(testrun.Patience(time.Minute)))
	ctx, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	ctx, endWait := context.WithTimeout(ctx, patience)
	ctx, endTab := chromedp.NewContext(ctx)
	var mu sync.Mutex // guards failed
	var failed []string
	chromedp.ListenTarget(ctx, func(e any) {
		if e, ok := e.(*runtime.EventExceptionThrown); ok {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, e.ExceptionDetails.Error())
		}
	})
	return ctx, func() error {
		endTab()
		endWait()
		endBrowser()
		mu.Lock()
		defer mu.Unlock()
		if len(failed) > 0 {
			return errors.New("the page's scripts: " + strings.Join(failed, "; "))
		}
		return nil
	}
}

// Open is Start for a test, with a server of the page, whose URL it returns. The test is skipped
// without Chromium.
func Open(t *testing.T, page http.Handler) (context.Context, string) {
	t.Helper()
	if Path() == "" {
		t.Skip("there is no Chromium on this machine")
	}
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	ctx, stop := Start(t.Context())
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return ctx, server.URL
}
