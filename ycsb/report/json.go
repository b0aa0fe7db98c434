package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/redykv/redykv/ycsb"
)

// WriteJSON writes one line of JSON for each result.
func WriteJSON(w io.Writer, results []ycsb.Result) error {
	encoder := json.NewEncoder(w)
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("report: JSON line of %s: %w", r.Experiment, err)
		}
	}
	return nil
}
