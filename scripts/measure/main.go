// Command measure keeps the measurements of docs/measured.md.
//
//	go run ./scripts/measure run all         measure every part
//	go run ./scripts/measure run store       measure one part
//	go run ./scripts/measure render          write the tables into docs/measured.md and README.md
//
// Run builds redykv, runs the commands of a part, and writes their rows with machine, date,
// revision and statistic to docs/measured/PART.json. Render replaces the text of a document
// between the lines <!-- measured PART --> and <!-- end --> by the table of the part, and draws
// the parts that have a picture. Run both in the repository's root, the first on an idle machine.
// The part manager-scale needs etcd in PATH, such as by PATH=$PATH:$(dirname $(scripts/etcd)), and
// the part outgrows what scripts/etcd and scripts/kubernetes build, and root.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// measured is the content of docs/measured/PART.json.
type measured struct {
	Machine   string            `json:"machine"`
	Date      string            `json:"date"`
	Revision  string            `json:"revision"`
	Commands  []string          `json:"commands"`
	Statistic string            `json:"statistic,omitempty"` // of this record: the part's may have changed since
	Rows      []json.RawMessage `json:"rows"`
}

const folder = "docs/measured"

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "render":
		return render()
	case len(args) > 1 && args[0] == "run":
		return run(args[1:])
	}
	return errors.New("want run PART..., run all, or render")
}
