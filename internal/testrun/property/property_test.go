package property

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun"
)

// drawn has a process of this test draw numbers, and returns them.
func drawn(t *testing.T, env ...string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-test.run=^TestSeeds$", "-rapid.checks=3")
	cmd.Env = append(append(os.Environ(), testrun.KindEnv+"=", testrun.SeedEnv+"=", "REDYKV_TEST_DRAW=1"), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	numbers, _, _ := strings.Cut(string(out), "PASS")
	return numbers
}

func TestSeeds(t *testing.T) {
	if os.Getenv("REDYKV_TEST_DRAW") != "" {
		Check(t, func(rt *rapid.T) {
			if _, err := os.Stdout.WriteString(rapid.StringN(20, 20, -1).Draw(rt, "text") + "\n"); err != nil {
				rt.Fatal(err)
			}
		})
		return
	}
	first := drawn(t)
	if strings.Count(first, "\n") < 3 {
		t.Fatalf("drawn: %q", first)
	}
	for name, c := range map[string]struct {
		env  string
		same bool
	}{
		"again":          {same: true},
		"as one is told": {env: testrun.SeedEnv + "=1", same: true},
		"another":        {env: testrun.SeedEnv + "=2"},
		"a soak":         {env: testrun.KindEnv + "=" + testrun.SoakKind},
	} {
		if got := drawn(t, c.env); (got == first) != c.same {
			t.Errorf("%s: %q, first %q", name, got, first)
		}
	}
}
