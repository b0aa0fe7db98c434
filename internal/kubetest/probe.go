package kubetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeEvery is the interval of probes, whatever period they have.
const probeEvery = 200 * time.Millisecond

// probe keeps the pod's condition Ready up to date, by the first container's startup and
// readiness probes, until ctx ends.
func (p *pod) probe(ctx context.Context, restarts int32) {
	container := p.object.Spec.Containers[0]
	ready := false
	for first := true; ctx.Err() == nil; first = false {
		err := p.check(ctx, container, container.StartupProbe)
		if err == nil {
			err = p.check(ctx, container, container.ReadinessProbe)
		}
		if is := err == nil; ctx.Err() == nil && (first || is != ready) {
			ready = is
			p.runs(ctx, ready, restarts)
		}
		select {
		case <-time.After(probeEvery):
		case <-ctx.Done():
		}
	}
}

// check executes a probe by HTTP or TCP; others succeed.
func (p *pod) check(ctx context.Context, container corev1.Container, probe *corev1.Probe) error {
	if probe == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.at(container, probe.TCPSocket.Port))
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.HTTPGet != nil:
		get := probe.HTTPGet
		url := strings.ToLower(string(get.Scheme)) + "://" + p.at(container, get.Port) + get.Path
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		if answer.StatusCode >= 400 {
			err = fmt.Errorf("%s: %s", url, answer.Status)
		}
		_ = answer.Body.Close()
		return err
	}
	return nil
}

// at returns the address of a port of the pod.
func (p *pod) at(container corev1.Container, port intstr.IntOrString) string {
	number := port.IntValue()
	for _, o := range container.Ports {
		if port.Type == intstr.String && o.Name == port.StrVal {
			number = int(o.ContainerPort)
		}
	}
	return net.JoinHostPort(p.ip, fmt.Sprint(number))
}
