package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// client calls the API server. It knows only the API groups that are needed: all of
// client-go's would make every start of the program slower.
//
// Events and removals have limits of their own, so that no pod waits for them to be created.
type client struct {
	core, events, removals, authorization rest.Interface

	params    runtime.ParameterCodec
	namespace string
	host      string
}

// newClient returns a client for a kubeconfig; empty: $KUBECONFIG or ~/.kube/config, or the
// service account of the pod.
func newClient(kubeconfig, namespace string) (*client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if rules.ExplicitPath = kubeconfig; kubeconfig != "" {
		if _, err := os.Stat(kubeconfig); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("kubeconfig: namespace: %w", err)
		}
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.ContentType = 200, 400, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c := &client{params: runtime.NewParameterCodec(scheme), namespace: namespace, host: config.Host}
	for _, core := range []*rest.Interface{&c.core, &c.events, &c.removals} {
		if *core, err = group(config, transport, "/api", corev1.SchemeGroupVersion); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	if c.authorization, err = group(config, transport, "/apis", authorizationv1.SchemeGroupVersion); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return c, nil
}

func group(config *rest.Config, transport *http.Client, path string, version schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = path, &version
	return rest.RESTClientForConfigAndClient(config, transport)
}

// create creates an object of the namespace, and fills it in as the API server has it.
func (c *client) create(ctx context.Context, resource string, o runtime.Object, dryRun bool) error {
	opts := &metav1.CreateOptions{}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	core := c.core
	if resource == "events" {
		core = c.events
	}
	return core.Post().Namespace(c.namespace).Resource(resource).VersionedParams(opts, c.params).Body(o).Do(ctx).Into(o)
}

// pod reads a pod.
func (c *client) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	return p, c.core.Get().Namespace(c.namespace).Resource("pods").Name(name).Do(ctx).Into(p)
}

// metadata reads the metadata of an object of the namespace: secrets are not read.
func (c *client) metadata(ctx context.Context, resource, name string) (*metav1.PartialObjectMetadata, error) {
	o := new(metav1.PartialObjectMetadata)
	err := c.core.Get().Namespace(c.namespace).Resource(resource).Name(name).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx).Into(o)
	return o, err
}

// annotate sets an annotation of an object of the namespace, in the version that was read.
func (c *client) annotate(ctx context.Context, resource string, o *metav1.PartialObjectMetadata, name, value string) error {
	patch, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: o.UID, ResourceVersion: o.ResourceVersion, Annotations: map[string]string{name: value},
	}})
	if err != nil {
		return err
	}
	return c.core.Patch(types.MergePatchType).Namespace(c.namespace).Resource(resource).Name(o.Name).Body(patch).Do(ctx).Error()
}

// remove deletes an object of the namespace, in the version that was read.
func (c *client) remove(ctx context.Context, resource string, o *metav1.PartialObjectMetadata, grace int64) error {
	return c.removals.Delete().Namespace(c.namespace).Resource(resource).Name(o.Name).Body(&metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	}).Do(ctx).Error()
}

// kind are objects of one resource.
type kind struct {
	resource   string
	namespaced bool
	labels     string
}

func (c *client) list(ctx context.Context, k kind, into runtime.Object) error {
	return c.listing(k).Do(ctx).Into(into)
}

// listMetadata is list without what the objects contain.
func (c *client) listMetadata(ctx context.Context, k kind) (*metav1.PartialObjectMetadataList, error) {
	all := new(metav1.PartialObjectMetadataList)
	err := c.listing(k).SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Into(all)
	return all, err
}

func (c *client) listing(k kind) *rest.Request {
	return c.core.Get().NamespaceIfScoped(c.namespace, k.namespaced).Resource(k.resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: k.labels}, c.params)
}

func (c *client) watch(ctx context.Context, k kind, since string) (watch.Interface, error) {
	seconds := int64(300)
	return c.core.Get().NamespaceIfScoped(c.namespace, k.namespaced).Resource(k.resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: k.labels, Watch: true, AllowWatchBookmarks: true, ResourceVersion: since, TimeoutSeconds: &seconds}, c.params).
		Timeout(time.Duration(seconds) * time.Second).Watch(ctx)
}

// may reports whether the caller has a right.
func (c *client) may(ctx context.Context, r Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.Verb, Resource: r.Resource},
	}}
	if r.Namespaced {
		review.Spec.ResourceAttributes.Namespace = c.namespace
	}
	err := c.authorization.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, err
}
