package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/internal/fault"
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
		var managed Managed
		for range rapid.IntRange(1, 4).Draw(t, "lists") {
			m = drawMeta(t)
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			managed = must(m.edit(n, managed))(t)
			for key := range m.Labels {
				named[key] = true
			}
			for _, taint := range must(m.taints())(t) {
				named["taint "+identity(taint)] = true
			}
			again := n.DeepCopy()
			if now := must(m.edit(again, managed))(t); !reflect.DeepEqual(now, managed) {
				t.Fatalf("a second run records %v instead of %v", now, managed)
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
	var managed Managed
	for _, c := range []struct {
		taints []string
		want   int
	}{{nil, 1}, {[]string{}, 0}, {[]string{}, 0}, {nil, 1}, {[]string{config.ControlPlaneTaint.ToString()}, 1}, {nil, 1}} {
		managed = testcluster.Must((NodeMeta{Taints: c.taints}).edit(n, managed))(t)
		if len(n.Spec.Taints) != c.want {
			t.Errorf("after %q: %v", c.taints, n.Spec.Taints)
		}
	}
	if len(managed.Labels)+len(managed.Taints) > 0 {
		t.Errorf("left: %v", managed)
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
	if state.Labels["theirs"] != "1" || state.Labels["zone"] != "" {
		t.Errorf("the node has %+v", state)
	}
	if data := testcluster.Must(nodes.records(ctx))(t); data["meta1"] != "" {
		t.Errorf("it is recorded that %q are set", data)
	}
	if err := testcluster.Error(nodes.SetMeta(ctx, NodeMeta{Name: "nobody"}, false)); err == nil || !strings.Contains(err.Error(), `no node "nobody"`) {
		t.Error(err)
	}
}

// What a kubelet writes to its Node permits nobody to remove anything, and what other nodes have is not the node's.
func TestKubeletsDoNotRemoveByAdministrators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		n.UID = "1"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "quarantine", Effect: corev1.TaintEffectNoExecute})
		n.Labels["node-restriction.kubernetes.io/trusted"] = "no"
		claimed := Managed{Labels: slices.Collect(maps.Keys(n.Labels))}
		for _, taint := range n.Spec.Taints {
			claimed.Taints = append(claimed.Taints, identity(taint))
		}
		text := string(must(json.Marshal(claimed))(t))
		n.Annotations = map[string]string{}
		for _, key := range []string{"airlift.dev/managed", "airlift.dev/nodes", managedConfigMap, rapid.StringMatching(`airlift\.dev/[a-z-]{1,9}`).Draw(t, "annotation")} {
			n.Annotations[key] = text
		}
		other := string(must(json.Marshal(nodeRecord{"2", claimed}))(t)) // of an earlier Node with the name, and of another one
		api, dyn, _ := testcluster.Fake(n, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: managedConfigMap}, Data: map[string]string{n.Name: other, "n2": other},
		})
		nodes := (&Client{API: api, Dynamic: dyn}).NodeObjects()
		ctx := context.Background()
		_, controlPlane := n.Labels[ControlPlaneLabel]
		for range 2 {
			m := drawMeta(t)
			if controlPlane {
				m.Taints = nil // a list takes away the default taint
			}
			predicted := must(nodes.SetMeta(ctx, m, true))(t)
			if changes := must(nodes.SetMeta(ctx, m, false))(t); !slices.Equal(changes, predicted) {
				t.Fatalf("changed %q, and a dry run printed %q", changes, predicted)
			}
		}
		if changes := must(nodes.SetMeta(ctx, NodeMeta{Name: n.Name}, false))(t); slices.ContainsFunc(changes, func(c string) bool {
			return strings.HasSuffix(c, "theirs") || strings.Contains(c, "quarantine") || strings.Contains(c, "trusted")
		}) {
			t.Fatalf("removed %q", changes)
		}
		now := must(api.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{}))(t)
		if _, has := now.Labels["node-restriction.kubernetes.io/trusted"]; !has || !slices.ContainsFunc(now.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "quarantine" }) {
			t.Fatalf("the node has %v, %v", now.Labels, now.Spec.Taints)
		}
		if records := must(nodes.records(ctx))(t); records["n2"] != other || records[n.Name] != "" {
			t.Fatalf("recorded: %v", records)
		}
	})
}

// A run that is killed before any of its requests leaves nothing that the next one does not remove.
func TestKilledBetweenRecordAndNode(t *testing.T) {
	for at := range 5 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", Labels: map[string]string{"theirs": "1"}}}
		api, dyn, _ := testcluster.Fake(n)
		nodes := (&Client{API: api, Dynamic: dyn}).NodeObjects()
		first := NodeMeta{Name: "n1", Labels: map[string]string{"zone": "a"}, Taints: []string{"gpu:NoSchedule"}}
		testcluster.Must(nodes.SetMeta(t.Context(), first, false))(t)
		left := at
		api.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if slices.Contains([]string{"patch", "create"}, a.GetVerb()) {
				left--
			}
			return left < 0, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("killed"))
		})
		_, err := nodes.SetMeta(t.Context(), NodeMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}}, false)
		if killed := err != nil; killed != (at < 3) {
			t.Errorf("before request %d: %v", at, err)
		}
		left = 1 << 20
		testcluster.Must(nodes.SetMeta(t.Context(), NodeMeta{Name: "n1"}, false))(t)
		now := testcluster.Must(api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}))(t)
		if !maps.Equal(now.Labels, n.Labels) || len(now.Spec.Taints) > 0 {
			t.Errorf("before request %d: %v, %v", at, now.Labels, now.Spec.Taints)
		}
		if records := testcluster.Must(nodes.records(t.Context()))(t); len(records) > 0 {
			t.Errorf("before request %d: %v", at, records)
		}
	}
}

func TestDamagedRecords(t *testing.T) {
	for _, text := range []string{`{"labels":["kubernetes.io/hostname"]}`, `{"labels":["node-role.kubernetes.io/control-plane"]}`,
		`{"taints":["node.kubernetes.io/not-ready:NoExecute"]}`, `{"taints":["node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"]}`,
		`{"taints":["-dedicated:NoSchedule"]}`, `{"labels":[""]}`, `{"labels":"zone"}`, `{"labels":["zone"]`} {
		for uid, want := range map[types.UID][2]string{"": {"annotation airlift.dev/managed is damaged", "kubectl annotate node n1"}, "1": {"airlift-nodes is damaged", "edit configmap airlift-nodes"}} {
			text := strings.Replace(text, "{", `{"uid":"`+string(uid)+`",`, 1)
			m, err := parseRecord(text, "n1", uid)
			if err == nil || !strings.Contains(err.Error(), want[0]) || !strings.Contains(fault.Hint(err), want[1]) || !reflect.DeepEqual(m, Managed{}) {
				t.Errorf("%s: %v, %v", text, m, err)
			}
		}
	}
}

// TestMarksComeBack: after a change of the managed labels and taints, a node gets back what it had, and keeps what others
// gave it since.
func TestMarksComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		var managed Managed
		for range rapid.IntRange(0, 2).Draw(t, "lists before") {
			managed = must(drawMeta(t).edit(n, managed))(t)
		}
		before := n.DeepCopy()
		marks := &Marks{Labels: before.Labels, Taints: before.Spec.Taints, Recorded: managed}
		managed = must(drawMeta(t).edit(n, managed))(t)
		n.Labels["later"] = "others"
		marks.restore(n, managed)
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
		if !maps.Equal(n.Labels, before.Labels) || !slices.Equal(ids(n.Spec.Taints), ids(before.Spec.Taints)) {
			t.Errorf("%v %v\nbefore: %v %v", n.Labels, ids(n.Spec.Taints), before.Labels, ids(before.Spec.Taints))
		}
	})
}
