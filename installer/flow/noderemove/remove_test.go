package noderemove

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

func state(name, role, address string) cluster.NodeState {
	return cluster.NodeState{Name: name, Role: role, Version: "v1.37.1", Ready: true, Addresses: []string{address}, UID: "uid-1"}
}

func member(id uint64, name, host string) etcd.Member {
	return etcd.Member{ID: id, Name: name, PeerURL: "https://" + host + ":2380"}
}

func threePlanes() ([]cluster.NodeState, []etcd.Member) {
	return []cluster.NodeState{
			state("host1", cluster.ControlPlaneRole, "10.0.0.1"), state("host2", cluster.ControlPlaneRole, "10.0.0.2"),
			state("host3", cluster.ControlPlaneRole, "fd00::3"), state("host4", cluster.WorkerRole, "10.0.0.4"),
		}, []etcd.Member{
			member(1, "host1", "10.0.0.1"), member(2, "host2", "10.0.0.2"), member(3, "", "[fd00::3]"), member(9, "lost", "10.0.0.9"),
		}
}

// TestChoose: a node is known by its Node or by its member of etcd. A member that never started has no name, and stays.
func TestChoose(t *testing.T) {
	nodes, members := threePlanes()
	for name, want := range map[string]struct {
		node   bool
		member uint64
		plane  bool
	}{
		"host2": {true, 2, true}, "host3": {true, 0, true}, "host4": {true, 0, false}, "lost": {false, 9, true},
	} {
		got, err := choose(name, nodes, members)
		if err != nil || (got.node != nil) != want.node || (got.member != nil) != (want.member != 0) || got.member != nil && got.member.ID != want.member || got.controlPlane() != want.plane {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if want.node && (got.node.Name != name || len(got.others) != 3) {
			t.Errorf("%s: node %v, others %v", name, got.node, got.others)
		}
	}
	for _, name := range []string{"", "host", "HOST2", "host9", "10.0.0.2"} {
		_, err := choose(name, nodes, members)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "host1, host2, host3, host4") {
			t.Errorf("%q: %v, hint %q", name, err, fault.Hint(err))
		}
	}
}

// What a Node reports is a claim of its kubelet: whatever it is, the removal takes only the member of etcd with the name that the
// user gives, and none of two.
func TestMemberIsKnownByItsNameAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::4"})
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		role := rapid.SampledFrom([]string{cluster.ControlPlaneRole, cluster.WorkerRole})
		var nodes []cluster.NodeState
		for _, n := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID[string]).Draw(t, "nodes") {
			one := state(n, role.Draw(t, "role"), address.Draw(t, "address"))
			one.Addresses = append(one.Addresses, rapid.SliceOf(address).Draw(t, "more addresses")...)
			nodes = append(nodes, one)
		}
		var members []etcd.Member
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			m := member(uint64(i+1), rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "name of a member"), "10.0.0.9")
			m.PeerURL = "https://" + net.JoinHostPort(address.Draw(t, "address of a member"), "2380")
			members = append(members, m)
		}
		target := name.Draw(t, "target")
		same := 0
		for _, m := range members {
			if m.Name == target {
				same++
			}
		}
		got, err := choose(target, nodes, members)
		switch {
		case same > 1 && (fault.ExitCode(err) != fault.Failure || !strings.Contains(fault.Hint(err), "./install etcd member remove 0x")):
			t.Fatalf("%d members %s: %v, hint %q", same, target, err, fault.Hint(err))
		case same < 2 && got.member != nil && got.member.Name != target:
			t.Fatalf("removing %s would remove %s", target, got.member)
		case same == 1 && got.member == nil:
			t.Fatalf("%s keeps its member: %v", target, err)
		}
	})
}

// TestLastControlPlane: the last control plane stays; a worker may always go.
func TestLastControlPlane(t *testing.T) {
	nodes, members := threePlanes()
	for _, c := range []struct {
		name    string
		nodes   []cluster.NodeState
		refused bool
	}{
		{"host2", nodes, false}, {"host4", nodes, false},
		{"host2", nodes[1:2], true}, {"host2", nodes[1:3], false},
		{"host2", []cluster.NodeState{nodes[1], nodes[3]}, true}, // host4 is a worker
		{"host4", nodes[3:], false},
		{"lost", nodes[3:], true}, {"lost", nodes, false},
	} {
		target, err := choose(c.name, c.nodes, members)
		if err != nil {
			t.Fatal(err)
		}
		if err = target.leavesControlPlane(); (err != nil) != c.refused || err != nil && !strings.Contains(fault.Hint(err), "./install reset") {
			t.Errorf("%s of %v: %v", c.name, names(c.nodes), err)
		}
	}
}

// TestMemberIsNotSpared: package etcd tests the arithmetic. The numbers are in the error, and its hint
// names a way out.
func TestMemberIsNotSpared(t *testing.T) {
	down := errors.New("down")
	states := func(errs ...error) (list []etcd.State) {
		for i, err := range errs {
			list = append(list, etcd.State{Member: member(uint64(i+1), "host", "10.0.0.1"), Err: err})
		}
		return list
	}
	for _, c := range []struct {
		states []etcd.State
		want   string
	}{
		{states(nil, nil, nil), ""},
		{states(down, nil, nil), ""},
		{states(nil, nil, down), "1 of the 2 other voting members are healthy, 2 are needed"},
		{states(nil, down, down), "1 of its 3 voting members are healthy, 2 are needed"},
		{states(down, nil), "1 of its 2 voting members are healthy, 2 are needed"},
		{states(nil), "is the last voting member"},
	} {
		_, err := withoutMember(c.states, c.states[0].Member)
		if (err != nil) != (c.want != "") || err != nil && (!strings.Contains(err.Error(), c.want) || fault.Hint(err) == "") {
			t.Errorf("%v: %v, hint %q", c.states, err, fault.Hint(err))
		}
	}
}

// TestDescribe: the question names the node, its role, whether its host answers, and what remains.
func TestDescribe(t *testing.T) {
	nodes, members := threePlanes()
	nodes[0].Ready = false
	at := func(name string) target {
		target, err := choose(name, nodes, members)
		if err != nil {
			t.Fatal(err)
		}
		target.rest = etcd.Rest{Members: 3, Healthy: 2, Quorum: 2}
		return target
	}
	dead := at("host2")
	dead.silence, dead.evict, dead.bare = "i/o timeout", []string{"a/web", "a/bare"}, []string{"a/bare"}
	alive := at("host4")
	alive.evict = dead.evict
	deleted := at("lost")
	unready := at("host2")
	unready.node.Ready, unready.node.Reason = false, "the network is not ready"
	for _, c := range []struct {
		target target
		drain  bool
		want   []string
		not    string
	}{
		{dead, true, []string{
			"host2, control plane, v1.37.1, 10.0.0.2", "does not answer: i/o timeout", "2 pods deleted with the Node", "nothing creates again: a/bare",
			"removes member host2 (https://10.0.0.2:2380); 3 voting members left, 2 healthy, 2 needed: it then survives the failure of 0",
			"2 control planes (host1 not Ready, host3) and 1 worker (host4)", "Make sure that the host is off",
		}, "moved"},
		{alive, true, []string{"host4, worker", "its kubelet answers, and the node is Ready", "2 pods moved to other nodes", "3 control planes (host1 not Ready, host2, host3)\n"}, "etcd"},
		{alive, false, []string{"2 pods deleted with the Node"}, "Make sure"},
		{deleted, true, []string{"lost, control plane; its Node is already deleted", "removes member lost"}, "kubelet"},
		{unready, true, []string{"its kubelet answers, but the node is not Ready: the network is not ready"}, "Make sure"},
	} {
		got := c.target.describe(c.drain)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", c.target.name, want, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: %q in\n%s", c.target.name, c.not, got)
		}
		if words := c.target.closingWords(); strings.Contains(words, "keys of the cluster's CAs") != c.target.controlPlane() || !strings.Contains(words, "./install reset --force") {
			t.Errorf("%s:\n%s", c.target.name, words)
		}
	}
}

// TestSilence: a host answers if its kubelet encrypts. A kubelet that hangs only accepts.
func TestSilence(t *testing.T) {
	kubelet := httptest.NewTLSServer(nil)
	defer kubelet.Close()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	port := func(a net.Addr) int32 { return int32(a.(*net.TCPAddr).Port) }
	for name, c := range map[string]struct {
		addresses []string
		port      int32
		want      string
	}{
		"answers":              {[]string{"127.0.0.1"}, port(kubelet.Listener.Addr()), ""},
		"at its other address": {[]string{"::1", "127.0.0.1"}, port(kubelet.Listener.Addr()), ""},
		"hangs":                {[]string{"127.0.0.1"}, port(hung.Addr()), "deadline"},
		"is off":               {[]string{"127.0.0.1"}, port(gone.Addr()), "connection refused"},
		"has no address":       {nil, 10250, "does not know its address"},
	} {
		ctx := t.Context()
		if name == "hangs" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Second)
			defer cancel()
		}
		got := silence(ctx, cluster.NodeState{Addresses: c.addresses, KubeletPort: c.port})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("a kubelet that %s: %q", name, got)
		}
	}
}

// removal returns the Removal of host4 or another node in a fake cluster, and what it writes.
func removal(t *testing.T, o Options, silence string, objects ...runtime.Object) (r *Removal, out *bytes.Buffer, writes func() []string) {
	t.Helper()
	out = new(bytes.Buffer)
	client, writes := testclient.Fake(objects...)
	h := testhost.Open(t, t.TempDir())
	r = &Removal{Machine: node.NewMachine(h, &workflow.Console{Out: out}), options: o, api: client}
	nodes, err := client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.target, err = choose(o.Node, nodes, nil); err != nil {
		t.Fatal(err)
	}
	r.target.silence = silence
	writes()
	return r, out, writes
}

func aNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "1", Labels: labels},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.4"}}},
	}
}

func aPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: "host4"}}
}

// TestRemoveWorker: the pods move if the host answers. A lost host's pods are left to the cluster.
func TestRemoveWorker(t *testing.T) {
	for _, c := range []struct {
		options Options
		silence string
		want    string
		said    string
	}{
		{Options{Node: "host4", Drain: true}, "", "patch nodes, create pods, delete nodes", "moving default/web"},
		{Options{Node: "host4", Drain: true}, "i/o timeout", "patch nodes, delete nodes", "not drained: the host does not answer"},
		{Options{Node: "host4", Drain: false}, "", "patch nodes, delete nodes", "not drained (--drain=false)"},
	} {
		r, out, writes := removal(t, c.options, c.silence, aNode("host4", nil), aPod("web"))
		api := r.api.API.(*fake.Clientset)
		api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
			return true, nil, api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), e.Namespace, e.Name)
		})
		if err := r.Run(t.Context()); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := strings.Join(writes(), ", "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if !strings.Contains(out.String(), c.said) || !strings.Contains(out.String(), "./install reset --force") || strings.Contains(out.String(), "etcd") {
			t.Errorf("%+v:\n%s", c, out)
		}
	}
}

// TestDryRunWritesNothing: and it lists the steps that a run has.
func TestDryRunWritesNothing(t *testing.T) {
	r, out, writes := removal(t, Options{Node: "host4", Drain: true}, "", aNode("host4", nil))
	r.DryRun()
	if got := writes(); len(got) > 0 {
		t.Errorf("wrote %q", got)
	}
	if text := out.String(); !strings.Contains(text, "Nothing was changed") || !strings.Contains(text, "delete-node") || strings.Contains(text, "remove-etcd-member") || strings.Contains(text, "api-endpoint") {
		t.Error(text)
	}
}

// TestRepeatedRemoval: an interrupted run is repeated, also if someone else has deleted the Node.
func TestRepeatedRemoval(t *testing.T) {
	r, _, _ := removal(t, Options{Node: "host4", Drain: true}, "x", aNode("host4", nil))
	for range 2 {
		if err := r.deleteNode(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestReplacedNode: a Node that a host registers while the command runs stays.
func TestReplacedNode(t *testing.T) {
	r, _, _ := removal(t, Options{Node: "host4", Drain: true}, "", aNode("host4", nil))
	r.api.API.(*fake.Clientset).PrependReactor("delete", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if uid := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions.UID; uid == nil || *uid != "uid-1" {
			t.Errorf("the deletion has the UID %v", uid)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "host4", errors.New("the UID is another one"))
	})
	if err := r.deleteNode(t.Context()); err == nil || !strings.Contains(err.Error(), "registered again") || !strings.Contains(fault.Hint(err), "run the same command again") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
}

// TestDrainFails: a drain that fails names the way to keep the node, and the way to remove it.
func TestDrainFails(t *testing.T) {
	r, _, writes := removal(t, Options{Node: "host4", Drain: true}, "", aNode("host4", nil), aPod("web"))
	r.api.API.(*fake.Clientset).PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("no"))
	})
	err := r.Run(t.Context())
	if err == nil || !strings.Contains(fault.Hint(err), "--drain=false") || !strings.Contains(fault.Hint(err), "kubectl uncordon host4") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	if slices.Contains(writes(), "delete nodes") {
		t.Error("the node was deleted")
	}
}

// The control plane to which the endpoint leads stays as long as its kubelet or the endpoint answers. A lost one goes, and the
// question says that the endpoint leads to it. A worker may report any address.
func TestEndpointLeadsToIt(t *testing.T) {
	api := httptest.NewTLSServer(nil)
	defer api.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	gone, serving := closed.Addr().String(), api.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(gone)
	for name, c := range map[string]struct {
		endpoint, silence string
		worker            bool
		refused, told     bool
	}{
		"it answers":                        {gone, "", false, true, false},
		"by a name":                         {"localhost:" + port, "", false, true, false},
		"its kubelet is stopped":            {serving, "i/o timeout", false, true, false},
		"it is lost":                        {gone, "i/o timeout", false, false, true},
		"a worker":                          {gone, "", true, false, false},
		"another endpoint":                  {"10.9.9.9:6443", "", false, false, false},
		"no endpoint":                       {"", "", false, false, false},
		"a name that leads nowhere":         {"name.invalid:6443", "", false, true, false},
		"a lost one, and a name of no host": {"name.invalid:6443", "i/o timeout", false, false, false},
	} {
		plane := aNode("host4", map[string]string{cluster.ControlPlaneLabel: ""})
		plane.Status.Addresses[0].Address = "127.0.0.1"
		if c.worker {
			plane.Labels = nil
		}
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: map[string]string{
			"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\ncontrolPlaneEndpoint: \"" + c.endpoint + "\"\n"}}
		kubelet := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": "kind: KubeletConfiguration\n"}}
		r, _, writes := removal(t, Options{Node: "host4", Drain: true}, c.silence, plane, stored, kubelet)
		err := r.checkEndpoint(t.Context(), &r.target)
		if (err != nil) != c.refused || strings.Contains(r.target.describe(true), "The endpoint of the cluster") != c.told || len(writes()) > 0 {
			t.Errorf("%s: %v\n%s", name, err, r.target.describe(true))
		}
		if err != nil && fault.Hint(err) == "" {
			t.Errorf("%s: %v has no hint", name, err)
		}
	}
}

// TestFormerEndpointLeadsToIt: until a change of the endpoint is finished, kube-proxy and nodes that are behind use what it replaced.
func TestFormerEndpointLeadsToIt(t *testing.T) {
	for name, c := range map[string]struct {
		change  config.EndpointChange
		refused bool
	}{
		"kube-proxy uses it": {config.EndpointChange{Number: 1, Before: config.FormerEndpoint{Server: "https://127.0.0.1:6443"}}, true},
		"a node is behind":   {config.EndpointChange{Number: 1, InAddOns: true, Before: config.FormerEndpoint{Server: "https://127.0.0.1:6443"}}, true},
		"another one":        {config.EndpointChange{Number: 1, Before: config.FormerEndpoint{Server: "https://10.0.0.1:6443"}}, false},
		"the balancer":       {config.EndpointChange{Number: 1, Before: config.FormerEndpoint{Server: "https://127.0.0.1:6443", Balancer: true}}, false},
	} {
		plane, worker := aNode("host4", map[string]string{cluster.ControlPlaneLabel: ""}), aNode("host5", nil)
		plane.Status.Addresses[0].Address = "127.0.0.1"
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: map[string]string{
			"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\ncontrolPlaneEndpoint: 10.9.9.9:6443\n"}}
		kubelet := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": "kind: KubeletConfiguration\n"}}
		text, err := config.Endpoint{Change: &c.change}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.EndpointConfigMap}, Data: map[string]string{config.EndpointKey: string(text)}}
		r, _, _ := removal(t, Options{Node: "host4", Drain: true}, "", plane, worker, stored, kubelet, changed)
		if err := r.checkEndpoint(t.Context(), &r.target); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "still use 127.0.0.1:6443, which leads to host4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEndpoint: the wait ends when no address of the API server is announced.
func TestEndpoint(t *testing.T) {
	slice := func(addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}}
		s.Ports = []discoveryv1.EndpointPort{{Port: ptr.To(int32(6443))}}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return s
	}
	plane := aNode("host4", map[string]string{cluster.ControlPlaneLabel: ""})
	r, out, _ := removal(t, Options{Node: "host4", Drain: true}, "off", plane, slice("10.0.0.1", "10.0.0.5"))
	r.target.server = "10.0.0.5:6443"
	if got, want := r.target.addresses(), []netip.Addr{netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.5")}; !slices.Equal(got, want) {
		t.Errorf("addresses %v", got)
	}
	looked := 0
	api := r.api.API.(*fake.Clientset)
	api.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		looked++
		return looked > 1, &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*slice("10.0.0.1", "10.0.0.2")}}, nil
	})
	if err := r.waitEndpoint(t.Context()); err != nil || looked != 2 || strings.Contains(out.String(), "warning") {
		t.Errorf("looked %d times: %v\n%s", looked, err, out)
	}
	r.target.silence = "" // its API server uses an external etcd, and answers
	if err := r.waitEndpoint(t.Context()); err != nil || looked != 2 || !strings.Contains(out.String(), "warning: the API server of host4 uses an external etcd") {
		t.Errorf("looked %d times: %v\n%s", looked, err, out)
	}
}

// TestHost: the command runs on a control plane, and does not remove it.
func TestHost(t *testing.T) {
	h, cfg := testhost.ControlPlane(t, nil)
	m := node.NewMachine(h, &workflow.Console{Out: t.Output()})
	made, err := pki.Ensure(cfg, m.Files(), time.Now())
	if err = errors.Join(err, m.Write(made.Files...)); err != nil {
		t.Fatal(err)
	}
	if made, err = pki.KubeletClient(cfg, m.Files(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for i, f := range made.Files {
		if f.Link != "" { // it is absolute, and this host is a directory
			made.Files[i].Link, made.Files[i].Data, made.Files[i].Mode = "", made.Files[i-1].Data, 0o600
		}
	}
	if err := m.Write(made.Files...); err != nil {
		t.Fatal(err)
	}
	if err := (&Removal{Machine: m, options: Options{Node: "two"}}).checkHost(); err != nil {
		t.Errorf("another node: %v", err)
	}
	err = (&Removal{Machine: m, options: Options{Node: "one"}}).checkHost()
	if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is this host") || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("this host: %v, hint %q", err, fault.Hint(err))
	}
	worker := node.NewMachine(testhost.Open(t, t.TempDir()), m.Console)
	if r, err := New(t.Context(), Options{Node: "two"}, worker.Host, m.Console); r != nil || err == nil || !strings.Contains(err.Error(), "not a control plane") || fault.Hint(err) == "" {
		t.Errorf("on a worker: %v", err)
	}
}
