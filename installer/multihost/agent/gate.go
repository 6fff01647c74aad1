package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/multihost/facts"
	"airlift/internal/fault"
)

// gateMap is the ConfigMap of a gate in kube-system. A kubelet cannot write there, as it can to its Node.
const gateMap, gateKey = "airlift-roll", "gate"

// A GateChange is what "cluster host gate" reads: the gate that the driver knows, and the one that takes its place.
type GateChange struct {
	Was *facts.Gate `json:"was"`
	Is  *facts.Gate `json:"is"`
}

func gateError(doing string, err error) error {
	return fmt.Errorf("%s ConfigMap %s/%s: %w", doing, metav1.NamespaceSystem, gateMap, err)
}

// readGate returns the gate, and the ConfigMap that has it; nil if there is none.
func readGate(ctx context.Context, client *cluster.Client) (g *facts.Gate, m *corev1.ConfigMap, err error) {
	m, err = wait.Get(ctx, client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get, gateMap)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err == nil {
		g, err = facts.DecodeGate(m.Data[gateKey])
	}
	if err != nil {
		return nil, nil, gateError("reading", err)
	}
	return g, m, nil
}

// Apply replaces the gate of the cluster, and returns it as it is stored. It fails if the cluster has another one than the driver
// knows. It is true when run twice.
func (c GateChange) Apply(ctx context.Context, client *cluster.Client) (*facts.Gate, error) {
	stored, m, err := readGate(ctx, client)
	if err != nil || stored.Is(c.Is) {
		return stored, err
	}
	if !stored.Is(c.Was) {
		return nil, otherGate()
	}
	if c.Is != nil && c.Is.Broken == nil {
		if c.Is.Broken, err = workloads.Broken(ctx, client.API); err != nil {
			return nil, err
		}
	}
	err = wait.Retry(ctx, func() error { return writeGate(ctx, client, m, c.Is) })
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		if now, _, again := readGate(ctx, client); again == nil && now.Is(c.Is) { // the answer to the first attempt was lost
			return now, nil
		}
		return nil, otherGate()
	case err != nil:
		return nil, gateError("changing", err)
	}
	return c.Is, nil
}

// writeGate writes a gate in place of a ConfigMap, if that has not changed; nil removes it.
func writeGate(ctx context.Context, client *cluster.Client, had *corev1.ConfigMap, g *facts.Gate) error {
	maps := client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if g == nil {
		if had == nil {
			return nil
		}
		return maps.Delete(ctx, gateMap, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &had.UID, ResourceVersion: &had.ResourceVersion}})
	}
	text, err := g.Encode()
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: gateMap}, Data: map[string]string{gateKey: text}}
	if had == nil {
		_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		return err
	}
	m.ResourceVersion = had.ResourceVersion
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	return err
}

func otherGate() error {
	return fault.New(fault.Failure, "another driver changed hosts meanwhile: ConfigMap %s/%s has another batch than this driver knows", metav1.NamespaceSystem, gateMap).
		Hint("wait until the other driver has finished, and run the same command again")
}
