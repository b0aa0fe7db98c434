package report

import (
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ycsb"
)

// WriteJSON writes each result as one line of JSON.
func WriteJSON(w io.Writer, results []ycsb.Result) error { return bench.WriteJSON(w, results) }
