package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The tables of docs/measured.md are those of the rows kept beside it.
func TestDocumentIsRendered(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	want, err := rendered(text, filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("%s differs from the rows in %s: go run ./scripts/measure render", document, folder)
	}
}

func TestCell(t *testing.T) {
	row := map[string]any{"iops": 1500.0, "fio_iops": 1000.0, "mops": 0.12345, "before": map[string]any{"mops": 2.0}, "holds": true, "text": "a|b"}
	for field, want := range map[string]string{
		"iops": "1500", "iops/fio_iops": "1.50", "iops/none": "", "mops": "0.123", "before.mops": "2",
		"holds": "yes", "text": `a\|b`, "none": "",
	} {
		if got := cell(row, field); got != want {
			t.Errorf("cell %s is %q, want %q", field, got, want)
		}
	}
}
