package main

import (
	"context"
	"regexp"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/browsertest"
)

// browserKey is the key of a script's browser, a *browser.
type browserKey struct{}

type browser struct {
	t   testscript.T
	ctx context.Context // nil: it is not started
}

// cmdBrowse opens a page in the script's browser.
func cmdBrowse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: browse URL")
	}
	b := ts.Value(browserKey{}).(*browser)
	if b.ctx == nil {
		ctx, stop := browsertest.Start(context.Background())
		b.ctx = ctx
		ts.Defer(func() {
			if err := stop(); err != nil {
				b.t.Log(err)
				b.t.FailNow()
			}
		})
	}
	ts.Check(chromedp.Run(b.ctx, chromedp.Navigate(args[0])))
}

// cmdSignIn gives a token to the page.
func cmdSignIn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: signin TOKEN")
	}
	ts.Check(chromedp.Run(ts.Value(browserKey{}).(*browser).ctx,
		chromedp.WaitVisible("#token", chromedp.ByID), chromedp.SendKeys("#token", args[0]+kb.Enter, chromedp.ByID)))
}

// cmdSees waits until the text of the page matches.
func cmdSees(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sees REGEXP")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	ctx, text := ts.Value(browserKey{}).(*browser).ctx, ""
	for {
		last := text
		if err := chromedp.Run(ctx, chromedp.Evaluate("document.body.innerText", &text)); err != nil {
			ts.Fatalf("the page has no %q, but\n%s\n%v", want, last, err)
		}
		if want.MatchString(text) {
			return
		}
		// Until the page has changed; its samples change it.
		_ = chromedp.Run(ctx, chromedp.PollFunction("before => document.body.innerText !== before", nil, chromedp.WithPollingArgs(text)))
	}
}
