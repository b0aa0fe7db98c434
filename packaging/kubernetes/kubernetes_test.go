// Package kubernetes_test applies the manifests to a real API server.
package kubernetes_test

import (
	"testing"

	"github.com/redykv/redykv/internal/kubetest"
)

// All objects are valid, and applying them again changes nothing.
func TestApply(t *testing.T) {
	c := kubetest.Start(t)
	for _, command := range [][]string{
		{"apply", "--validate=strict", "--warnings-as-errors", "-k", "."},
		{"diff", "-k", "."},
	} {
		if out, err := c.Kubectl(command...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", command, err, out)
		}
	}
}
