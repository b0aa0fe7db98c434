package kubetest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
)

// serves makes this program one that serves what it sees of its pod.
const serves = "KUBETEST_SERVES"

// serve answers what another pod, the API server and the volume say.
func serve() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	config, err := rest.InClusterConfig()
	fail(err)
	client, err := kubernetes.NewForConfig(config)
	fail(err)
	http.HandleFunc("/store", func(w http.ResponseWriter, r *http.Request) {
		fail(os.WriteFile("/data/text", []byte(r.FormValue("text")), 0o600))
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		version, err := client.Discovery().ServerVersion()
		text, readErr := os.ReadFile("/data/text")
		peer, lookErr := net.LookupHost(os.Getenv("PEER"))
		_, _ = fmt.Fprintln(w, os.Getenv(serves), version, err, string(text), readErr, peer, lookErr)
	})
	fail(http.ListenAndServe(":80", nil))
}

// A StatefulSet's pods have names, addresses, tokens and disks, and are made again where they
// were evicted.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	c := kubetest.StartFull(t)
	self, err := os.Executable()
	check(t, err)
	c.Programs["serves"] = []string{self}
	ctx := t.Context()
	nodes := []*kubetest.Node{
		c.Node(kubetest.NodeOptions{Name: "node-0", Memory: "1Gi"}), c.Node(kubetest.NodeOptions{Name: "node-1", Memory: "1Gi"}),
	}
	one := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for i := range 2 {
		_, err := c.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("disk-", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: one, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}},
			},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	labels := map[string]string{"app": "web"}
	_, err = c.Client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	check(t, err)
	replicas := int32(2)
	_, err = c.Client.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "web", Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "serves", Image: "serves", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
					Env: []corev1.EnvVar{
						{Name: serves, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
						{Name: "PEER", Value: "web-0.web.default.svc"},
					},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}},
					VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: new(string), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: one},
				},
			}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	ready := func() {
		c.Until("both pods are ready", func(context.Context) (bool, error) { return len(c.Endpoints("default", "web")) == 2, nil })
	}
	ready()
	for _, a := range c.Endpoints("default", "web") {
		c.Until("a pod keeps a text", func(context.Context) (bool, error) {
			_, err := get("http://" + a + "/store?text=kept-by-" + a)
			return err == nil, err
		})
	}
	before := c.Endpoints("default", "web")
	for _, n := range nodes[:1] {
		check(t, n.Drain(ctx))
	}
	c.Until("a pod has moved", func(context.Context) (bool, error) {
		return len(c.Endpoints("default", "web")) == 2 && !slices.Equal(c.Endpoints("default", "web"), before), nil
	})
	c.Until("both pods have their disks, tokens and names of others", func(context.Context) (bool, error) {
		at := c.Endpoints("default", "web")
		for _, a := range at {
			text, err := get("http://" + a + "/") // fails if the endpoint is that of the former pod
			if err != nil || !strings.Contains(text, "kept-by-10.") || !strings.Contains(text, "v1.") || !strings.Contains(text, "[10.") {
				return false, err
			}
		}
		return len(at) == 2, nil
	})
}

func get(url string) (string, error) {
	client := http.Client{Timeout: testrun.Patience(10 * time.Second)}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
