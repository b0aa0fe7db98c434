package paper

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func measured(series string, round int, mops float64) Measurement {
	return Measurement{Trial: "t", Turn: "one", Series: series, X: 1, Round: round, Values: map[string]float64{"mops": mops}}
}

// A reopened journal has all measurements, without an incomplete last line.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), MeasurementsFile)
	open := func() *Journal {
		t.Helper()
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open()
	if err := j.Append([]Measurement{measured("a", 1, 1), measured("b", 1, 2)}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"trial":"t","turn":"one","series":"c","ro`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	j = open()
	if len(j.All()) != 2 || !j.has("t", "one", []string{"a", "b"}) || j.has("t", "one", []string{"a", "c"}) || j.has("t", "two", []string{"a"}) {
		t.Errorf("%+v", j.All())
	}
	// Measurements with the same keys replace earlier ones.
	if err := j.Append([]Measurement{measured("c", 1, 3), measured("a", 1, 9)}); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*Journal{j, open()} {
		if v := NewData(j.All()).Metric("t", "a", 1, "mops"); len(j.All()) != 3 || v.Median != 9 || v.Rounds != 1 {
			t.Errorf("%+v: %+v", v, j.All())
		}
	}
	if err := j.Drop("t"); err != nil {
		t.Fatal(err)
	}
	if j = open(); len(j.All()) != 0 {
		t.Errorf("%+v", j.All())
	}
	for _, bad := range []string{"what\n", "{}\n", `{"trial":"t","series":"a","round":0}` + "\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenJournal(path); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A run can be read while it is in progress, or after it was interrupted.
func TestReadRunThatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenWorkspace(dir, Head{Scale: tiny(), Transport: "mem", Net: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Journal.Append([]Measurement{measured("a", 1, 1)}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, MeasurementsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, text[:len(text)/2]...)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	h, data, err := ReadRun(dir)
	if err != nil || h.Transport != "mem" || len(data.Trial("t")) != 1 {
		t.Errorf("%+v, %+v, %v", h, data, err)
	}
	if now, err := os.ReadFile(path); err != nil || len(now) != len(text) {
		t.Errorf("%d bytes of %d are left: %v", len(now), len(text), err)
	}
}

func TestWriteCSV(t *testing.T) {
	var text strings.Builder
	b := measured("b", 2, 2)
	b.Values["p50_us"], b.Note = 0.5, "lost, and found"
	if err := WriteCSV(&text, []Measurement{measured("a", 1, 1), b}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	if n := len(rows[0]); rows[0][n-2] != "mops" || rows[1][n-1] != "" || rows[2][n-1] != "0.5" || rows[2][n-3] != "lost, and found" {
		t.Errorf("%v", rows)
	}
}
