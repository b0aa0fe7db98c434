package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The scripts in testdata show a surface's predictions and searches.
//
//	surface c= b= opt= q=    measured: lines of "c,s,b,q latency_us mops"
//	predict                  lines of "c,s,b,q"
//	search latency= mops=    0 or omitted: any
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/search", func(t *testing.T, path string) {
		var f *Surface
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "surface":
				var space Space
				d.ScanArgs(t, "c", &space.C)
				d.ScanArgs(t, "b", &space.B)
				d.ScanArgs(t, "opt", &space.Opt)
				d.ScanArgs(t, "q", &space.Q)
				measured := map[Config]Performance{}
				for line := range strings.Lines(d.Input) {
					at, p := Config{}, Performance{}
					if _, err := fmt.Sscanf(line, "%d,%d,%d,%d %g %g", &at.C, &at.S, &at.B, &at.Q, &p.LatencyUs, &p.Mops); err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					measured[at] = p
				}
				var err error
				if f, err = NewSurface(space, measured); err != nil {
					return err.Error()
				}
				return fmt.Sprintf("%d configurations, %d measured, monotone: %v", space.Leaves(), len(measured), f.monotone)
			case "predict":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					at := Config{}
					if _, err := fmt.Sscanf(line, "%d,%d,%d,%d", &at.C, &at.S, &at.B, &at.Q); err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					p := f.At(at)
					fmt.Fprintf(&out, "%v: %.4g us, %.4g Mop/s\n", at, p.LatencyUs, p.Mops)
				}
				return out.String()
			case "search":
				var slo SLO
				d.MaybeScanArgs(t, "latency", &slo.LatencyUs)
				d.MaybeScanArgs(t, "mops", &slo.Mops)
				got, err := f.Search(f.Space(), slo)
				var impossible *ImpossibleError
				if errors.As(err, &impossible) {
					return strings.ReplaceAll(err.Error(), "; ", "\n")
				}
				if err != nil {
					return err.Error()
				}
				return fmt.Sprintf("%v: %v, %d of %d looked at", got.Config, got.Predicted, got.Leaves, f.Space().Leaves())
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}
