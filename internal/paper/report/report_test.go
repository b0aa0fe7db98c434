package report

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/net/html"

	"github.com/redykv/redykv/internal/browsertest"
	"github.com/redykv/redykv/internal/paper"
)

var testHead = paper.Head{
	Machine: "test <machine>", Kernel: "6.1", Revision: "abc", Scale: paper.Scale{Name: paper.Quick, Rounds: 3},
	Transport: "shm", Net: "2.9us,100Gbit", Started: time.Unix(0, 0).UTC(),
	LeftOut: []paper.LeftOut{{Trial: "small values", What: "smb", Reason: "no smbd & no share"}},
}

// testData returns data for every figure: each series of each chart at several points, in
// three rounds that differ.
func testData() *paper.Data {
	var all []paper.Measurement
	seen := make(map[string]bool)
	for _, f := range paper.Figures() {
		if seen[f.Trial] {
			continue
		}
		seen[f.Trial] = true
		metrics, series := []string{"p99_us"}, []string{"redy", "ssd", "smb", "tiered"}
		for _, other := range paper.Figures() {
			if other.Trial != f.Trial {
				continue
			}
			for _, c := range other.Charts {
				metrics = append(metrics, c.Metric, c.Tail)
				series = append(series, c.Series...)
				for _, l := range c.Lines {
					metrics = append(metrics, l.Metric)
				}
			}
		}
		for i, s := range slices.Compact(series) {
			for j, x := range []float64{1, 2, 4} {
				for round := 1; round <= 3; round++ {
					m := paper.Measurement{
						Trial: f.Trial, Turn: "t", Series: s, X: x, Round: round, Transport: "shm", Net: "2.9us,100Gbit", Setting: "some",
						Values: map[string]float64{}, Label: []string{"one", "two words", "three"}[j],
						Points: [][2]float64{{-1, 1}, {0, 0.5}, {1, 1.1}},
					}
					if i == 1 && j == 1 && round == 2 {
						m.Note = "redy <lost>"
					}
					for k, name := range metrics {
						if name != "" {
							m.Values[name] = math.Pow(3, float64(i)) * (x + 0.1*float64(round) + float64(k))
						}
					}
					all = append(all, m)
				}
			}
		}
	}
	return paper.NewData(all)
}

func testPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if err := WriteHTML(&b, testHead, paper.Figures(), testData()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page is complete and well formed, loads nothing, and shows every figure with its plots
// and claims.
func TestWriteHTML(t *testing.T) {
	text := testPage(t)
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	sections, plots := make(map[string]int), 0
	var walk func(n *html.Node, section string)
	walk = func(n *html.Node, section string) {
		if n.Type == html.ElementNode {
			for _, a := range n.Attr {
				if a.Key == "src" || a.Key == "href" && !strings.HasPrefix(a.Val, "#") || a.Key == "d" && strings.Contains(a.Val, "NaN") {
					t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
				}
				if n.Data == "section" && a.Key == "id" {
					section = a.Val
					sections[section] = 0
				}
			}
			if n.Data == "svg" {
				plots++
				sections[section]++
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, section)
		}
	}
	walk(root, "")
	for _, f := range paper.Figures() {
		if got := sections[f.Name]; got != len(f.Charts) {
			t.Errorf("%s has %d plots, want %d", f.Name, got, len(f.Charts))
		}
		for _, c := range f.Claims {
			if !strings.Contains(text, html.EscapeString(c.Text)) {
				t.Errorf("%s: no claim %q", f.Name, c.Text)
			}
		}
	}
	for _, want := range []string{"test &lt;machine&gt;", "no smbd &amp; no share", "redy &lt;lost&gt;", "does not hold", ">holds<", ">not measured<", ">reported<", "median of rounds", "2.9us,100Gbit", "measured by abc, judged by "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	for _, not := range []string{"NaN", "%!", "Infinity"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in the page", not)
		}
	}
	// Figures without measurements are not shown.
	var b strings.Builder
	if err := WriteHTML(&b, paper.Head{}, paper.Figures(), paper.NewData(nil)); err != nil || strings.Contains(b.String(), "<section") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// What is not measured and what constants give neither holds nor fails: not in the count, not in
// the list of what fails, and not in the table.
func TestOutcomes(t *testing.T) {
	at := func(series string) paper.At { return paper.At{Series: series, X: 1, Metric: "mops"} }
	claims := []paper.Claim{
		{Text: "first", Ours: at("a"), Holds: paper.AtLeast(1)},
		{Text: "second", Ours: at("a"), Holds: paper.AtMost(1)},
		{Text: "third", Ours: paper.Ratio{Over: at("a"), Under: at("smb")}, Holds: paper.AtLeast(1)},
		{Text: "fourth", Ours: at("a"), Constant: "by design"},
		{Text: "fifth", Ours: at("a")},
	}
	figures := []paper.Figure{{Name: "f", Trial: "t", Claims: claims}}
	d := paper.NewData([]paper.Measurement{{Trial: "t", Series: "a", X: 1, Round: 1, Values: map[string]float64{"mops": 2}}})
	var b strings.Builder
	if err := WriteHTML(&b, paper.Head{LeftOut: []paper.LeftOut{{Trial: "t", What: "smb", Reason: "no server"}}}, figures, d); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"<strong>1 of 2 claims that were judged hold; not counted: 1 not measured, 1 given by constants, 1 without a bound</strong>",
		`<span class="holds">holds</span>`, `<span class="fails">does not hold</span>: the cause is not known`,
		`<span class="">not measured</span>: smb at 1 of t was not measured; smb: no server`,
		`<span class="">a constant</span>: by design`, `<span class="">reported</span>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if _, failing, _ := strings.Cut(text, "What does not hold here"); !strings.Contains(failing, ">f</a>: second: 2, wanted at most 1.") || strings.Contains(failing, ">f</a>: third") {
		t.Error("another claim than the second is listed as failing")
	}
}

// measurePage is a script that runs in the page. It reports texts that overlap or leave their
// plot, and the contrast of every kind of text with its background.
const measurePage = `(() => {
	const problems = [];
	for (const svg of document.querySelectorAll('svg')) {
		const box = svg.getBoundingClientRect();
		if (box.width < 100) problems.push('a plot of ' + box.width + ' pixels');
		const names = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
		for (const [text, r] of names) {
			if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1)
				problems.push(svg.getAttribute('aria-label') + ': "' + text + '" reaches out of the plot');
		}
		const own = names.filter(([, r]) => r.left > box.left + box.width * 0.7);
		for (let i = 0; i < own.length; i++) for (let j = 0; j < i; j++) {
			const [a, b] = [own[i][1], own[j][1]];
			if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
				problems.push(svg.getAttribute('aria-label') + ': "' + own[i][0] + '" lies over "' + own[j][0] + '"');
		}
	}
	if (document.documentElement.scrollWidth > innerWidth) problems.push('the page is wider than its window');
	if (innerWidth > 1000) for (const table of document.querySelectorAll('table.claims')) {
		const box = table.parentElement;
		if (box.scrollWidth > box.clientWidth) problems.push('claims are cut off: ' + box.scrollWidth + ' of ' + box.clientWidth + ' pixels');
	}
	const rgb = s => s.match(/[\d.]+/g).slice(0, 3).map(Number);
	const light = s => { const [r, g, b] = rgb(s).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
	const ground = getComputedStyle(document.body).backgroundColor;
	const contrast = c => { const [a, b] = [light(c), light(ground)]; return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
	for (const el of document.querySelectorAll('p, td, th, h2, a, dd, span')) {
		const c = getComputedStyle(el).color;
		if (contrast(c) < 4.5) { problems.push(el.tagName + '.' + el.className + ' has a contrast of ' + contrast(c).toFixed(1)); break; }
	}
	for (const el of document.querySelectorAll('svg text')) {
		const c = getComputedStyle(el).fill;
		if (contrast(c) < 4) { problems.push('"' + el.textContent + '" has a contrast of ' + contrast(c).toFixed(1)); break; }
	}
	return {problems, ground, plots: document.querySelectorAll('svg').length};
})()`

// The page is legible, light and dark, on a desktop and on a phone.
func TestInChromium(t *testing.T) {
	text := testPage(t)
	ctx, url := browsertest.Open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && r.URL.Path != "/favicon.ico" {
			t.Errorf("the page asks for %s", r.URL)
		}
		_, _ = w.Write([]byte(text)) // an error means that the client has gone
	}))
	grounds := make(map[string]string)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1200, 400} {
			var got struct {
				Problems []string
				Ground   string
				Plots    int
			}
			err := chromedp.Run(ctx,
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.EmulateViewport(width, 900),
				chromedp.Navigate(url),
				chromedp.Evaluate(measurePage, &got),
			)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Problems) > 0 {
				t.Errorf("%s, %d pixels:\n%s", scheme, width, strings.Join(got.Problems, "\n"))
			}
			if got.Plots == 0 {
				t.Error("no plots")
			}
			grounds[scheme] = got.Ground
		}
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("light and dark are both %s", grounds["light"])
	}
}
