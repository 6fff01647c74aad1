package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// rotationName names the ConfigMap, the Secret, the Role and the RoleBinding in kube-system that
// exist while the CAs are rotated. The ConfigMap has the state and the certificates of the
// cluster's CAs, the Secret the new CAs with their keys, encrypted.
const rotationName = "airlift-ca-rotation"

// A Rotation is the rotation of the cluster's CAs that is going on.
type Rotation struct {
	Stage string // the furthest that any node may reach
	// ID is the hash of the new CA, as --discovery-token-ca-cert-hash has it.
	ID           string
	Former, Next []byte // certificates of the cluster's CA, PEM
	// FormerFrontProxy and NextFrontProxy are certificates of the front proxy's CA, PEM.
	FormerFrontProxy, NextFrontProxy []byte
}

// Read reads the rotation; nil if none is going on. A kubelet's permissions suffice.
func Read(ctx context.Context, api kubernetes.Interface) (*Rotation, error) {
	found, err := wait.Get(ctx, api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get, rotationName)
	// Without the ConfigMap there is no Role that allows a kubelet to read it.
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of the rotation: %w", err)
	}
	d := found.Data
	return &Rotation{
		Stage: d["stage"], ID: d["id"],
		Former: []byte(d["former.crt"]), Next: []byte(d["next.crt"]),
		FormerFrontProxy: []byte(d["former-front-proxy.crt"]), NextFrontProxy: []byte(d["next-front-proxy.crt"]),
	}, nil
}

// Store stores the state of the rotation, where nodes may read it.
func Store(ctx context.Context, c *cluster.Client, r *Rotation) (changed []string, err error) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: rotationName}
	return c.Apply(ctx,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{rotationName},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: rotationName},
			// A control plane that joins refuses to, before it has changed its host.
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: config.NodeTokenGroup},
			}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{
			"stage": r.Stage, "id": r.ID,
			"former.crt": string(r.Former), "next.crt": string(r.Next),
			"former-front-proxy.crt": string(r.FormerFrontProxy), "next-front-proxy.crt": string(r.NextFrontProxy),
		}},
	)
}

// StoreNextCAs stores the new CAs for the other control planes, encrypted with key. It keeps CAs
// that are stored already.
func StoreNextCAs(ctx context.Context, c *cluster.Client, key string, files map[string][]byte) (changed bool, err error) {
	if stored, err := NextCAs(ctx, c.API, key); err != nil || stored != nil {
		return false, err
	}
	aead, err := cluster.NewCipher(key)
	if err != nil {
		return false, err
	}
	data := map[string][]byte{}
	for name, value := range files {
		data[name] = cluster.Seal(aead, value)
	}
	_, err = c.Apply(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: rotationName}, Data: data})
	return err == nil, err
}

// NextCAs returns what StoreNextCAs has stored; nil if it has stored nothing.
func NextCAs(ctx context.Context, api kubernetes.Interface, key string) (map[string][]byte, error) {
	aead, err := cluster.NewCipher(key)
	if err != nil {
		return nil, err
	}
	secret, err := wait.Get(ctx, api.CoreV1().Secrets(metav1.NamespaceSystem).Get, rotationName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the new CAs: %w", err)
	}
	files := map[string][]byte{}
	for name, sealed := range secret.Data {
		if files[name], err = cluster.Unseal(aead, sealed); err != nil {
			return nil, fault.New(fault.Failure, "decrypting %q of Secret %s/%s: %w", name, metav1.NamespaceSystem, rotationName, err).
				Hint("use the --certificate-key that the first control plane printed; if it is lost, and no node has reached a stage: kubectl --namespace " + metav1.NamespaceSystem + " delete secret " + rotationName)
		}
	}
	return files, nil
}

// Remove deletes what the rotation has stored in the cluster. What does not exist is not an error.
// An interrupted run can be repeated. Without the ConfigMap, the stages that nodes have recorded have no effect.
func Remove(ctx context.Context, c *cluster.Client) error {
	api := c.API
	o := metav1.DeleteOptions{}
	for _, remove := range []func() error{
		func() error {
			return api.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, rotationName, o)
		},
		func() error {
			return api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, rotationName, o)
		},
		func() error {
			return api.RbacV1().RoleBindings(metav1.NamespaceSystem).Delete(ctx, rotationName, o)
		},
		func() error { return api.RbacV1().Roles(metav1.NamespaceSystem).Delete(ctx, rotationName, o) },
	} {
		if err := wait.Retry(ctx, remove); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing the state of the rotation: %w", err)
		}
	}
	nodes, err := Nodes(ctx, api, "")
	if err != nil {
		return err
	}
	for _, n := range nodes {
		_, err := c.NodeObjects().Follow(ctx, n.Name, func(f *cluster.Follows) { f.Rotation = "" })
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// A Node is a node and the stage that it has reached.
type Node struct {
	Name         string `json:"name"`
	ControlPlane bool   `json:"controlPlane"`
	Ready        bool   `json:"ready"`
	Stage        string `json:"stage"` // "" if it has reached none
}

// Nodes lists the nodes, control planes first. Stages of another rotation do not count.
func Nodes(ctx context.Context, api kubernetes.Interface, id string) (nodes []Node, err error) {
	list, err := wait.List(ctx, api.CoreV1().Nodes().List, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	for _, n := range list.Items {
		nodes = append(nodes, node(&n, id))
	}
	slices.SortStableFunc(nodes, func(a, b Node) int {
		switch {
		case a.ControlPlane == b.ControlPlane:
			return strings.Compare(a.Name, b.Name)
		case a.ControlPlane:
			return -1
		}
		return 1
	})
	return nodes, nil
}

// ReadNode returns one node. A kubelet's permissions suffice for its own.
func ReadNode(ctx context.Context, api kubernetes.Interface, name, id string) (Node, error) {
	found, err := cluster.GetNode(ctx, api, name)
	if err != nil {
		return Node{}, err
	}
	return node(found, id), nil
}

func node(n *corev1.Node, id string) Node {
	ready, _ := cluster.NodeReady(n)
	_, controlPlane := n.Labels[cluster.ControlPlaneLabel]
	node := Node{Name: n.Name, ControlPlane: controlPlane, Ready: ready}
	if stage, of, _ := strings.Cut(cluster.FollowsOf(n).Rotation, " "); of == id {
		node.Stage = stage
	}
	return node
}

// SetStage records the stage that a node has reached. The kubelet's permissions suffice.
func SetStage(ctx context.Context, c *cluster.Client, node, id, stage string) (changed bool, err error) {
	return c.NodeObjects().Follow(ctx, node, func(f *cluster.Follows) { f.Rotation = stage + " " + id })
}
