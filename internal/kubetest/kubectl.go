package kubetest

import (
	"os"
	"os/exec"
)

// Bash runs a script in a directory, as a user with all rights at a shell: kubectl is the
// cluster's. It returns what the script printed. The script ends with its first command that
// fails.
func (c *Cluster) Bash(dir, script string) (string, error) {
	c.t.Helper()
	tools, err := programs()
	c.check(err)
	cmd := exec.CommandContext(c.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+c.dir, "KUBECONFIG="+c.Kubeconfig("", "default"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
