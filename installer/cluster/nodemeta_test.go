package cluster

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"airlift/fault"
	"airlift/installer/config"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster"
)

// A node may have labels and taints of others, and of kubeadm.
func drawNode(t *rapid.T) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}}}
	if rapid.Bool().Draw(t, "control plane") {
		n.Labels[ControlPlaneLabel], n.Labels[noExternalLBLabel] = "", ""
		if rapid.Bool().Draw(t, "default taint") {
			n.Spec.Taints = append(n.Spec.Taints, config.ControlPlaneTaint)
		}
	}
	for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"theirs", "rack", "zone"}), rapid.ID).Draw(t, "labels of others") {
		n.Labels[key] = "others"
	}
	for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"theirs", "dedicated"}), rapid.ID).Draw(t, "taints of others") {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "others", Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func drawMeta(t *rapid.T) NodeMeta {
	m := NodeMeta{Name: "n1", Labels: rapid.MapOf(rapid.SampledFrom([]string{"rack", "zone", "disk", noExternalLBLabel}), rapid.SampledFrom([]string{"", "a", "b"})).Draw(t, "labels")}
	if rapid.Bool().Draw(t, "taints are given") {
		keys := []string{"dedicated:NoExecute", "dedicated=a:NoSchedule", "gpu=b:PreferNoSchedule", config.ControlPlaneTaint.ToString()}
		m.Taints = append([]string{}, rapid.SliceOfDistinct(rapid.SampledFrom(keys), rapid.ID).Draw(t, "taints")...)
	}
	return m
}

// TestManagedKeys applies lists one after the other. A node has what the last one wants, what others gave it and no list
// ever named, and nothing of an earlier list.
func TestManagedKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		before := n.DeepCopy()
		named := map[string]bool{} // by a list
		var m NodeMeta
		for range rapid.IntRange(1, 4).Draw(t, "lists") {
			m = drawMeta(t)
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			if err := m.edit(n); err != nil {
				t.Fatal(err)
			}
			for key := range m.Labels {
				named[key] = true
			}
			for _, taint := range must(m.taints())(t) {
				named["taint "+identity(taint)] = true
			}
			again := n.DeepCopy()
			if err := m.edit(again); err != nil {
				t.Fatal(err)
			}
			if patch := must(nodePatch(n, again))(t); patch != nil {
				t.Fatalf("a second run writes %s", patch)
			}
		}
		want := metaOf(before)
		_, controlPlane := before.Labels[ControlPlaneLabel]
		defaults := "taint " + identity(config.ControlPlaneTaint)
		maps.DeleteFunc(want, func(key, _ string) bool {
			return named[key] && (key != noExternalLBLabel || !controlPlane) && (key != defaults || !controlPlane)
		})
		for key, value := range m.Labels {
			want[key] = key + "=" + value
		}
		for _, taint := range must(m.taints())(t) {
			want["taint "+identity(taint)] = "taint " + taint.ToString()
		}
		has := metaOf(n)
		if controlPlane {
			checkDefaults(t, m, has)
			for _, texts := range []map[string]string{want, has} {
				delete(texts, defaults)
				delete(texts, noExternalLBLabel) // kubeadm's value does not come back
			}
		}
		if !maps.Equal(has, want) {
			t.Fatalf("the node has %v, want %v", has, want)
		}
	})
}

// checkDefaults checks the taint of control planes, which only a list of taints takes away.
func checkDefaults(t *rapid.T, m NodeMeta, has map[string]string) {
	_, is := has["taint "+identity(config.ControlPlaneTaint)]
	if m.Taints != nil && is != slices.Contains(m.Taints, config.ControlPlaneTaint.ToString()) {
		t.Fatalf("with the taints %q, the default taint is there: %v", m.Taints, is)
	}
	if _, ok := has[noExternalLBLabel]; !ok {
		t.Fatal("kubeadm's label is gone")
	}
}

func must[T any](value T, err error) func(*rapid.T) T {
	return func(t *rapid.T) T {
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// A control plane that lost the default taint to an empty list gets it back with none.
func TestTaintsOfControlPlanesComeBack(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{ControlPlaneLabel: ""}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{config.ControlPlaneTaint}}}
	for _, c := range []struct {
		taints []string
		want   int
	}{{nil, 1}, {[]string{}, 0}, {[]string{}, 0}, {nil, 1}, {[]string{config.ControlPlaneTaint.ToString()}, 1}, {nil, 1}} {
		if err := (NodeMeta{Taints: c.taints}).edit(n); err != nil {
			t.Fatal(err)
		}
		if len(n.Spec.Taints) != c.want {
			t.Errorf("after %q: %v", c.taints, n.Spec.Taints)
		}
	}
	if len(n.Annotations) > 0 {
		t.Errorf("left: %v", n.Annotations)
	}
}

func TestNodeMetaRefuses(t *testing.T) {
	for text, m := range map[string]NodeMeta{
		"the name is not valid":     {Name: "N1"},
		"the kubelet sets it":       {Name: "n1", Labels: map[string]string{corev1.LabelHostname: "x"}},
		"init and join set it":      {Name: "n1", Labels: map[string]string{ControlPlaneLabel: ""}},
		"label a b=":                {Name: "n1", Labels: map[string]string{"a b": ""}},
		"label a=x y":               {Name: "n1", Labels: map[string]string{"a": "x y"}},
		"the effect after":          {Name: "n1", Taints: []string{"a=b"}},
		"the controllers of":        {Name: "n1", Taints: []string{"node.kubernetes.io/unschedulable:NoSchedule"}},
		"has this key and effect":   {Name: "n1", Taints: []string{"a=b:NoSchedule", "a:NoSchedule"}},
		`taint "=b:NoSchedule": na`: {Name: "n1", Taints: []string{"=b:NoSchedule"}},
	} {
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

// TestRealNodesKeepWhatOthersSet runs against a real API server, and counts its writes.
func TestRealNodesKeepWhatOthersSet(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	p.AddNode(t, "meta1", true)
	nodes := superAdmin(t, p).NodeObjects()
	first := NodeMeta{Name: "meta1", Labels: map[string]string{"zone": "a", "node-role.kubernetes.io/storage": ""}, Taints: []string{"dedicated=gpu:NoSchedule"}}
	set := func(m NodeMeta, dryRun bool) []string { return testcluster.Must(nodes.SetMeta(ctx, m, dryRun))(t) }
	want := []string{"+node-role.kubernetes.io/storage=", "+taint dedicated=gpu:NoSchedule", "+zone=a"}
	if seen := p.Writes(t, func() {
		if got := set(first, true); !slices.Equal(got, want) {
			t.Errorf("a dry run prints %q", got)
		}
	}); len(seen) > 0 {
		t.Errorf("a dry run wrote %q", seen)
	}
	p.Twice(t, func() bool { return len(set(first, false)) > 0 })
	if _, err := nodes.PatchNode(ctx, "meta1", func(n *corev1.Node) { n.Labels["theirs"] = "1" }); err != nil {
		t.Fatal(err)
	}
	if got := set(NodeMeta{Name: "meta1"}, false); !slices.Equal(got, []string{"-node-role.kubernetes.io/storage", "-taint dedicated:NoSchedule", "-zone"}) {
		t.Errorf("an empty list changed %q", got)
	}
	state := slices.DeleteFunc(testcluster.Must(superAdmin(t, p).Nodes(ctx))(t), func(n NodeState) bool { return n.Name != "meta1" })[0]
	if state.Labels["theirs"] != "1" || state.Labels["zone"] != "" || len(state.Managed.Labels)+len(state.Managed.Taints) > 0 {
		t.Errorf("the node has %+v", state)
	}
	if err := testcluster.Error(nodes.SetMeta(ctx, NodeMeta{Name: "nobody"}, false)); err == nil || !strings.Contains(err.Error(), `no node "nobody"`) {
		t.Error(err)
	}
}

// A node that writes the annotation itself must not make an administrator remove what its controllers or kubeadm set.
func TestManagedKeysThatNoListSet(t *testing.T) {
	for _, text := range []string{`{"labels":["kubernetes.io/hostname"]}`, `{"labels":["node-role.kubernetes.io/control-plane"]}`,
		`{"taints":["node.kubernetes.io/not-ready:NoExecute"]}`, `{"taints":["node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"]}`,
		`{"taints":["-dedicated:NoSchedule"]}`, `{"labels":[""]}`, `{"labels":"zone"}`, `{"labels":["zone"]`} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1", ControlPlaneLabel: ""},
			Annotations: map[string]string{managedAnnotation: text}}}
		n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}}
		before := n.DeepCopy()
		err := NodeMeta{Name: "n1"}.edit(n)
		if err == nil || !strings.Contains(err.Error(), managedAnnotation+" is damaged") || !strings.Contains(fault.Hint(err), "kubectl annotate node n1") {
			t.Errorf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(before, n) {
			t.Errorf("%s: changed %v", text, metaChanges(before, n))
		}
	}
}

// TestMarksComeBack: after a change of the managed labels and taints, a node gets back what it had, and keeps what others
// gave it since.
func TestMarksComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		for range rapid.IntRange(0, 2).Draw(t, "lists before") {
			m := drawMeta(t)
			if err := m.edit(n); err != nil {
				t.Fatal(err)
			}
		}
		before := n.DeepCopy()
		marks := &Marks{Labels: before.Labels, Taints: before.Spec.Taints, Managed: before.Annotations[managedAnnotation]}
		m := drawMeta(t)
		if err := m.edit(n); err != nil {
			t.Fatal(err)
		}
		n.Labels["later"] = "others"
		if err := marks.restore(n); err != nil {
			t.Fatal(err)
		}
		if n.Labels["later"] != "others" {
			t.Error("the label of another is gone")
		}
		delete(n.Labels, "later")
		ids := func(list []corev1.Taint) (ids []string) {
			for _, taint := range list {
				ids = append(ids, taint.ToString())
			}
			slices.Sort(ids)
			return ids
		}
		if !maps.Equal(n.Labels, before.Labels) || !slices.Equal(ids(n.Spec.Taints), ids(before.Spec.Taints)) || n.Annotations[managedAnnotation] != before.Annotations[managedAnnotation] {
			t.Errorf("%v %v %v\nbefore: %v %v %v", n.Labels, ids(n.Spec.Taints), n.Annotations, before.Labels, ids(before.Spec.Taints), before.Annotations)
		}
	})
}
