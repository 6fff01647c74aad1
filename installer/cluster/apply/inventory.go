package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// InventoryName is the ConfigMap in kube-system that lists what init applied of the site's
// manifests. Each key is the name of a manifest, each value an InventoryEntry in YAML.
const InventoryName = "airlift-manifests"

// An Entry lists what init applied of one manifest.
type Entry struct {
	// SHA256 is the sha256 of the manifest's bytes in the bundle.
	SHA256    string `json:"sha256"`
	Chart     string `json:"chart,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Bundle is the sha256 of the bundle's manifest.json, from which it was applied.
	Bundle string `json:"bundle"`
	// Applied is when init last changed something, in UTC; missing while the manifest is
	// applied for the first time, and after an interrupted run.
	Applied string `json:"applied,omitempty"`
	// Objects are the objects of the manifest: "Deployment.apps web/front".
	Objects []string `json:"objects"`
	// Later are the objects that cannot be applied before a worker joins.
	Later []string `json:"later,omitempty"`
	// Former are objects of an earlier version of the manifest. They are not deleted.
	Former []string `json:"former,omitempty"`
}

// ReadInventory returns the inventory, by the names of the manifests.
func ReadInventory(ctx context.Context, api kubernetes.Interface) (map[string]Entry, error) {
	inventory := map[string]Entry{}
	configMap, err := wait.Get(ctx, api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get, InventoryName)
	if apierrors.IsNotFound(err) {
		return inventory, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, InventoryName, err)
	}
	for name, data := range configMap.Data {
		e := Entry{}
		if err := yaml.Unmarshal([]byte(data), &e); err != nil {
			return nil, fault.New(fault.Failure, "reading ConfigMap %s/%s: %q: %w", metav1.NamespaceSystem, InventoryName, name, err).
				Hint(fmt.Sprintf("remove it, and apply the manifests again: kubectl delete configmap -n %s %s; ./install init phase manifests", metav1.NamespaceSystem, InventoryName))
		}
		inventory[name] = e
	}
	return inventory, nil
}

// ApplyRecorded applies manifests and records them in the inventory. The objects are recorded before they
// are applied, so that the inventory never lists less than what is in the cluster. After an error, it
// returns what was applied, and no entries.
func (s *Applier) ApplyRecorded(ctx context.Context, manifests []*Manifest, bundle string, now time.Time) ([]Applied, []Entry, error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, nil, err
	}
	before := make([]Entry, len(manifests))
	for i, m := range manifests {
		known := false
		if before[i], known = inventory[m.Name]; known && before[i].SHA256 == m.SHA256 {
			continue
		}
		begun := Entry{SHA256: m.SHA256, Chart: m.Chart, Namespace: m.Namespace, Bundle: bundle}
		for _, o := range m.objects {
			begun.Objects = append(begun.Objects, inventoryName(o, s.placeOf(m, o)))
		}
		begun.Former = without(slices.Concat(before[i].Objects, before[i].Former), begun.Objects)
		if err := s.record(ctx, m.Name, begun); err != nil {
			return nil, nil, err
		}
		before[i] = begun
	}
	applied, err := s.Apply(ctx, manifests)
	if err != nil {
		return applied, nil, err
	}
	entries := make([]Entry, len(manifests))
	for i, m := range manifests {
		next := Entry{SHA256: m.SHA256, Chart: m.Chart, Namespace: m.Namespace, Bundle: bundle, Objects: applied[i].Objects}
		for _, l := range applied[i].Later {
			next.Later = append(next.Later, l.Object)
		}
		next.Former = without(before[i].Former, next.Objects)
		same := before[i].Applied != "" && before[i].Chart == next.Chart && before[i].Namespace == next.Namespace && len(applied[i].Changed) == 0 &&
			slices.Equal(before[i].Objects, next.Objects) && slices.Equal(before[i].Later, next.Later) && slices.Equal(before[i].Former, next.Former)
		if entries[i] = before[i]; same {
			continue
		}
		next.Applied = now.UTC().Format(time.RFC3339)
		if err := s.record(ctx, m.Name, next); err != nil {
			return applied, nil, err
		}
		entries[i] = next
	}
	return applied, entries, nil
}

// without returns the names that are not among others, each once.
func without(names, others []string) (rest []string) {
	for _, n := range names {
		if !slices.Contains(others, n) && !slices.Contains(rest, n) {
			rest = append(rest, n)
		}
	}
	return rest
}

// record writes an entry of the inventory.
func (s *Applier) record(ctx context.Context, name string, e Entry) error {
	data, err := yaml.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.client.Apply(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: InventoryName, Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{name: string(data)},
	})
	return err
}
