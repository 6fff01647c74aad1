package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// Registry reads what the control planes keep and serve; nil if the cluster has no such ConfigMap. Unlike in FetchConfig, a
// ConfigMap that must not be read is an error. A kubelet's permissions suffice.
func (c *Client) Registry(ctx context.Context) (*config.EmbeddedRegistry, error) {
	m, err := registryMap(ctx, c)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, registryError("reading", err)
	}
	r, err := decodeRegistry(m)
	if err != nil {
		return nil, registryError("reading", err)
	}
	return &r, nil
}

// decodeRegistry reads the ConfigMap, which a user may have edited. While it is damaged or missing, nodes and control planes
// keep what they have.
func decodeRegistry(m *corev1.ConfigMap) (config.EmbeddedRegistry, error) {
	r, err := config.DecodeRegistry([]byte(m.Data[config.RegistryKey]))
	if err != nil {
		err = fault.Wrap(err, fault.Failure, "correct it: kubectl -n kube-system edit configmap "+config.RegistryConfigMap+
			"; or delete it, run './install registry enable' on each control plane, and then each import again")
	}
	return r, err
}

func registryError(doing string, err error) error {
	return fmt.Errorf("%s ConfigMap %s/%s: %w", doing, metav1.NamespaceSystem, config.RegistryConfigMap, err)
}

func registryMap(ctx context.Context, c *Client) (m *corev1.ConfigMap, err error) {
	m, err = wait.Get(ctx, c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get, config.RegistryConfigMap)
	return m, err
}

// EditRegistry changes what the control planes keep and serve, and creates the ConfigMap if it is missing. edit may be called
// more than once.
func (c *Client) EditRegistry(ctx context.Context, edit func(*config.EmbeddedRegistry)) (changed bool, err error) {
	try := func() error {
		m, err := registryMap(ctx, c)
		missing := apierrors.IsNotFound(err)
		if missing {
			m, err = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.RegistryConfigMap}}, nil
		}
		if err != nil {
			return err
		}
		if did, err := editRegistryMap(m, edit); err != nil || !did && !missing {
			return err
		}
		maps := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		if missing {
			_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		} else {
			_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		}
		changed = err == nil
		return err
	}
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = wait.Retry(ctx, func() error { return retry.OnError(retry.DefaultBackoff, again, try) })
	if err != nil {
		return changed, registryError("changing", err)
	}
	return changed, nil
}

// editRegistryMap changes the data of the ConfigMap, and reports whether it changed.
func editRegistryMap(m *corev1.ConfigMap, edit func(*config.EmbeddedRegistry)) (changed bool, err error) {
	var r config.EmbeddedRegistry
	before := m.Data[config.RegistryKey]
	if before != "" {
		if r, err = decodeRegistry(m); err != nil {
			return false, err
		}
	}
	edit(&r)
	after, err := r.Encode()
	if err != nil || string(after) == before {
		return false, err
	}
	m.Data = map[string]string{config.RegistryKey: string(after)}
	return true, nil
}

// Delete deletes objects, by their kinds and names, and returns the objects that existed.
func (c *Client) Delete(ctx context.Context, objects ...runtime.Object) (changed []string, err error) {
	for _, object := range objects {
		o, err := toUnstructured(object)
		if err != nil {
			return changed, err
		}
		err = wait.Retry(ctx, func() error { return c.resource(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}) })
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return changed, fmt.Errorf("deleting %s: %w", Describe(o), err)
		default:
			changed = append(changed, Describe(o))
		}
	}
	return changed, nil
}

// UsesRegistry records that a node uses the embedded registry, and follows no generation, unless it has a record.
func (c NodeObjects) UsesRegistry(ctx context.Context, node string) error {
	_, err := c.Follow(ctx, node, func(f *Follows) { f.UsesRegistry = true })
	return err
}

// ForgetRegistry removes that record from a node, which may be gone.
func (c NodeObjects) ForgetRegistry(ctx context.Context, node string) error {
	_, err := c.Follow(ctx, node, func(f *Follows) { f.UsesRegistry, f.Registry = false, 0 })
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
