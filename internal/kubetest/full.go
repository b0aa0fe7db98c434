package kubetest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/etcdtest"
)

// controllers are those parts of kube-controller-manager that run.
var controllers = strings.Join([]string{
	"deployment-controller", "replicaset-controller", "statefulset-controller",
	"disruption-controller", "endpointslice-controller", "garbage-collector-controller", "namespace-controller",
	"node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	"persistentvolume-binder-controller", "persistentvolumeclaim-protection-controller",
	"resourcequota-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
}, ",")

// StartFull starts a cluster with kube-controller-manager, whose pods have sandboxes. It skips
// the test if there are no programs or no namespaces; see [Main].
func StartFull(t testing.TB) *Cluster {
	t.Helper()
	if roots == "" {
		missing(t, "no namespaces: ", errNotIsolated)
	}
	dir, err := programs()
	if err != nil {
		missing(t, err)
	}
	program := filepath.Join(dir, "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		missing(t, "scripts/kubernetes builds it: ", err)
	}
	c := start(t, true)
	_, port, err := net.SplitHostPort(etcdtest.FreeAddress(t))
	c.check(err)
	p := c.spawn(program,
		"--kubeconfig="+c.Kubeconfig("", ""), "--bind-address=127.0.0.1", "--secure-port="+port, "--leader-elect=false",
		"--controllers="+controllers, "--root-ca-file="+c.CA, "--service-account-private-key-file="+filepath.Join(c.dir, "accounts.key"),
		"--node-monitor-period=1s", "--node-monitor-grace-period=20s",
		"--authorization-always-allow-paths=/healthz", "--authentication-skip-lookup", "--v=0")
	c.await(p, "kube-controller-manager", "https://127.0.0.1:"+port+"/healthz")
	ctx, cancel := context.WithCancel(context.Background())
	var follows sync.WaitGroup
	follows.Go(func() { c.follow(ctx) })
	t.Cleanup(func() {
		cancel()
		follows.Wait()
	})
	return c
}
