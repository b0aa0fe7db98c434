//go:build !(verbs && linux && cgo)

package verbs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/fabric/verbs"
)

// TestMissing checks that a binary without RDMA reports what to install, how to build a binary
// with RDMA, and where this is documented.
func TestMissing(t *testing.T) {
	p, err := verbs.Open()
	if p != nil || err == nil {
		t.Fatalf("opened %v, %v", p, err)
	}
	for _, want := range []string{"libibverbs-dev", "librdmacm-dev", "go build -tags verbs ./cmd/redykv"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %s", err, want)
		}
	}
	page := regexp.MustCompile(`docs/\S+\.md`).FindString(err.Error())
	text, err := os.ReadFile("../../../" + page)
	if err != nil || !strings.Contains(string(text), "-tags verbs") {
		t.Errorf("it points at %q, which says nothing of the tag: %v", page, err)
	}
}
