package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Names joins names for a help text.
func Names[T ~string](all []T) string {
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

// Parse returns the known value of that name.
func Parse[T ~string](what, name string, known []T) (T, error) {
	if slices.Contains(known, T(name)) {
		return T(name), nil
	}
	return "", fmt.Errorf("unknown %s %q: want one of %v", what, name, known)
}
