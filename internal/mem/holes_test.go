package mem

import "testing"

// NextData finds the pages that were written, of memory that begins within a page, too.
func TestNextData(t *testing.T) {
	const page, size, skew = 4096, 8 << 20, 100
	whole, err := Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Free(whole) }()
	SmallPages(whole)
	written := []int{3*page + 5, 4 * page, size / 2, size - 1}
	for _, at := range written {
		whole[at] = 1
	}
	resident, err := ResidentOf(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{whole, whole[skew:], whole[skew : size-skew]} {
		start, pages := size-cap(b), 0
		for at := 0; at < len(b); {
			begin, end := NextData(b, at)
			if begin < at || end < begin || end > len(b) || begin == end && begin != len(b) {
				t.Fatalf("%d bytes, behind %d: [%d, %d)", len(b), at, begin, end)
			}
			for _, w := range written {
				if w -= start; w >= at && w < begin {
					t.Errorf("%d bytes: behind %d in [%d, %d), but %d is written", len(b), at, begin, end, w)
				}
			}
			pages += (end - begin + page - 1) / page
			at = end
		}
		if resident >= 0 && pages != len(written) {
			t.Errorf("%d bytes: %d pages with data, want %d", len(b), pages, len(written))
		}
	}
	if begin, end := NextData(whole, size); begin != size || end != size {
		t.Errorf("behind the end: [%d, %d)", begin, end)
	}
}
