package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// names returns a directory for the pods of a namespace. Its file hosts has the names of
// services and of pods that have one.
func (c *Cluster) names(namespace string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir := filepath.Join(c.dir, "names", namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, c.writeHosts(dir, namespace)
}

// follow keeps the names of all pods up to date.
func (c *Cluster) follow(ctx context.Context) {
	slices := c.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	for ctx.Err() == nil {
		list, err := slices.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		c.setSlices(list.Items)
		events, err := slices.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			continue
		}
		<-events.ResultChan() // any change: list them again
		events.Stop()
	}
}

func (c *Cluster) setSlices(slices []discoveryv1.EndpointSlice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slices = slices
	dirs, _ := os.ReadDir(filepath.Join(c.dir, "names")) // none: no pod runs yet
	for _, d := range dirs {
		if err := c.writeHosts(filepath.Join(c.dir, "names", d.Name()), d.Name()); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
		}
	}
}

// writeHosts replaces the file of names, at once, as resolvers read it at any time. Called
// under mu.
func (c *Cluster) writeHosts(dir, namespace string) error {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n")
	for _, s := range c.slices {
		service := s.Labels[discoveryv1.LabelServiceName]
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			names := qualified(service, s.Namespace, namespace)
			if e.Hostname != nil {
				names = append(names, qualified(*e.Hostname+"."+service, s.Namespace, namespace)...)
			}
			for _, address := range e.Addresses {
				fmt.Fprintln(&text, address, strings.Join(names, " "))
			}
		}
	}
	path := filepath.Join(dir, "hosts")
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// qualified returns the forms of a name of one namespace that pods of another one may use.
func qualified(name, of, in string) []string {
	names := []string{name + "." + of, name + "." + of + ".svc", name + "." + of + ".svc.cluster.local"}
	if of == in {
		names = append(names, name)
	}
	return names
}

// Endpoints returns the addresses of a service's ready pods, without ports.
func (c *Cluster) Endpoints(namespace, service string) (addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slices {
		if s.Namespace != namespace || s.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses
}
