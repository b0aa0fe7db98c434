// Package console serves a page on which an operator watches a process: its metrics, as they
// change, in charts and words. The page is embedded, and asks for nothing from elsewhere. It
// changes nothing. Where the process has tokens, the page asks for one and sends it with each
// request; what has no token sees the page, and no numbers.
//
//	/console/        the page
//	/console/state   the newest sample, as JSON for programs, with details such as a manager's SLOs
//	/console/live    the samples of the last minutes, and then each new one, as server-sent events
//
// The charts are drawn by uPlot 1.6.32 (assets/uPlot.*, with its licence), which comes from npm.
package console
