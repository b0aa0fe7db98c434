package units

import "testing"

func TestParseSize(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Size
	}{
		{"0", 0}, {"4096", 4096}, {"64KiB", 64 << 10}, {"64kb", 64 << 10}, {"2M", 2 << 20},
		{"1.5GiB", 3 << 29}, {" 1 TiB ", 1 << 40}, {"7B", 7},
	} {
		got, err := ParseSize(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", tc.text, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "1XiB", "1 2", "NaN", "Inf", "1e30", "9999999TiB", "BB"} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, got)
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{0: "0B", 100: "100B", 64 << 10: "64KiB", 3 << 29: "1.5GiB", 40_000_000: "38.15MiB"} {
		if got := size.String(); got != want {
			t.Errorf("Size(%d) = %q, want %q", int64(size), got, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("1.5GiB")
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := ParseSize(text); err == nil && size < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, size)
		}
	})
}
