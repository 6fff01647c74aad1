package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// InventoryName is the ConfigMap in kube-system that lists what was applied of the site's
// manifests. Each key is the name of a manifest, each value an Entry in YAML.
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
	// Former are objects of earlier versions of the manifest. Apply removes them only if it is asked to.
	Former []string `json:"former,omitempty"`
	// Hooks are the objects of a chart's hooks. They may be missing: a hook can have its own objects deleted.
	Hooks []string `json:"hooks,omitempty"`
	// Pending are the events whose hooks have not run yet: "post-install".
	Pending []string `json:"pending,omitempty"`
	// Revision is the number of the version in the history.
	Revision int `json:"revision,omitempty"`
	// Run identifies the command that began with this version: manifests with the same value changed together.
	Run string `json:"run,omitempty"`
	// Undoes is the run that is being undone; missing when that has ended. Undone are the Former objects of the undone version.
	Undoes string   `json:"undoes,omitempty"`
	Undone []string `json:"undone,omitempty"`
	// Removing is set while the manifest is removed.
	Removing bool `json:"removing,omitempty"`
}

// all returns the names of all objects that the manifest has or had.
func (e Entry) all() []string {
	return without(slices.Concat(e.Former, e.Objects, e.Later, e.Hooks), nil)
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
				Hint(fmt.Sprintf("remove this entry, and apply the manifest again: kubectl patch configmap -n %s %s --type merge -p '{\"data\":{%q:null}}'", metav1.NamespaceSystem, InventoryName, name))
		}
		inventory[name] = e
	}
	return inventory, nil
}

// ApplyRecorded applies manifests and records them in the inventory and the history. The objects are recorded before they
// are applied, so that the inventory never lists less than what is in the cluster. After an error, it
// returns what was applied, and no entries.
func (s *Applier) ApplyRecorded(ctx context.Context, manifests []*Manifest, now time.Time) ([]Applied, []Entry, error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, nil, err
	}
	run := continued(manifests, inventory)
	if run == "" {
		run = runAfter(now, inventory)
	}
	before := make([]Entry, len(manifests))
	for i, m := range manifests {
		before[i] = inventory[m.Name]
		if m.is(before[i]) && before[i].Revision > 0 {
			continue
		}
		begun, err := s.begin(ctx, m, before[i], run)
		if err != nil {
			return nil, nil, err
		}
		if err := s.record(ctx, m.Name, begun); err != nil {
			return nil, nil, err
		}
		before[i] = begun
	}
	applied, err := s.apply(ctx, manifests, func(i int, done *Applied) (later string, err error) {
		for _, event := range slices.Clone(before[i].Pending) {
			if !strings.HasPrefix(event, beforeObjects) {
				continue
			}
			if later, err := s.runHooks(ctx, manifests[i], event, before[i].hookRun(), done); later != "" || err != nil {
				return later, err
			}
			before[i].Pending = without(before[i].Pending, []string{event})
			if err := s.record(ctx, manifests[i].Name, before[i]); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	if err != nil {
		return applied, nil, err
	}
	entries := make([]Entry, len(manifests))
	for i, m := range manifests {
		next := before[i]
		next.Objects, next.Hooks, next.Later = applied[i].Objects, s.hookNames(m), nil
		for _, l := range applied[i].Later {
			next.Later = append(next.Later, l.Object)
		}
		next.Former = without(before[i].Former, slices.Concat(next.Objects, next.Hooks))
		next.Undone = without(next.Undone, slices.Concat(next.Objects, next.Hooks))
		same := before[i].Applied != "" && len(applied[i].Changed) == 0 && slices.Equal(before[i].Objects, next.Objects) && slices.Equal(before[i].Later, next.Later) &&
			slices.Equal(before[i].Former, next.Former) && slices.Equal(before[i].Hooks, next.Hooks)
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

// runAfter returns a name for a run that is greater than the names of all earlier runs, also if the clock was set back.
func runAfter(now time.Time, inventory map[string]Entry) string {
	const format = "2006-01-02T15:04:05.000000000Z" // sorted as text, too
	for _, e := range inventory {
		for _, run := range []string{e.Run, e.Undoes} {
			if last, err := time.Parse(format, run); err == nil && !now.After(last) {
				now = last.Add(time.Nanosecond)
			}
		}
	}
	return now.UTC().Format(format)
}

// is reports whether an entry of the inventory is of this version of the manifest.
func (m *Manifest) is(e Entry) bool {
	return e.SHA256 == m.SHA256 && e.Chart == m.Chart && e.Namespace == m.Namespace && !e.Removing
}

// continued returns the run that an interrupted command began with the same files; "" if there is none.
func continued(manifests []*Manifest, inventory map[string]Entry) string {
	for _, m := range manifests {
		if e := inventory[m.Name]; m.is(e) && e.Bundle == m.Bundle && e.Applied == "" {
			return e.Run
		}
	}
	return ""
}

// changeOf returns what applying another version of a manifest is, for its hooks: an installation until all hooks of one have run.
func changeOf(before Entry) string {
	if before.SHA256 == "" || before.Removing || slices.Contains(before.Pending, beforeObjects+install) || slices.Contains(before.Pending, afterObjects+install) {
		return install
	}
	return upgrade
}

// begin keeps a version of a manifest in the history, and returns its entry before anything is applied.
func (s *Applier) begin(ctx context.Context, m *Manifest, before Entry, run string) (Entry, error) {
	begun := before
	begun.SHA256, begun.Chart, begun.Namespace, begun.Bundle, begun.Removing = m.SHA256, m.Chart, m.Namespace, m.Bundle, false
	known := m.is(before) // an older Airlift applied it, and kept no history
	begun.Hooks, begun.Objects = s.hookNames(m), nil
	for _, o := range m.objects {
		begun.Objects = append(begun.Objects, inventoryName(o, s.placeOf(m, o)))
	}
	begun.Former = without(before.all(), slices.Concat(begun.Objects, begun.Hooks))
	if !known || before.Revision > 0 {
		change := changeOf(before)
		if m.undoes != "" {
			change = rollback
		}
		begun.Applied, begun.Later, begun.Pending, begun.Run = "", nil, m.eventsOf(change), run
		begun.Undoes, begun.Undone = m.undoes, nil
		if m.undoes != "" {
			begun.Undone = without(slices.Concat(before.Objects, before.Later, before.Hooks), slices.Concat(begun.Objects, begun.Hooks))
		}
	}
	var err error
	begun.Revision, err = s.keep(ctx, m, before)
	return begun, err
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
