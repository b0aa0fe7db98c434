// Package kubernetes_test applies the manifests to a real API server, as docs/kubernetes.md says.
package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
)

// cluster is a cluster to which all has been applied by the commands of the guide.
type cluster struct {
	*kubetest.Cluster
	t       *testing.T
	dir     string // where the commands ran
	program string // redykv
}

func TestMain(m *testing.M) {
	code := kubetest.Main(m)
	testrun.Cleanup()
	os.Exit(code)
}

// fromEmpty runs the commands of the guide in an empty cluster, with a directory of the store's
// disk as its bucket. edit is a script that changes the manifests before.
func fromEmpty(t *testing.T, start func(testing.TB) *kubetest.Cluster, edit string) *cluster {
	t.Helper()
	for _, program := range []string{"bash", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	c := &cluster{Cluster: start(t), t: t, dir: t.TempDir(), program: testrun.Program(t)}
	c.check(os.CopyFS(filepath.Join(c.dir, "packaging", "kubernetes"), os.DirFS(".")))
	c.Programs["registry.example.com/redykv:1"] = []string{c.program}
	c.Node(kubetest.NodeOptions{Name: "node-1", Memory: "64Gi", CPU: "16"})
	c.bash(edit)
	script := strings.Join(guide(t, "sh"), "\n")
	local := regexp.MustCompile(`'s3://.*'`).ReplaceAllString(script, "'file:///data/bucket?create_dir=true'")
	if local == script {
		t.Fatal("the guide has no bucket")
	}
	c.bash(local)
	return c
}

// guide returns the guide's blocks in a language.
func guide(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?sm)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("the guide has no blocks of %s", language)
	}
	return blocks
}

// bash runs a script that must succeed.
func (c *cluster) bash(script string) string {
	c.t.Helper()
	out, err := c.Bash(c.dir, script)
	c.check(err, script, out)
	return out
}

// check ends the test with an error, and what was done.
func (c *cluster) check(err error, what ...string) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, strings.Join(what, "\n"))
	}
}

// manager returns the allocator as the managers have it: with the rights of their service
// account, and the pools of the file that is mounted.
func (c *cluster) manager() (*kubernetes.Allocator, kubernetes.Config) {
	c.t.Helper()
	set, err := c.Client.AppsV1().StatefulSets("redykv").Get(c.t.Context(), "redykv-manager", metav1.GetOptions{})
	c.check(err)
	pod := set.Spec.Template.Spec
	file := ""
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			m, err := c.Client.CoreV1().ConfigMaps("redykv").Get(c.t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
			c.check(err)
			file = filepath.Join(c.dir, "mounted.yaml")
			c.check(os.WriteFile(file, []byte(m.Data["pools.yaml"]), 0o600))
		}
	}
	config, err := kubernetes.ReadConfig(file)
	c.check(err)
	a, err := kubernetes.New(kubernetes.Options{
		Config: config, Kubeconfig: c.Kubeconfig("system:serviceaccount:redykv:"+pod.ServiceAccountName, "redykv"),
	})
	c.check(err)
	return a, config
}

// templates returns the pods of all StatefulSets and of the pools.
func (c *cluster) templates() map[string]corev1.PodTemplateSpec {
	c.t.Helper()
	_, config := c.manager()
	pods := map[string]corev1.PodTemplateSpec{"pools": config.Template}
	sets, err := c.Client.AppsV1().StatefulSets("redykv").List(c.t.Context(), metav1.ListOptions{})
	c.check(err)
	for _, s := range sets.Items {
		p := s.Spec.Template
		for _, claim := range s.Spec.VolumeClaimTemplates { // as the controller does it
			from := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: from}})
		}
		pods[s.Name] = p
	}
	if len(pods) != 4 {
		c.t.Fatalf("%d kinds of pods", len(pods))
	}
	return pods
}

// The guide leads to what it says: what it applies is valid, nothing changes when it is applied
// again, and the managers find no faults.
func TestGuide(t *testing.T) {
	c := fromEmpty(t, kubetest.Start, "")
	c.bash("kubectl apply --validate=strict --warnings-as-errors -k mine && kubectl diff -k mine")
	a, _ := c.manager()
	c.check(a.Check(t.Context()))
	c.testRights(a)
	c.testSecurity()
	c.testCommands()
	c.testNetwork()
	c.testExamples()
}

// The managers have no right that they do not need: without any one of them, a check fails and
// names it.
func (c *cluster) testRights(a *kubernetes.Allocator) {
	rights, ctx := c.Client.RbacV1(), c.t.Context()
	cluster, err := rights.ClusterRoles().Get(ctx, "redykv-manager", metav1.GetOptions{})
	c.check(err)
	role, err := rights.Roles("redykv-memory").Get(ctx, "redykv-manager", metav1.GetOptions{})
	c.check(err)
	set := func(rules *[]rbacv1.PolicyRule, to []rbacv1.PolicyRule) {
		*rules = to
		cluster.ResourceVersion, role.ResourceVersion = "", ""
		_, err := rights.ClusterRoles().Update(ctx, cluster, metav1.UpdateOptions{})
		c.check(err)
		_, err = rights.Roles("redykv-memory").Update(ctx, role, metav1.UpdateOptions{})
		c.check(err)
	}
	tried := 0
	for _, rules := range []*[]rbacv1.PolicyRule{&cluster.Rules, &role.Rules} {
		all := *rules
		for i, rule := range all {
			for j, verb := range rule.Verbs {
				less := rule.DeepCopy()
				less.Verbs = slices.Delete(less.Verbs, j, j+1)
				some := slices.Delete(slices.Clone(all), i, i+1)
				if len(less.Verbs) > 0 {
					some = append(some, *less)
				}
				set(rules, some)
				missing := "no right to " + verb + " " + rule.Resources[0]
				c.Until(missing, func(ctx context.Context) (bool, error) {
					err := a.Check(ctx)
					return err != nil && strings.Contains(err.Error(), missing), nil
				})
				tried++
			}
			if len(rule.Resources) != 1 {
				c.t.Errorf("rule of %v: want one resource", rule.Resources)
			}
		}
		set(rules, all)
		c.Until("all rights are back", func(ctx context.Context) (bool, error) { return a.Check(ctx) == nil, nil })
	}
	if tried < 2 {
		c.t.Errorf("only %d rights", tried)
	}
}

// Namespaces refuse pods that are not restricted, and the pods of all templates are.
func (c *cluster) testSecurity() {
	create := func(namespace string, p corev1.PodTemplateSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try", Labels: p.Labels}, Spec: p.Spec}
		_, err := c.Client.CoreV1().Pods(namespace).Create(c.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for name, p := range c.templates() {
		namespace := "redykv"
		if name == "pools" {
			namespace = "redykv-memory"
		}
		c.check(create(namespace, p), name)
		p = *p.DeepCopy()
		p.Spec.SecurityContext.RunAsNonRoot = nil
		if err := create(namespace, p); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			c.t.Errorf("%s as root: %v", name, err)
		}
		for _, o := range p.Spec.Containers {
			if s := o.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				c.t.Errorf("%s: container %s can write to its root file system", name, o.Name)
			}
		}
	}
}

// The programs know the arguments of all containers.
func (c *cluster) testCommands() {
	etcd, err := etcdtest.Program()
	c.check(err)
	for name, p := range c.templates() {
		o := p.Spec.Containers[0]
		program, ends := c.program, "--help"
		if len(o.Command) > 0 {
			program, ends = etcd, "--version"
		}
		run := func(more ...string) error {
			var args []string
			for _, a := range o.Args {
				for _, v := range o.Env {
					value := v.Value
					if v.ValueFrom != nil {
						value = "127.0.0.1"
					}
					a = strings.ReplaceAll(a, "$("+v.Name+")", value)
				}
				args = append(args, a)
			}
			out, err := exec.Command(program, append(args, more...)...).CombinedOutput()
			if err == nil && strings.Contains(strings.Join(args, " "), "$(") {
				return fmt.Errorf("unknown variable: %v", args)
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
		c.check(run(ends), name)
		if run("--unknown-flag", ends) == nil {
			c.t.Errorf("%s: an unknown flag is not found", name)
		}
	}
	// Commands of the guide that run in pods.
	commands := regexp.MustCompile(`(?m) -- /redykv (.*)$`).FindAllStringSubmatch(strings.Join(guide(c.t, "console"), "\n"), -1)
	for _, m := range commands {
		out, err := exec.Command(c.program, append(strings.Fields(m[1]), "--help")...).CombinedOutput()
		c.check(err, m[1], string(out))
	}
	if len(commands) < 3 {
		c.t.Errorf("only %d commands", len(commands))
	}
}

// Services and policies select pods, and name ports that these have.
func (c *cluster) testNetwork() {
	pods := c.templates()
	open := func(where string, selector map[string]string, ports ...intstr.IntOrString) {
		selected := 0
		for _, p := range pods {
			if !labels.SelectorFromSet(selector).Matches(labels.Set(p.Labels)) {
				continue
			}
			selected++
			for _, port := range ports {
				if !slices.ContainsFunc(p.Spec.Containers[0].Ports, func(o corev1.ContainerPort) bool {
					return port.StrVal == o.Name || port.StrVal == "" && port.IntVal == o.ContainerPort
				}) {
					c.t.Errorf("%s: pods with labels %v have no port %v", where, selector, port.String())
				}
			}
		}
		if selected == 0 {
			c.t.Errorf("%s: no pods have the labels %v", where, selector)
		}
	}
	services, err := c.Client.CoreV1().Services("redykv").List(c.t.Context(), metav1.ListOptions{})
	c.check(err)
	for _, s := range services.Items {
		for _, p := range s.Spec.Ports {
			open("service "+s.Name, s.Spec.Selector, p.TargetPort)
		}
	}
	policies, err := c.Client.NetworkingV1().NetworkPolicies("").List(c.t.Context(), metav1.ListOptions{})
	c.check(err)
	rules := 0
	for _, n := range policies.Items {
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				selector := n.Spec.PodSelector.MatchLabels
				if n.Namespace == "redykv-memory" { // of all pods there
					selector = pods["pools"].Labels
				}
				open("policy "+n.Name, selector, *p.Port)
				rules++
			}
			for _, peer := range rule.From {
				if peer.PodSelector != nil {
					open("policy "+n.Name, peer.PodSelector.MatchLabels)
				}
			}
		}
	}
	if len(services.Items) != 3 || rules < 5 {
		c.t.Errorf("%d services, %d ports in policies", len(services.Items), rules)
	}
}

// The guide's examples of files are valid.
func (c *cluster) testExamples() {
	examples := guide(c.t, "yaml")
	if len(examples) != 2 {
		c.t.Fatalf("%d examples: want an own etcd and a pool", len(examples))
	}
	c.check(os.Mkdir(filepath.Join(c.dir, "own"), 0o700))
	c.check(os.WriteFile(filepath.Join(c.dir, "own", "kustomization.yaml"), []byte(examples[0]), 0o600))
	if out := c.bash("kubectl apply --validate=strict --warnings-as-errors --dry-run=server -k own"); strings.Contains(out, "redykv-etcd") {
		c.t.Errorf("the packaged etcd is there beside an own one:\n%s", out)
	}
	file := filepath.Join(c.dir, "example.yaml")
	text := "pools:\n" + examples[1] + "template: {spec: {containers: [{name: redykv}]}}\n"
	c.check(os.WriteFile(file, []byte(text), 0o600))
	_, err := kubernetes.ReadConfig(file)
	c.check(err)
}
