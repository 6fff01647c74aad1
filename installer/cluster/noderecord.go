package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// managedConfigMap in kube-system has a nodeRecord for each node, by its name. It permits an administrator to remove labels and
// taints, so it is nothing that a kubelet may write: neither the Node nor an annotation of it.
const managedConfigMap = "airlift-nodes"

// ownLabels is the annotation with the labels that a kubelet gave to its own Node. Only this kubelet uses it: the API server
// lets it remove no more than it may.
const ownLabels = "airlift.dev/managed"

// Managed are the keys of the labels and taints of a node that SetMeta set.
type Managed struct {
	Labels []string `json:"labels,omitempty"`
	// Taints as key:Effect. One that begins with - is the taint of control planes, which was removed.
	Taints []string `json:"taints,omitempty"`
}

// A nodeRecord is valid for the Node with a UID, and not for another one that gets its name later.
type nodeRecord struct {
	UID types.UID `json:"uid,omitempty"`
	Managed
}

// removedTaint records that SetMeta removed the taint of control planes.
var removedTaint = "-" + identity(config.ControlPlaneTaint)

// and returns the keys of both.
func (m Managed) and(o Managed) Managed {
	both := func(a, b []string) []string {
		list := slices.Concat(a, b)
		slices.Sort(list)
		return slices.Compact(list)
	}
	return Managed{Labels: both(m.Labels, o.Labels), Taints: both(m.Taints, o.Taints)}
}

// Managed returns what SetMeta set on nodes. A damaged record is as none: SetMeta reports it.
func (c NodeObjects) Managed(ctx context.Context, nodes []NodeState) (map[string]Managed, error) {
	data, err := c.records(ctx)
	if err != nil {
		return nil, err
	}
	managed := map[string]Managed{}
	for _, n := range nodes {
		managed[n.Name], _ = parseRecord(data[n.Name], n.Name, n.UID)
	}
	return managed, nil
}

func (c NodeObjects) records(ctx context.Context) (map[string]string, error) {
	m, err := ConfigMap(ctx, c.client.API, metav1.NamespaceSystem, managedConfigMap)
	if err != nil || m == nil {
		return nil, err
	}
	return m.Data, nil
}

// recorded returns a Node and the record of it.
func (c NodeObjects) recorded(ctx context.Context, name string) (n *corev1.Node, m Managed, err error) {
	n, err = wait.Get(ctx, c.client.API.CoreV1().Nodes().Get, name)
	if err != nil {
		return nil, m, err
	}
	if c.isKubelet(name) {
		m, err = parseRecord(n.Annotations[ownLabels], name, "")
		return n, Managed{Labels: m.Labels}, err
	}
	data, err := c.records(ctx)
	if err == nil {
		m, err = parseRecord(data[name], name, n.UID)
	}
	return n, m, err
}

// parseRecord returns what SetMeta set on the Node with a UID. What it never sets is damage.
func parseRecord(text, name string, uid types.UID) (Managed, error) {
	if text == "" {
		return Managed{}, nil
	}
	var r nodeRecord
	err := json.Unmarshal([]byte(text), &r)
	if err == nil && r.UID != uid {
		return Managed{}, nil
	}
	set := NodeMeta{Name: name, Labels: map[string]string{}}
	for _, key := range r.Labels {
		set.Labels[key] = ""
	}
	set.Taints = slices.DeleteFunc(slices.Clone(r.Taints), func(t string) bool { return t == removedTaint })
	if err = cmp.Or(err, set.Check()); err != nil {
		if uid == "" {
			return Managed{}, fault.New(fault.Failure, "its annotation %s is damaged: %w", ownLabels, err).
				Hint("remove it; what the node has now then stays: kubectl annotate node " + name + " " + ownLabels + "-")
		}
		return Managed{}, fault.New(fault.Failure, "its record in the ConfigMap %s/%s is damaged: %w", metav1.NamespaceSystem, managedConfigMap, err).
			Hint("remove the line of the node; what the node has now then stays: kubectl -n kube-system edit configmap " + managedConfigMap)
	}
	return r.Managed, nil
}

// record stores what SetMeta sets on a node, unless the stored record is the same.
func (c NodeObjects) record(ctx context.Context, n *corev1.Node, m Managed) (changed bool, err error) {
	if c.isKubelet(n.Name) {
		return c.recordOwn(ctx, n.Name, m)
	}
	text := ""
	if len(m.Labels)+len(m.Taints) > 0 {
		data, err := json.Marshal(nodeRecord{n.UID, m})
		if err != nil {
			return false, err
		}
		text = string(data)
	}
	have, err := c.records(ctx)
	if err != nil || have[n.Name] == text {
		return false, err
	}
	if have == nil {
		maps := c.client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		err = wait.Retry(ctx, func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: managedConfigMap}}, metav1.CreateOptions{})
			return err
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, recordError(err)
		}
	}
	return true, c.patchRecord(ctx, n.Name, text)
}

// patchRecord stores the record of one node, "" for none. The records of others stay.
func (c NodeObjects) patchRecord(ctx context.Context, name, text string) error {
	var value any
	if text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]any{name: value}})
	if err != nil {
		return err
	}
	return recordError(wait.Retry(ctx, func() error {
		_, err := c.client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(ctx, managedConfigMap, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}))
}

// forget removes the record of a node that is gone.
func (c NodeObjects) forget(ctx context.Context, name string) error {
	data, err := c.records(ctx)
	if _, has := data[name]; err != nil || !has {
		return err
	}
	return c.patchRecord(ctx, name, "")
}

func recordError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("changing ConfigMap %s/%s: %w", metav1.NamespaceSystem, managedConfigMap, err)
}

// recordOwn stores the labels that a kubelet gave to its Node.
func (c NodeObjects) recordOwn(ctx context.Context, name string, m Managed) (changed bool, err error) {
	data, err := json.Marshal(Managed{Labels: m.Labels})
	if err != nil {
		return false, err
	}
	return c.PatchNode(ctx, name, func(n *corev1.Node) {
		delete(n.Annotations, ownLabels)
		if len(m.Labels) == 0 {
			return
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[ownLabels] = string(data)
	})
}

// isKubelet reports whether the client is the kubelet of a node, to which the API server permits only what concerns it.
func (c NodeObjects) isKubelet(name string) bool {
	block, _ := pem.Decode(c.client.certificate)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && cert.Subject.CommonName == "system:node:"+name
}
