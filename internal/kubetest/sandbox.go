package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// The network of pods, in the namespace of the tests, which is at gateway.
const (
	bridge  = "pods"
	gateway = "10.244.0.1"
)

var (
	// roots is the directory of the root directories of pods. Nothing removes directories in it,
	// as others are mounted there. Empty: the tests have no namespaces of their own.
	roots string
	// errNotIsolated is why.
	errNotIsolated = errors.New("the package's TestMain does not call kubetest.Main")
	// sandboxes is the number of sandboxes that were made, and the last one's address.
	sandboxes atomic.Uint32
)

// sandbox is what a pod has of its own on a machine: a network namespace with an address, and a
// root directory with nothing but the program, the machine's libraries, the pod's volumes and the
// names of services.
type sandbox struct {
	ip, name, root string
	mounts         []string
}

// newSandbox makes the sandbox of a pod, without volumes. The directory names has its file hosts.
func newSandbox(names string) (s *sandbox, err error) {
	n := sandboxes.Add(1) + 1
	s = &sandbox{ip: fmt.Sprintf("10.244.%d.%d", n/250, n%250+1), name: fmt.Sprintf("pod-%d", n)}
	s.root = filepath.Join(roots, s.name)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	err = errors.Join(
		ip("netns", "add", s.name),
		ip("link", "add", s.name, "type", "veth", "peer", "name", "eth0", "netns", s.name),
		ip("link", "set", s.name, "master", bridge, "up"),
		ip("-n", s.name, "addr", "add", s.ip+"/16", "dev", "eth0"),
		ip("-n", s.name, "link", "set", "eth0", "up"),
		ip("-n", s.name, "link", "set", "lo", "up"),
		os.MkdirAll(filepath.Join(s.root, "tmp"), 0o777), os.MkdirAll(filepath.Join(s.root, "etc"), 0o755),
		os.Symlink("/names/hosts", filepath.Join(s.root, "etc/hosts")), // the file is replaced now and then
	)
	for _, dir := range []string{"/proc", "/sys", "/dev", "/usr", "/lib", "/lib64"} {
		if e := s.mount(dir, dir, false); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return s, errors.Join(err, s.mount(names, "/names", true))
}

// mount makes a file or directory of the machine appear in the sandbox.
func (s *sandbox) mount(from, at string, readOnly bool) error {
	to := filepath.Join(s.root, at)
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		err = os.MkdirAll(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o755)
	}
	if err == nil {
		err = mount(from, to, readOnly)
	}
	if err == nil {
		s.mounts = append(s.mounts, to)
	}
	return err
}

// command returns a command that runs in the sandbox.
func (s *sandbox) command(argv []string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + s.name, "--root=" + s.root, "--"}, argv...)...)
	cmd.Dir = s.root
	return cmd
}

// cut disconnects the sandbox from the network.
func (s *sandbox) cut() error { return ip("link", "set", s.name, "down") }

// remove removes the sandbox, whose processes have ended.
func (s *sandbox) remove() error {
	var errs []error
	for i := range s.mounts {
		errs = append(errs, unmount(s.mounts[len(s.mounts)-1-i]))
	}
	return errors.Join(append(errs, ip("netns", "del", s.name))...)
}

// prepare finds out what the container runs: the program of its image, or its own command, and
// its arguments. In a full cluster it makes the pod's sandbox, with its volumes and the program
// in the root directory.
func (p *pod) prepare(ctx context.Context) error {
	container, c := p.object.Spec.Containers[0], p.n.c
	image := c.Programs[container.Image]
	p.argv, p.ip = slices.Concat(image, container.Command, container.Args), c.host
	switch {
	case !c.full && len(p.argv) > 0:
		return nil
	case len(image) == 0:
		return fmt.Errorf("image %q has no program", container.Image)
	}
	program := "/" + filepath.Base(image[0])
	p.argv = slices.Concat([]string{program}, image[1:], container.Args)
	if command := container.Command; len(command) > 0 {
		if p.argv = slices.Concat(command, container.Args); filepath.Base(command[0]) == filepath.Base(program) {
			p.argv[0] = program
		}
	}
	names, err := c.names(p.object.Namespace)
	if err != nil {
		return err
	}
	box, err := newSandbox(names)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.box, p.ip = box, box.ip
	p.mu.Unlock()
	if err := box.mount(image[0], program, true); err != nil {
		return err
	}
	volumes := make(map[string]string)
	for _, v := range p.object.Spec.Volumes {
		if volumes[v.Name], err = p.volume(ctx, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	for _, m := range container.VolumeMounts {
		if err := box.mount(filepath.Join(volumes[m.Name], m.SubPath), m.MountPath, m.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes the pod's sandbox.
func (p *pod) tidy() {
	p.mu.Lock()
	box := p.box
	p.box = nil
	p.mu.Unlock()
	if box == nil {
		return
	}
	if err := box.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "kubetest:", err)
	}
}

// ip runs the program of this name.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
