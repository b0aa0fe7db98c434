package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/redykv/redykv/manager/plan"
)

// Config describes the pods that an allocator makes. Its file is in YAML or JSON.
type Config struct {
	// Namespace of the pods. Default: that of the kubeconfig, or the manager's own.
	Namespace string `json:"namespace,omitempty"`
	// Owner is the value of the label OwnerLabel: managers of the same owner have the same
	// catalog and the same pods. Default: redykv.
	Owner string `json:"owner,omitempty"`
	// ClientNode is the node of clients that do not name theirs, from which distances are
	// measured. Default: such distances are unknown.
	ClientNode string `json:"clientNode,omitempty"`
	// RackLabel is the label of nodes whose value is their rack. Default: redykv.io/rack.
	RackLabel string `json:"rackLabel,omitempty"`
	// Container is the name of the template's container that runs redykv cacheserver.
	// Default: redykv.
	Container string `json:"container,omitempty"`
	// Overhead is the memory of a pod beside what it lends. Default: 64Mi.
	Overhead resource.Quantity `json:"overhead,omitempty"`
	// Pools are what VMs are offered from.
	Pools []Pool `json:"pools"`
	// Template is what pods are made of. To the arguments of the container are added
	// --manager, --vm-id, --memory, --cores, --transport and --notice.
	Template corev1.PodTemplateSpec `json:"template"`
}

// Pool is a VM type: pods of one size on certain nodes.
type Pool struct {
	Name string `json:"name"`
	// Nodes are the labels of the pool's nodes.
	Nodes map[string]string `json:"nodes"`
	// Memory that a pod lends, and its server threads; 0: it asks for no processor.
	Memory resource.Quantity `json:"memory"`
	Cores  int               `json:"cores,omitempty"`
	// Price in dollars an hour of one pod. The annotation PriceAnnotation of a node has
	// precedence; of several, the highest.
	Price float64 `json:"price,omitempty"`
	// Spot marks pods that others may preempt or evict, which get NoticeSeconds to end.
	// Default: 60.
	Spot          bool  `json:"spot,omitempty"`
	NoticeSeconds int64 `json:"noticeSeconds,omitempty"`
	// PriorityClass of the pods. Default: the template's.
	PriorityClass string `json:"priorityClass,omitempty"`
}

// Labels and annotations.
const (
	OwnerLabel      = "redykv.io/owner" // of pods and secrets: Config.Owner
	VMLabel         = "redykv.io/vm"    // of pods and secrets: the VM's id
	EpochAnnotation = "redykv.io/epoch" // of pods and secrets: the epoch of the leader that has them
	// CatalogAnnotation is the identity of the catalog of the managers that made a pod or secret. Others
	// leave it alone.
	CatalogAnnotation = "redykv.io/catalog"
	PoolLabel         = "redykv.io/pool"  // of pods: the pool's name
	CacheAnnotation   = "redykv.io/cache" // of pods: the cache that they were launched for
	// ClientAnnotation is of pods: the node of that cache's client.
	ClientAnnotation = "redykv.io/client-node"
	PriceAnnotation  = "redykv.io/price" // of nodes: dollars an hour of one pod
)

// ReadConfig reads a Config. Its errors name the file and the field.
func ReadConfig(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &c)
	} else {
		return c, fmt.Errorf("kubernetes allocator: %w", err) // it names the file
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return c, fmt.Errorf("kubernetes allocator: %s: %w", path, oneLine(err))
	}
	return c, nil
}

// check sets defaults.
func (c *Config) check() error {
	c.Owner = cmp.Or(c.Owner, "redykv")
	c.RackLabel = cmp.Or(c.RackLabel, "redykv.io/rack")
	c.Container = cmp.Or(c.Container, "redykv")
	if c.Overhead.IsZero() {
		c.Overhead = resource.MustParse("64Mi")
	}
	if bad := validation.IsValidLabelValue(c.Owner); len(bad) > 0 {
		return fmt.Errorf("owner %.80q: %s", c.Owner, bad[0])
	}
	if bad := validation.IsDNS1123Label(c.Namespace); c.Namespace != "" && len(bad) > 0 {
		return fmt.Errorf("namespace %.80q: %s", c.Namespace, bad[0])
	}
	if len(c.Pools) == 0 {
		return errors.New("pools: want at least one")
	}
	seen := make(map[string]bool)
	for i := range c.Pools {
		p := &c.Pools[i]
		p.NoticeSeconds = cmp.Or(p.NoticeSeconds, 60)
		switch {
		case len(validation.IsValidLabelValue(p.Name)) > 0 || p.Name == "" || seen[p.Name]:
			return fmt.Errorf("pool %d: name %.80q: want a label value that no other pool has", i, p.Name)
		case len(p.Nodes) == 0:
			return fmt.Errorf("pool %s: nodes: want the labels of its nodes", p.Name)
		case p.Memory.Value() < 1<<20:
			return fmt.Errorf("pool %s: memory %v: want 1Mi or more", p.Name, &p.Memory)
		case p.Cores < 0 || p.Cores > 255:
			return fmt.Errorf("pool %s: cores %d: want 0 to 255", p.Name, p.Cores)
		case !(p.Price >= 0 && p.Price <= plan.MaxPrice.Dollars()):
			return fmt.Errorf("pool %s: price %v: want 0 to %v", p.Name, p.Price, plan.MaxPrice.Dollars())
		case p.NoticeSeconds < 1 || p.NoticeSeconds > int64(24*time.Hour/time.Second):
			return fmt.Errorf("pool %s: noticeSeconds %d: want 1 to a day", p.Name, p.NoticeSeconds)
		}
		seen[p.Name] = true
	}
	return c.checkTemplate()
}

func (c *Config) checkTemplate() error {
	containers := c.Template.Spec.Containers
	if !slices.ContainsFunc(containers, func(o corev1.Container) bool { return o.Name == c.Container }) {
		return fmt.Errorf("template: no container %q", c.Container)
	}
	for _, o := range slices.Concat(c.Template.Spec.InitContainers, containers) {
		for name, request := range o.Resources.Requests {
			if limit, ok := o.Resources.Limits[name]; ok && limit.Cmp(request) < 0 {
				return fmt.Errorf("template: container %s: limit of %s %v is below its request %v", o.Name, name, &limit, &request)
			}
		}
	}
	return nil
}

// pool returns the pool of a name; nil: there is none.
func (c *Config) pool(name string) *Pool {
	i := slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Pools[i]
}
