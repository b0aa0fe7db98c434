package kubetest

import (
	"os/exec"
	"path/filepath"
)

// Kubectl runs kubectl with all rights in the namespace default, and returns what it printed.
// An error is the program's.
func (c *Cluster) Kubectl(args ...string) (string, error) {
	c.t.Helper()
	dir, err := programs()
	c.check(err)
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(dir, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig("", "default"), "--cache-dir", c.dir}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
