package kubetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/redykv/redykv/internal/etcdtest"
)

// pod is a pod that was bound to a node.
type pod struct {
	n      *Node
	object *corev1.Pod // as it was bound
	ended  chan struct{}
	argv   []string // of the container
	ip     string

	mu      sync.Mutex // guards the fields below
	box     *sandbox   // nil: the pod has none
	log     *os.File   // of a sandbox's process
	process *etcdtest.Process
	ending  bool
	killer  *time.Timer
}

// run runs the pod's process to its end, again and again if the pod says so. A pod that was
// deleted is removed then.
func (p *pod) run(ctx context.Context) {
	defer close(p.ended)
	err := p.prepare(ctx)
	defer p.tidy()
	for restarts := int32(0); ; restarts++ {
		var process *etcdtest.Process
		if err == nil {
			process, err = p.start(ctx)
		}
		if err != nil {
			p.failed(ctx, "StartError", err.Error(), 128)
			break
		}
		probing, stop := context.WithCancel(ctx)
		var probes sync.WaitGroup
		probes.Go(func() { p.probe(probing, restarts) })
		<-process.Ended
		p.closeLog()
		stop()
		probes.Wait()
		code, output := int32(process.ExitCode()), last(process.Output.String(), 1000)
		if !p.again(ctx, restarts) {
			p.failed(ctx, "Error", output, code)
			break
		}
		p.waits(ctx, restarts+1, output, code)
	}
	p.removeIfEnding(ctx)
}

// again waits until the container is to be started again, and reports whether it is.
func (p *pod) again(ctx context.Context, restarts int32) bool {
	wait := time.Duration(min(restarts, 1)) * restartAfter
	for end := time.Now().Add(wait); ; {
		p.mu.Lock()
		ending := p.ending
		p.mu.Unlock()
		switch {
		case ending || ctx.Err() != nil || p.object.Spec.RestartPolicy != corev1.RestartPolicyAlways:
			return false
		case !time.Now().Before(end):
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// restartAfter is the time after which a container that has ended again is started.
const restartAfter = time.Second

// runs sets the status of a pod whose process runs.
func (p *pod) runs(ctx context.Context, ready bool, restarts int32) {
	container, is := p.object.Spec.Containers[0], corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	p.status(ctx, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP, s.PodIPs, s.HostIP = corev1.PodRunning, p.ip, []corev1.PodIP{{IP: p.ip}}, p.n.c.host
		if s.StartTime == nil {
			s.StartTime = &metav1.Time{Time: time.Now()}
		}
		set(s, corev1.PodReady, is)
		set(s, corev1.ContainersReady, is)
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: container.Name, Ready: ready, RestartCount: restarts, Image: container.Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

// waits sets the status of a pod whose container has ended and is started again.
func (p *pod) waits(ctx context.Context, restarts int32, output string, code int32) {
	container := p.object.Spec.Containers[0]
	p.status(ctx, func(s *corev1.PodStatus) {
		set(s, corev1.PodReady, corev1.ConditionFalse)
		set(s, corev1.ContainersReady, corev1.ConditionFalse)
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: container.Name, RestartCount: restarts, Image: container.Image,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: output}},
		}}
	})
}

// start starts the process of the first container.
func (p *pod) start(ctx context.Context) (*etcdtest.Process, error) {
	container := p.object.Spec.Containers[0]
	env, err := p.environment(ctx, container)
	if err != nil {
		return nil, err
	}
	argv := make([]string, len(p.argv))
	for i, arg := range p.argv {
		argv[i] = expand(arg, env)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return nil, fmt.Errorf("deleted before it was started")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if p.box != nil {
		cmd = p.box.command(argv)
		log, err := os.OpenFile(p.n.c.log(p.object.Namespace, p.object.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		p.log, cmd.Stdout = log, log
	} else {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, env...)
	p.process, err = etcdtest.Run(cmd)
	if err != nil {
		p.process = nil
	}
	return p.process, err
}

// variable is a reference to a variable in an argument; $$ is a dollar.
var variable = regexp.MustCompile(`\$\$|\$\([A-Za-z_][A-Za-z0-9_]*\)`)

// expand replaces the references to variables that there are.
func expand(arg string, env []string) string {
	return variable.ReplaceAllStringFunc(arg, func(reference string) string {
		if reference == "$$" {
			return "$"
		}
		for _, v := range slices.Backward(env) {
			if name, value, _ := strings.Cut(v, "="); reference == "$("+name+")" {
				return value
			}
		}
		return reference
	})
}

// field returns a field of the pod.
func (p *pod) field(path string) string {
	for prefix, values := range map[string]map[string]string{"metadata.labels": p.object.Labels, "metadata.annotations": p.object.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix+"['"); ok {
			return values[strings.TrimSuffix(key, "']")]
		}
	}
	return map[string]string{
		"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace, "metadata.uid": string(p.object.UID),
		"spec.nodeName": p.object.Spec.NodeName, "spec.serviceAccountName": p.object.Spec.ServiceAccountName,
		"status.podIP": p.ip, "status.hostIP": p.n.c.host,
	}[path]
}

// environment returns the variables of a container: values, fields of the pod, secrets and
// config maps, and in a sandbox the address of the API server.
func (p *pod) environment(ctx context.Context, container corev1.Container) (env []string, err error) {
	if p.n.c.full {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(p.n.c.URL, "https://")) // it is ours
		env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	}
	for _, from := range container.EnvFrom {
		source := corev1.VolumeProjection{}
		switch {
		case from.SecretRef != nil:
			source.Secret = &corev1.SecretProjection{LocalObjectReference: from.SecretRef.LocalObjectReference, Optional: from.SecretRef.Optional}
		case from.ConfigMapRef != nil:
			source.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: from.ConfigMapRef.LocalObjectReference, Optional: from.ConfigMapRef.Optional}
		}
		values, err := p.files(ctx, source)
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			env = append(env, from.Prefix+name+"="+string(value))
		}
	}
	for _, v := range container.Env {
		value := expand(v.Value, env)
		if from := v.ValueFrom; from != nil && from.FieldRef != nil {
			value = p.field(from.FieldRef.FieldPath)
		} else if from != nil {
			source, key, optional := corev1.VolumeProjection{}, "", (*bool)(nil)
			switch {
			case from.SecretKeyRef != nil:
				key, optional = from.SecretKeyRef.Key, from.SecretKeyRef.Optional
				source.Secret = &corev1.SecretProjection{LocalObjectReference: from.SecretKeyRef.LocalObjectReference, Optional: optional}
			case from.ConfigMapKeyRef != nil:
				key, optional = from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional
				source.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: from.ConfigMapKeyRef.LocalObjectReference, Optional: optional}
			}
			values, err := p.files(ctx, source)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			text, ok := values[key]
			switch {
			case !ok && optional != nil && *optional:
				continue
			case !ok:
				return nil, fmt.Errorf("variable %s: no key %q", v.Name, key)
			}
			value = string(text)
		}
		env = append(env, v.Name+"="+value)
	}
	return env, nil
}

// end asks the process to end, and kills it after the grace period.
func (p *pod) end(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending && p.killer != nil {
		p.killer.Reset(grace) // the grace period can only become shorter
		return
	}
	p.ending = true
	if p.process == nil {
		return
	}
	p.process.Signal(syscall.SIGTERM)
	process := p.process
	p.killer = time.AfterFunc(grace, process.Kill)
}

// cut disconnects a sandbox.
func (p *pod) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box != nil {
		if err := p.box.cut(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
		}
	}
}

func (p *pod) closeLog() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log != nil {
		_ = p.log.Close() // what is missing was not of use to anyone
	}
}

// crash kills the process, if it runs, as if it had crashed.
func (p *pod) crash() bool {
	p.mu.Lock()
	process := p.process
	p.mu.Unlock()
	if process == nil {
		return false
	}
	select {
	case <-process.Ended:
		return false
	default:
		process.Kill()
		return true
	}
}

// kill kills the process.
func (p *pod) kill() {
	p.mu.Lock()
	process := p.process
	p.ending = true
	p.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// removeIfEnding removes a pod that was deleted.
func (p *pod) removeIfEnding(ctx context.Context) {
	p.mu.Lock()
	ending := p.ending
	p.mu.Unlock()
	if ending && ctx.Err() == nil {
		p.n.remove(ctx, p.object)
	}
}

// failed sets the status of a pod whose process has ended, or was not started.
func (p *pod) failed(ctx context.Context, reason, message string, code int32) {
	p.status(ctx, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodFailed
		if code == 0 {
			s.Phase, reason = corev1.PodSucceeded, "Completed"
		}
		set(s, corev1.PodReady, corev1.ConditionFalse)
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: p.object.Spec.Containers[0].Name, Image: p.object.Spec.Containers[0].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.Now()}},
		}}
	})
}

// status changes the pod's status. A kubelet that is lost changes nothing.
func (p *pod) status(ctx context.Context, change func(*corev1.PodStatus)) {
	pods := p.n.c.Client.CoreV1().Pods(p.object.Namespace)
	_ = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := pods.Get(ctx, p.object.Name, metav1.GetOptions{})
		if err != nil || o.UID != p.object.UID {
			return err
		}
		change(&o.Status)
		_, err = pods.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		return err
	})
}

// set sets a condition.
func set(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			c.Status, c.LastTransitionTime = status, metav1.Now()
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now()})
}
