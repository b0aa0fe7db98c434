package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
)

// ProgramsEnv is the environment variable of the directory of kube-apiserver and
// kube-scheduler. Without it, what scripts/kubernetes built is used.
const ProgramsEnv = "REDYKV_TEST_KUBERNETES"

// Cluster is a cluster without nodes, which does not outlive the test.
type Cluster struct {
	// Client has all rights.
	Client *kubernetes.Clientset
	// URL is the address of the API server, and CA a file with its authority, in PEM.
	URL, CA string
	// Programs are the command lines of images: a container runs that of its image, and then
	// its own command and arguments. In a sandbox the program is /NAME, wherever images
	// have it, and a container's command replaces its image's.
	Programs map[string][]string

	t    testing.TB
	dir  string
	full bool   // see StartFull
	host string // the address of the API server and of nodes

	mu     sync.Mutex // guards slices, and the files of names
	slices []discoveryv1.EndpointSlice
}

// Tokens of the cluster's users.
const (
	adminToken     = "admin-token"
	schedulerToken = "scheduler-token"
)

// programs returns the directory of the programs.
func programs() (string, error) {
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		return dir, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		built, _ := filepath.Glob(filepath.Join(cache, "redykv-ci", "kubernetes-*", "kube-scheduler"))
		if len(built) > 0 {
			return filepath.Dir(built[len(built)-1]), nil
		}
	}
	return "", fmt.Errorf("no kube-apiserver and kube-scheduler: scripts/kubernetes builds them")
}

// missing skips the test for lack of something, or fails it where ProgramsEnv says that nothing
// should be missing.
func missing(t testing.TB, what ...any) {
	t.Helper()
	if os.Getenv(ProgramsEnv) != "" {
		t.Fatal(what...)
	}
	t.Skip(what...)
}

// Start starts a cluster and waits until its API server and its scheduler serve. It skips the
// test unless all run (testrun.All), and if there are no programs.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return start(t, false)
}

func start(t testing.TB, full bool) *Cluster {
	t.Helper()
	testrun.SkipUnlessAll(t, "it starts a cluster of Kubernetes")
	dir, err := programs()
	if err != nil {
		missing(t, err)
	}
	etcd := etcdtest.Start(t, etcdtest.Options{})
	c := &Cluster{t: t, dir: t.TempDir(), Programs: make(map[string][]string), full: full, host: "127.0.0.1"}
	var admission []string
	if full {
		c.host = gateway
	} else {
		admission = []string{"--disable-admission-plugins=ServiceAccount"} // nothing makes service accounts
	}
	_, port, err := net.SplitHostPort(etcdtest.FreeAddress(t))
	c.check(err)
	c.URL, c.CA = "https://"+net.JoinHostPort(c.host, port), filepath.Join(c.dir, "apiserver.crt")
	key, tokens := c.file("accounts.key", accountsKey(t)), c.file("tokens.csv", []byte(
		adminToken+",admin,admin,system:masters\n"+schedulerToken+",system:kube-scheduler,scheduler\n"))
	server := c.spawn(filepath.Join(dir, "kube-apiserver"), append(admission,
		"--etcd-servers=http://"+etcd.Address, "--bind-address="+c.host, "--advertise-address="+c.host, "--secure-port="+port,
		"--cert-dir="+c.dir, "--endpoint-reconciler-type=none", "--authorization-mode=RBAC", "--token-auth-file="+tokens,
		"--service-account-issuer=https://kubernetes.test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24", "--enable-priority-and-fairness=false", "--v=0")...)
	c.await(server, "kube-apiserver", c.URL+"/readyz")
	c.Client, err = kubernetes.NewForConfig(c.config(adminToken))
	c.check(err)

	_, port, err = net.SplitHostPort(etcdtest.FreeAddress(t))
	c.check(err)
	scheduler := c.spawn(filepath.Join(dir, "kube-scheduler"),
		"--kubeconfig="+c.kubeconfig("scheduler", schedulerToken, "", ""), "--bind-address=127.0.0.1", "--secure-port="+port,
		"--leader-elect=false", "--authorization-always-allow-paths=/readyz", "--authentication-skip-lookup", "--v=0")
	c.await(scheduler, "kube-scheduler", "https://127.0.0.1:"+port+"/readyz")
	return c
}

// spawn starts a program that ends with the test.
func (c *Cluster) spawn(program string, args ...string) *etcdtest.Process {
	c.t.Helper()
	p, err := etcdtest.Spawn(program, args...)
	c.check(err)
	c.t.Cleanup(p.Kill)
	return p
}

// await waits until a program answers that it is ready.
func (c *Cluster) await(p *etcdtest.Process, name, url string) {
	c.t.Helper()
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // the certificate is not known yet
	}}
	answer := "no answer"
	for deadline := time.Now().Add(testrun.Patience(2 * time.Minute)); time.Now().Before(deadline); {
		request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url, nil)
		c.check(err)
		request.Header.Set("Authorization", "Bearer "+adminToken)
		if r, err := client.Do(request); err == nil {
			text, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
			answer = string(text)
		}
		select {
		case <-p.Ended:
			c.t.Fatalf("%s ended:\n%s", name, last(p.Output.String(), 2000))
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.Kill()
	c.t.Fatalf("%s is not ready: %s\n%s", name, answer, last(p.Output.String(), 2000))
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// config returns the configuration of clients with a token.
func (c *Cluster) config(token string) *rest.Config {
	return &rest.Config{Host: c.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}, QPS: -1}
}

// Kubeconfig writes a kubeconfig for a user of the namespace, without rights until a
// RoleBinding gives them; empty: one with all rights.
func (c *Cluster) Kubeconfig(user, namespace string) string {
	c.t.Helper()
	return c.kubeconfig(strings.ReplaceAll("kube-"+user, ":", "-"), adminToken, user, namespace)
}

func (c *Cluster) kubeconfig(name, token, user, namespace string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name+".yaml")
	c.check(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.URL, CertificateAuthority: c.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": {Token: token, Impersonate: user}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "user", Namespace: namespace}},
		CurrentContext: "test",
	}, path))
	return path
}

func (c *Cluster) file(name string, data []byte) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	c.check(os.WriteFile(path, data, 0o600))
	return path
}

// accountsKey returns a new key for the tokens of service accounts, in PEM.
func accountsKey(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Until waits until a condition of the cluster holds.
func (c *Cluster) Until(what string, holds func(ctx context.Context) (bool, error)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	for {
		ok, err := holds(ctx)
		switch {
		case ok && err == nil:
			return
		case ctx.Err() != nil:
			c.t.Fatalf("not within %v: %s (%v)\n%s", testrun.Patience(time.Minute), what, err, c.Pods())
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// log returns the file of what the processes of a pod in a sandbox print.
func (c *Cluster) log(namespace, name string) string {
	return filepath.Join(c.dir, namespace+"_"+name+".log")
}

// Pods describes all pods: what keeps them from being ready, and what they printed last.
func (c *Cluster) Pods() string {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(context.WithoutCancel(c.t.Context()), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, p := range pods.Items {
		fmt.Fprintf(&text, "%s/%s on %q: %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase)
		for _, o := range p.Status.Conditions {
			if o.Status != corev1.ConditionTrue {
				fmt.Fprintf(&text, ", not %s: %s", o.Type, o.Message)
			}
		}
		for _, o := range p.Status.ContainerStatuses {
			for _, ended := range []*corev1.ContainerStateTerminated{o.State.Terminated, o.LastTerminationState.Terminated} {
				if ended != nil {
					fmt.Fprintf(&text, "\n  ended with %d: %s", ended.ExitCode, ended.Message)
				}
			}
		}
		text.WriteString("\n")
		if log, err := os.ReadFile(c.log(p.Namespace, p.Name)); err == nil {
			fmt.Fprintln(&text, last(string(log), 4000))
		}
	}
	return text.String()
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal("kubernetes:", err)
	}
}
