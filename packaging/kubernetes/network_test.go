package kubernetes_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/redykv/redykv/manager/allocator/kubernetes"
)

// manifests are what the files of this directory have.
type manifests struct {
	namespaces map[string]labels.Set
	pods       map[string]pod // by component
	policies   []networkingv1.NetworkPolicy
}

type pod struct {
	namespace string
	corev1.PodTemplateSpec
}

func readManifests(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{namespaces: make(map[string]labels.Set), pods: make(map[string]pod)}
	files, err := filepath.Glob("*/*.yaml")
	check(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var kind metav1.TypeMeta
			check(t, yaml.Unmarshal(document, &kind))
			switch kind.Kind {
			case "Namespace":
				var n corev1.Namespace
				check(t, yaml.UnmarshalStrict(document, &n))
				m.namespaces[n.Name] = labels.Merge(n.Labels, labels.Set{corev1.LabelMetadataName: n.Name})
			case "NetworkPolicy":
				var n networkingv1.NetworkPolicy
				check(t, yaml.UnmarshalStrict(document, &n))
				m.policies = append(m.policies, n)
			case "StatefulSet":
				var s appsv1.StatefulSet
				check(t, yaml.UnmarshalStrict(document, &s))
				m.add(s.Namespace, s.Spec.Template)
			}
		}
	}
	config, err := kubernetes.ReadConfig("manager/pools.yaml")
	check(t, err)
	m.add(config.Namespace, config.Template)
	if len(m.namespaces) != 2 || len(m.pods) != 4 || len(m.policies) < 4 {
		t.Fatalf("%d namespaces, %d kinds of pods, %d policies", len(m.namespaces), len(m.pods), len(m.policies))
	}
	return m
}

func (m *manifests) add(namespace string, p corev1.PodTemplateSpec) {
	m.pods[p.Labels["app.kubernetes.io/component"]] = pod{namespace, p}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// allow reports whether the policies let pods with these labels, in a namespace with those, open
// connections to a port of a component.
func (m *manifests) allow(from, namespace labels.Set, to string, port int32) bool {
	target := m.pods[to]
	targetSpace := m.namespaces[target.namespace]
	ingress := m.permit(networkingv1.PolicyTypeIngress, target.namespace, target.Labels, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return isPort(target, r.Ports, port) && isPeer(p, r.From, from, namespace)
		})
	})
	egress := m.permit(networkingv1.PolicyTypeEgress, namespace[corev1.LabelMetadataName], from, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return isPort(target, r.Ports, port) && isPeer(p, r.To, target.Labels, targetSpace)
		})
	})
	return ingress && egress
}

// permit reports whether one of the policies of a type for such pods permits something, or there
// are none.
func (m *manifests) permit(of networkingv1.PolicyType, namespace string, pod labels.Set, permits func(*networkingv1.NetworkPolicy) bool) bool {
	closed := false
	for i := range m.policies {
		p := &m.policies[i]
		if p.Namespace != namespace || !slices.Contains(p.Spec.PolicyTypes, of) || !matches(&p.Spec.PodSelector, pod) {
			continue
		}
		if permits(p) {
			return true
		}
		closed = true
	}
	return !closed
}

func isPort(of pod, ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Port == nil || p.Port.Type == intstr.Int {
			return p.Port == nil || p.Port.IntVal == port
		}
		return slices.ContainsFunc(of.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
			return c.Name == p.Port.StrVal && c.ContainerPort == port
		})
	})
}

func isPeer(of *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, pod, namespace labels.Set) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.NamespaceSelector == nil {
			return namespace[corev1.LabelMetadataName] == of.Namespace && matches(p.PodSelector, pod)
		}
		return matches(p.NamespaceSelector, namespace) && (p.PodSelector == nil || matches(p.PodSelector, pod))
	})
}

func matches(selector *metav1.LabelSelector, of labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(of)
}

// listener is what a flag of a component's program makes it listen on.
type listener struct{ component, flag string }

var (
	managerAPI    = listener{"manager", "listen"}
	serverControl = listener{"memory", "listen"}
	serverFabric  = listener{"memory", "fabric-listen"}
	etcdClients   = listener{"etcd", "listen-client-urls"}
)

// dials are what the code names where it opens connections, and to what. Of a method it is the name
// and the number of arguments.
var dials = map[string]listener{
	"managerv1connect.ManagerServiceClient":       managerAPI,
	"serverv1connect.NewCacheServerServiceClient": serverControl,
	"Dial/4":       serverFabric, // fabric.Provider's
	"clientv3.New": etcdClients,
}

// dialers are the packages that open connections, with the components that use them.
var dialers = map[string][]string{
	"manager":         {"manager"},
	"manager/access":  {"memory", "store"},
	"manager/catalog": {"manager"},
	"manager/node":    {"memory"},
	"redytier":        {"store", "manager"}, // a manager measures machines with a cache
	"server":          {"memory"},
}

// dialled returns what the module's packages dial, without those in internal, which are
// tests, measurements and what others call.
func dialled(t *testing.T) map[string]map[listener]bool {
	t.Helper()
	found := make(map[string]map[listener]bool)
	root := filepath.Join("..", "..")
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		ast.Inspect(file, func(n ast.Node) bool {
			if to, ok := dials[nameOf(n)]; ok {
				if found[pkg] == nil {
					found[pkg] = make(map[listener]bool)
				}
				found[pkg][to] = true
			}
			return true
		})
		return err
	}))
	return found
}

// nameOf returns what a node of a program names, as in dials.
func nameOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && dials[nameOf(s)] == (listener{}) {
			return fmt.Sprintf("%s/%d", s.Sel.Name, len(n.Args))
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			return x.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// port returns the port of a listener, which the pod has to declare.
func (m *manifests) port(t *testing.T, l listener) int32 {
	t.Helper()
	c := m.pods[l.component].Spec.Containers[0]
	for _, arg := range c.Args {
		value, ok := strings.CutPrefix(arg, "--"+l.flag+"=")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(value[strings.LastIndex(value, ":")+1:], 10, 32)
		check(t, err)
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == int32(n) }) {
			t.Errorf("%s does not declare port %d of --%s", l.component, n, l.flag)
		}
		return int32(n)
	}
	t.Fatalf("%s has no --%s", l.component, l.flag)
	return 0
}

// TestPolicies checks the network policies against the connections that the programs open, in the code
// and by the addresses in their arguments. Cache servers can open no others, as they are next to
// programs of others.
func TestPolicies(t *testing.T) {
	m := readManifests(t)
	type way struct {
		from, to string
		port     int32
	}
	ways := make(map[way]bool)
	for pkg, listeners := range dialled(t) {
		if dialers[pkg] == nil {
			t.Errorf("package %s dials, and belongs to no component", pkg)
		}
		for l := range listeners {
			for _, from := range dialers[pkg] {
				ways[way{from, l.component, m.port(t, l)}] = true
			}
		}
	}
	address := regexp.MustCompile(`\bredykv-([a-z]+)\.redykv\.svc:(\d+)`)
	for from, p := range m.pods {
		for _, c := range p.Spec.Containers {
			text, err := yaml.Marshal([]any{c.Args, c.Env})
			check(t, err)
			for _, found := range address.FindAllSubmatch(text, -1) {
				port, err := strconv.ParseInt(string(found[2]), 10, 32)
				check(t, err)
				ways[way{from, string(found[1]), int32(port)}] = true
			}
		}
	}
	for _, w := range []way{
		{"memory", "memory", m.port(t, serverFabric)}, {"memory", "manager", m.port(t, managerAPI)},
		{"store", "memory", m.port(t, serverControl)}, {"store", "memory", m.port(t, serverFabric)},
		{"store", "manager", m.port(t, managerAPI)},
		{"manager", "memory", m.port(t, serverControl)}, {"manager", "etcd", m.port(t, etcdClients)},
	} {
		if !ways[w] {
			t.Errorf("nothing was found to dial %+v: this test does not see it", w)
		}
	}
	for from, p := range m.pods {
		for to, target := range m.pods {
			for _, port := range target.Spec.Containers[0].Ports {
				w := way{from, to, port.ContainerPort}
				switch open := m.allow(p.Labels, m.namespaces[p.namespace], to, port.ContainerPort); {
				case ways[w] && !open:
					t.Errorf("the policies forbid %s to reach %s at port %d, which it dials", w.from, w.to, w.port)
				case open && !ways[w] && from == "memory":
					t.Errorf("the policies let %s reach %s at port %d, which it does not dial", w.from, w.to, w.port)
				}
				delete(ways, w)
			}
		}
	}
	for w := range ways {
		t.Errorf("%s dials %s at port %d, which has none such", w.from, w.to, w.port)
	}
	m.testOthers(t)
}

// testOthers checks what pods of other namespaces reach: clients and monitoring, by labels.
func (m *manifests) testOthers(t *testing.T) {
	for label, ports := range map[string][]listener{
		"redykv.io/client":     {managerAPI, serverControl, serverFabric, {"store", "addr"}},
		"redykv.io/monitoring": {{"manager", "metrics"}, {"store", "admin"}},
		"none":                 nil,
	} {
		namespace := labels.Set{corev1.LabelMetadataName: "others", label: "true"}
		for to, target := range m.pods {
			for _, port := range target.Spec.Containers[0].Ports {
				want := slices.ContainsFunc(ports, func(l listener) bool {
					return l.component == to && m.port(t, l) == port.ContainerPort
				})
				if open := m.allow(labels.Set{}, namespace, to, port.ContainerPort); open != want {
					t.Errorf("label %s: port %d of %s is open: %v, want %v", label, port.ContainerPort, to, open, want)
				}
			}
		}
	}
}
