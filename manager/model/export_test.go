package model

import "iter"

// All returns the configurations in the order of the search: by s, c, b and q (R60).
func (s Space) All() iter.Seq[Config] {
	return func(yield func(Config) bool) {
		for threads := 0; threads <= s.C; threads++ {
			for c := max(1, threads); c <= s.C; c++ {
				for b := 1; b <= s.batches(threads); b++ {
					for q := s.Opt; q <= s.Q; q++ {
						if !yield(Config{c, threads, b, q}) {
							return
						}
					}
				}
			}
		}
	}
}
