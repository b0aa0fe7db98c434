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

func TestTable(t *testing.T) {
	p := part{columns: []string{"op", "mops=Mop/s", "redis.ops=redis", "mops/limit=of_limit", "few", "holds", "none"}, skip: "op=raw"}
	got, err := p.table([]byte(`{"machine":"M","date":"2026-01-02","revision":"abc","commands":["redykv x"],
		"rows":[{"op":"raw"},{"op":"a|b","mops":1.23456,"limit":2,"few":1e-6,"redis":{"ops":123456.7},"holds":true}]}`))
	want := "`redykv x`; M; 2026-01-02, revision abc.\n\n| op | Mop/s | redis | of limit | few | holds | none |\n|---|---|---|---|---|---|---|\n| a\\|b | 1.23 | 123457 | 0.62 | <0.001 | yes |  |\n"
	if err != nil || string(got) != want {
		t.Errorf("got\n%s, %v, want\n%s", got, err, want)
	}
}
