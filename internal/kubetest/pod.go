package kubetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/redykv/redykv/internal/etcdtest"
)

// podIP is the address of all pods.
const podIP = "127.0.0.1"

// pod is a pod that was bound to a node.
type pod struct {
	n      *Node
	object *corev1.Pod // as it was bound
	ended  chan struct{}

	mu      sync.Mutex // guards the fields below
	process *etcdtest.Process
	ending  bool
	killer  *time.Timer
}

// run runs the pod's process to its end. A pod that was deleted is removed then.
func (p *pod) run(ctx context.Context) {
	defer close(p.ended)
	process, err := p.start(ctx)
	if err != nil {
		p.failed(ctx, "StartError", err.Error(), 128)
		p.removeIfEnding(ctx)
		return
	}
	p.status(ctx, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP, s.PodIPs, s.HostIP = corev1.PodRunning, podIP, []corev1.PodIP{{IP: podIP}}, podIP
		s.StartTime = &metav1.Time{Time: time.Now()}
		set(s, corev1.PodReady, corev1.ConditionTrue)
		set(s, corev1.ContainersReady, corev1.ConditionTrue)
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: p.object.Spec.Containers[0].Name, Ready: true, Image: p.object.Spec.Containers[0].Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
	<-process.Ended
	p.failed(ctx, "Error", last(process.Output.String(), 1000), int32(process.ExitCode()))
	p.removeIfEnding(ctx)
}

// start starts the process of the first container.
func (p *pod) start(ctx context.Context) (*etcdtest.Process, error) {
	container := p.object.Spec.Containers[0]
	args := append(append([]string(nil), p.n.c.Programs[container.Image]...), container.Command...)
	args = append(args, container.Args...)
	if len(args) == 0 {
		return nil, fmt.Errorf("image %q has no program", container.Image)
	}
	env, err := p.environment(ctx, container)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return nil, fmt.Errorf("deleted before it was started")
	}
	p.process, err = etcdtest.Run(cmd)
	if err != nil {
		p.process = nil
	}
	return p.process, err
}

// environment returns the variables of a container: values, fields of the pod and secrets.
func (p *pod) environment(ctx context.Context, container corev1.Container) (env []string, err error) {
	fields := map[string]string{
		"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace, "metadata.uid": string(p.object.UID),
		"spec.nodeName": p.object.Spec.NodeName, "status.podIP": podIP, "status.hostIP": podIP,
	}
	for _, v := range container.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value = fields[from.FieldRef.FieldPath]
		case from.SecretKeyRef != nil:
			s, err := p.n.c.Client.CoreV1().Secrets(p.object.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			value = string(s.Data[from.SecretKeyRef.Key])
		default:
			return nil, fmt.Errorf("variable %s has an unknown source", v.Name)
		}
		env = append(env, v.Name+"="+value)
	}
	for _, from := range container.EnvFrom {
		if from.SecretRef == nil {
			return nil, fmt.Errorf("variables have an unknown source")
		}
		s, err := p.n.c.Client.CoreV1().Secrets(p.object.Namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for name, value := range s.Data {
			env = append(env, name+"="+string(value))
		}
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
