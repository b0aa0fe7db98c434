package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume makes a volume of the pod and returns its directory. What it has of config maps,
// secrets and tokens does not change any more.
func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	core := p.n.c.Client.CoreV1()
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, nil
	case v.PersistentVolumeClaim != nil:
		claim, err := core.PersistentVolumeClaims(p.object.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		disk, err := core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if disk.Spec.HostPath == nil {
			return "", fmt.Errorf("persistent volume %s: want a hostPath", disk.Name)
		}
		return disk.Spec.HostPath.Path, nil
	}
	dir := filepath.Join(p.n.c.dir, "volumes", string(p.object.UID), v.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	var sources []corev1.VolumeProjection
	switch {
	case v.EmptyDir != nil:
	case v.ConfigMap != nil:
		sources = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}}}
	case v.Secret != nil:
		sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional}}}
	case v.Projected != nil:
		sources = v.Projected.Sources
	default:
		return "", fmt.Errorf("of an unknown kind")
	}
	for _, source := range sources {
		files, err := p.files(ctx, source)
		if err != nil {
			return "", err
		}
		for name, data := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return "", err
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// files returns the files of a source, by name.
func (p *pod) files(ctx context.Context, source corev1.VolumeProjection) (map[string][]byte, error) {
	core, namespace := p.n.c.Client.CoreV1(), p.object.Namespace
	files := make(map[string][]byte)
	switch {
	case source.ServiceAccountToken != nil:
		token := source.ServiceAccountToken
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: token.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.object.Name, UID: p.object.UID},
		}}
		if token.Audience != "" {
			request.Spec.Audiences = []string{token.Audience}
		}
		answer, err := core.ServiceAccounts(namespace).CreateToken(ctx, p.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		files[token.Path] = []byte(answer.Status.Token)
	case source.ConfigMap != nil:
		o, err := core.ConfigMaps(namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, unless(source.ConfigMap.Optional, err)
		}
		for name, text := range o.Data {
			files[name] = []byte(text)
		}
		return chosen(files, source.ConfigMap.Items), nil
	case source.Secret != nil:
		o, err := core.Secrets(namespace).Get(ctx, source.Secret.Name, metav1.GetOptions{})
		if err != nil {
			return nil, unless(source.Secret.Optional, err)
		}
		return chosen(o.Data, source.Secret.Items), nil
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef == nil {
				return nil, fmt.Errorf("file %s has an unknown source", item.Path)
			}
			files[item.Path] = []byte(p.field(item.FieldRef.FieldPath))
		}
	default:
		return nil, fmt.Errorf("a projection of an unknown kind")
	}
	return files, nil
}

// unless returns err, unless it says that something optional does not exist.
func unless(optional *bool, err error) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// chosen returns those files that items name, at their paths; without items: all.
func chosen(files map[string][]byte, items []corev1.KeyToPath) map[string][]byte {
	if len(items) == 0 {
		return files
	}
	some := make(map[string][]byte)
	for _, i := range items {
		some[i.Path] = files[i.Key]
	}
	return some
}
