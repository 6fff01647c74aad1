package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/fault"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
)

// managedAnnotation has the keys of the labels and taints of a node that SetMeta set.
const managedAnnotation = "airlift.dev/managed"

// A NodeMeta is which labels and taints a node is to have. Others stay, unless an earlier NodeMeta of the node had them.
type NodeMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	// Taints in the form of kubectl: key=value:Effect or key:Effect. nil: kubeadm's default of the role.
	Taints []string `json:"taints"`
}

// Managed are the keys that SetMeta set.
type Managed struct {
	Labels []string `json:"labels,omitempty"`
	// Taints as key:Effect. One that begins with - is the taint of control planes, which was removed.
	Taints []string `json:"taints,omitempty"`
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
	var failed error
	edit := func(n *corev1.Node) {
		before := n.DeepCopy()
		if failed = m.edit(n); failed == nil {
			changes = metaChanges(before, n)
		}
	}
	if dryRun {
		var n *corev1.Node
		err = wait.Retry(ctx, func() (err error) {
			n, err = c.client.API.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
			return err
		})
		if err == nil {
			edit(n)
		}
	} else {
		_, err = c.PatchNode(ctx, m.Name, edit)
	}
	if err = cmp.Or(failed, err); apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Failure, "the cluster has no node %q", m.Name).Hint("list the nodes: ./install status, or kubectl get nodes")
	}
	if err != nil {
		return nil, fmt.Errorf("setting the labels and taints of node %q: %w", m.Name, err)
	}
	return changes, nil
}

// Marks are the labels and taints of a node, and which of them SetMeta set.
type Marks struct {
	Labels  map[string]string `json:"labels"`
	Taints  []corev1.Taint    `json:"taints"`
	Managed string            `json:"managed,omitempty"` // the annotation
}

// Marks returns the labels and taints of a node.
func (c NodeObjects) Marks(ctx context.Context, name string) (*Marks, error) {
	var n *corev1.Node
	err := wait.Retry(ctx, func() (err error) {
		n, err = c.client.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", name, err)
	}
	return &Marks{Labels: n.Labels, Taints: n.Spec.Taints, Managed: n.Annotations[managedAnnotation]}, nil
}

// RestoreMarks gives a node what Marks returned, of the labels and taints that a SetMeta since then may have changed.
func (c NodeObjects) RestoreMarks(ctx context.Context, name string, m *Marks) (changed bool, err error) {
	var failed error
	changed, err = c.PatchNode(ctx, name, func(n *corev1.Node) { failed = m.restore(n) })
	if err = cmp.Or(failed, err); err != nil {
		return changed, fmt.Errorf("restoring the labels and taints of node %q: %w", name, err)
	}
	return changed, nil
}

func (m *Marks) restore(n *corev1.Node) error {
	since, err := managedOf(n)
	if err != nil {
		return err
	}
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Annotations: map[string]string{managedAnnotation: m.Managed}}}
	if m.Managed == "" {
		was.Annotations = nil
	}
	before, err := managedOf(was)
	if err != nil {
		return err
	}
	// SetMeta changes kubeadm's label and taint without recording it.
	for _, key := range slices.Concat(since.Labels, before.Labels, []string{noExternalLBLabel}) {
		delete(n.Labels, key)
		if value, ok := m.Labels[key]; ok {
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[key] = value
		}
	}
	ids := slices.Concat(since.Taints, before.Taints, []string{identity(config.ControlPlaneTaint)})
	may := func(t corev1.Taint) bool {
		return slices.Contains(ids, identity(t)) || slices.Contains(ids, "-"+identity(t))
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, may)
	for _, t := range m.Taints {
		if may(t) {
			n.Spec.Taints = append(n.Spec.Taints, t)
		}
	}
	delete(n.Annotations, managedAnnotation)
	if m.Managed != "" {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[managedAnnotation] = m.Managed
	}
	return nil
}

// Meta returns the labels and taints that an earlier SetMeta gave to the node.
func (m *Marks) Meta(name string) (NodeMeta, error) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{managedAnnotation: m.Managed}}}
	if m.Managed == "" {
		n.Annotations = nil
	}
	managed, err := managedOf(n)
	if err != nil {
		return NodeMeta{}, err
	}
	meta := NodeMeta{Name: name, Labels: map[string]string{}}
	for _, key := range managed.Labels {
		if value, ok := m.Labels[key]; ok {
			meta.Labels[key] = value
		}
	}
	for _, id := range managed.Taints {
		if meta.Taints == nil {
			meta.Taints = []string{}
		}
		for _, t := range m.Taints {
			if identity(t) == id {
				meta.Taints = append(meta.Taints, t.ToString())
			}
		}
	}
	return meta, nil
}

// edit changes the labels, the taints and the annotation of a node, or nothing if it returns an error.
func (m NodeMeta) edit(n *corev1.Node) error {
	old, err := managedOf(n)
	if err != nil {
		return err
	}
	wanted, err := m.taints()
	if err != nil {
		return err
	}
	_, controlPlane := n.Labels[ControlPlaneLabel]
	now := Managed{Labels: m.editLabels(n, old), Taints: editTaints(n, old, wanted)}
	removed := "-" + identity(config.ControlPlaneTaint)
	switch isTheirs := matching(config.ControlPlaneTaint); {
	case !controlPlane:
	case m.Taints == nil && (slices.Contains(old.Taints, removed) || slices.Contains(old.Taints, identity(config.ControlPlaneTaint))):
		n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, isTheirs), config.ControlPlaneTaint)
	case m.Taints != nil && !slices.ContainsFunc(wanted, isTheirs):
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isTheirs)
		now.Taints = append(now.Taints, removed)
	}
	slices.Sort(now.Taints)
	if len(now.Labels)+len(now.Taints) == 0 {
		delete(n.Annotations, managedAnnotation)
		return nil
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[managedAnnotation] = string(data)
	return nil
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

// managedOf returns what SetMeta set on a node. A kubelet may write annotations of its Node, but not remove its taints: what
// SetMeta never sets is damage.
func managedOf(n *corev1.Node) (m Managed, err error) {
	text, ok := n.Annotations[managedAnnotation]
	if !ok {
		return m, nil
	}
	err = json.Unmarshal([]byte(text), &m)
	set := NodeMeta{Name: n.Name, Labels: map[string]string{}}
	for _, key := range m.Labels {
		set.Labels[key] = ""
	}
	set.Taints = slices.DeleteFunc(slices.Clone(m.Taints), func(t string) bool { return t == "-"+identity(config.ControlPlaneTaint) })
	if err = cmp.Or(err, set.Check()); err != nil {
		return Managed{}, fault.New(fault.Failure, "its annotation %s is damaged: %w", managedAnnotation, err).
			Hint("remove it; what the node has now then stays: kubectl annotate node " + n.Name + " " + managedAnnotation + "-")
	}
	return m, nil
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
