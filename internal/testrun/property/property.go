// Package property checks properties by rapid, with the seed that the kind of run asks for.
package property

import (
	"flag"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun"
)

// Check is rapid.Check with the seed that -rapid.seed or testrun.SeedEnv name, or else 1. In a soak it is
// a random one instead of 1, which rapid reports. No file of a failure is left in the package.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if err := seed(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

var seed = sync.OnceValue(func() error {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		return err
	}
	text := os.Getenv(testrun.SeedEnv)
	switch {
	case flag.Lookup("rapid.seed").Value.String() != "0":
		return nil
	case text == "" && testrun.Soak():
		return nil
	case text == "":
		text = "1"
	}
	return flag.Set("rapid.seed", text)
})
