package main

import "testing"

func TestTable(t *testing.T) {
	p := part{columns: []string{"op", "mops=Mop/s", "redis.ops=redis", "holds", "none"}}
	got, err := p.table([]byte(`{"machine":"M","date":"2026-01-02","revision":"abc","commands":["redykv x"],
		"rows":[{"op":"a|b","mops":1.23456,"redis":{"ops":123456.7},"holds":true}]}`))
	want := "`redykv x`; M; 2026-01-02, revision abc.\n\n| op | Mop/s | redis | holds | none |\n|---|---|---|---|---|\n| a\\|b | 1.23 | 123457 | yes |  |\n"
	if err != nil || string(got) != want {
		t.Errorf("got\n%s, %v, want\n%s", got, err, want)
	}
}
