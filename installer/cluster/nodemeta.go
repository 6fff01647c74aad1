package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// A NodeMeta is which labels and taints a node is to have. Others stay, unless an earlier NodeMeta of the node had them.
type NodeMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	// Taints in the form of kubectl: key=value:Effect or key:Effect. nil: kubeadm's default of the role.
	Taints []string `json:"taints"`
}

// kubeletLabels are labels that the kubelet sets again.
var kubeletLabels = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch"}

// lifecycleTaints are the prefixes of taints that the controllers of nodes set and remove.
var lifecycleTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// Check returns what is wrong with the labels and taints.
func (m NodeMeta) Check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Usage, "node %q: "+format, append([]any{m.Name}, args...)...)
	}
	if msgs := validation.IsDNS1123Subdomain(m.Name); len(msgs) > 0 {
		return bad("the name is not valid: %s", msgs[0])
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		msgs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(m.Labels[key])...)
		switch {
		case len(msgs) > 0:
			return bad("label %s=%s: %s", key, m.Labels[key], msgs[0])
		case slices.Contains(kubeletLabels, key):
			return bad("label %s: the kubelet sets it", key)
		case key == ControlPlaneLabel:
			return bad("label %s: init and join set it on control planes", key)
		}
	}
	_, err := m.taints()
	if err != nil {
		return bad("%w", err)
	}
	return nil
}

// taints parses the taints.
func (m NodeMeta) taints() (list []corev1.Taint, err error) {
	for _, text := range m.Taints {
		before, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(before, "=")
		t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		msgs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			msgs = append(msgs, "the effect after the colon must be NoSchedule, PreferNoSchedule or NoExecute")
		}
		switch {
		case len(msgs) > 0:
			return nil, fmt.Errorf("taint %q: %s", text, msgs[0])
		case slices.ContainsFunc(lifecycleTaints, func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
			return nil, fmt.Errorf("taint %q: the controllers of Kubernetes set and remove it", text)
		case slices.ContainsFunc(list, matching(t)):
			return nil, fmt.Errorf("taint %q: another taint has this key and effect", text)
		}
		list = append(list, t)
	}
	return list, nil
}

func matching(t corev1.Taint) func(corev1.Taint) bool {
	return func(o corev1.Taint) bool { return o.MatchTaint(&t) }
}

// identity is what SetMeta records of a taint.
func identity(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// SetMeta gives a node these labels and taints, and removes what an earlier SetMeta set. It returns what it changed, or with
// dryRun would change: "+zone=a", "-rack", "+taint key=value:Effect", "-taint key:Effect".
func (c NodeObjects) SetMeta(ctx context.Context, m NodeMeta, dryRun bool) (changes []string, err error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	changes, err = c.setMeta(ctx, m, dryRun)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Failure, "the cluster has no node %q", m.Name).Hint("list the nodes: ./install status, or kubectl get nodes")
	}
	if err != nil {
		return nil, fmt.Errorf("setting the labels and taints of node %q: %w", m.Name, err)
	}
	return changes, nil
}

func (c NodeObjects) setMeta(ctx context.Context, m NodeMeta, dryRun bool) (changes []string, err error) {
	n, old, err := c.recorded(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	edited := n.DeepCopy()
	now, err := m.edit(edited, old)
	if err != nil || dryRun {
		return metaChanges(n, edited), err
	}
	// What a run that was killed has set must not look like set by others.
	if _, err := c.record(ctx, n, old.and(now)); err != nil {
		return nil, err
	}
	var failed error
	_, err = c.PatchNode(ctx, m.Name, func(now *corev1.Node) {
		before := now.DeepCopy()
		if failed = sameNode(n, now); failed == nil {
			_, failed = m.edit(now, old)
		}
		changes = metaChanges(before, now)
	})
	if err = cmp.Or(failed, err); err != nil {
		return nil, err
	}
	_, err = c.record(ctx, n, now)
	return changes, err
}

// sameNode returns an error if a host has registered again under the name of a node: the record is not about it.
func sameNode(n, now *corev1.Node) error {
	if n.UID != now.UID {
		return fault.New(fault.Failure, "a host has registered again under this name").Hint("run the same command again")
	}
	return nil
}

// Marks are the labels and taints of a node, and which of them SetMeta set.
type Marks struct {
	Labels   map[string]string `json:"labels"`
	Taints   []corev1.Taint    `json:"taints"`
	Recorded Managed           `json:"recorded"`
}

// Marks returns the labels and taints of a node.
func (c NodeObjects) Marks(ctx context.Context, name string) (*Marks, error) {
	n, recorded, err := c.recorded(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", name, err)
	}
	return &Marks{Labels: n.Labels, Taints: n.Spec.Taints, Recorded: recorded}, nil
}

// RestoreMarks gives a node what Marks returned, of the labels and taints that a SetMeta since then may have changed.
func (c NodeObjects) RestoreMarks(ctx context.Context, name string, m *Marks) (changed bool, err error) {
	var failed error
	n, since, err := c.recorded(ctx, name)
	if err == nil {
		changed, err = c.PatchNode(ctx, name, func(now *corev1.Node) {
			if failed = sameNode(n, now); failed == nil {
				m.restore(now, since)
			}
		})
		err = cmp.Or(failed, err)
	}
	if err == nil {
		var did bool
		did, err = c.record(ctx, n, m.Recorded)
		changed = changed || did
	}
	if err != nil {
		return changed, fmt.Errorf("restoring the labels and taints of node %q: %w", name, err)
	}
	return changed, nil
}

// restore restores what SetMeta had set before, or has set since.
func (m *Marks) restore(n *corev1.Node, since Managed) {
	both := since.and(m.Recorded)
	// SetMeta changes kubeadm's label and taint without recording it.
	for _, key := range append(both.Labels, noExternalLBLabel) {
		delete(n.Labels, key)
		if value, ok := m.Labels[key]; ok {
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[key] = value
		}
	}
	ids := append(both.Taints, identity(config.ControlPlaneTaint))
	may := func(t corev1.Taint) bool {
		return slices.Contains(ids, identity(t)) || slices.Contains(ids, "-"+identity(t))
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, may)
	for _, t := range m.Taints {
		if may(t) {
			n.Spec.Taints = append(n.Spec.Taints, t)
		}
	}
}

// Meta returns the labels and taints that an earlier SetMeta gave to the node.
func (m *Marks) Meta(name string) NodeMeta {
	meta := NodeMeta{Name: name, Labels: map[string]string{}}
	for _, key := range m.Recorded.Labels {
		if value, ok := m.Labels[key]; ok {
			meta.Labels[key] = value
		}
	}
	for _, id := range m.Recorded.Taints {
		if meta.Taints == nil {
			meta.Taints = []string{}
		}
		for _, t := range m.Taints {
			if identity(t) == id {
				meta.Taints = append(meta.Taints, t.ToString())
			}
		}
	}
	return meta
}

// edit changes the labels and taints of a node, or nothing if it returns an error. It returns what to record.
func (m NodeMeta) edit(n *corev1.Node, old Managed) (now Managed, err error) {
	wanted, err := m.taints()
	if err != nil {
		return Managed{}, err
	}
	_, controlPlane := n.Labels[ControlPlaneLabel]
	now = Managed{Labels: m.editLabels(n, old), Taints: editTaints(n, old, wanted)}
	switch isTheirs := matching(config.ControlPlaneTaint); {
	case !controlPlane:
	case m.Taints == nil && (slices.Contains(old.Taints, removedTaint) || slices.Contains(old.Taints, identity(config.ControlPlaneTaint))):
		n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, isTheirs), config.ControlPlaneTaint)
	case m.Taints != nil && !slices.ContainsFunc(wanted, isTheirs):
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isTheirs)
		now.Taints = append(now.Taints, removedTaint)
	}
	slices.Sort(now.Taints)
	return now, nil
}

// editLabels changes the labels of a node, and returns the keys to record.
func (m NodeMeta) editLabels(n *corev1.Node, old Managed) (managed []string) {
	for _, key := range old.Labels {
		delete(n.Labels, key)
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	_, controlPlane := n.Labels[ControlPlaneLabel]
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		n.Labels[key] = m.Labels[key]
		if key != noExternalLBLabel || !controlPlane { // kubeadm gives it to control planes
			managed = append(managed, key)
		}
	}
	return managed
}

// editTaints changes the taints of a node, and returns what to record.
func editTaints(n *corev1.Node, old Managed, wanted []corev1.Taint) (managed []string) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(old.Taints, identity(t)) && !slices.ContainsFunc(wanted, matching(t))
	})
	for _, t := range wanted {
		managed = append(managed, identity(t))
		switch i := slices.IndexFunc(n.Spec.Taints, matching(t)); {
		case i < 0:
			n.Spec.Taints = append(n.Spec.Taints, t)
		case n.Spec.Taints[i].Value != t.Value:
			n.Spec.Taints[i] = t
		}
	}
	return managed
}

// metaChanges returns the differences of labels and taints, sorted.
func metaChanges(before, after *corev1.Node) []string {
	was, is := metaOf(before), metaOf(after)
	changes := []string{}
	for key, value := range is {
		if old, ok := was[key]; !ok || old != value {
			changes = append(changes, "+"+value)
		}
	}
	for key := range was {
		if _, ok := is[key]; !ok {
			changes = append(changes, "-"+key)
		}
	}
	slices.Sort(changes)
	return changes
}

// metaOf returns the labels and taints of a node as people write them, by what identifies them.
func metaOf(n *corev1.Node) map[string]string {
	texts := map[string]string{}
	for key, value := range n.Labels {
		texts[key] = key + "=" + value
	}
	for _, t := range n.Spec.Taints {
		texts["taint "+identity(t)] = "taint " + t.ToString()
	}
	return texts
}
