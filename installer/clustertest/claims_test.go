package clustertest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/scripts/fixtures/testcluster"
)

// TestClaimsAreNotCommands: what a pod prints is never in a command that a finding asks to type.
func TestClaimsAreNotCommands(t *testing.T) {
	const evil = "$(reboot)"
	names := []string{"w1", "w2"}
	reports := []probe.Report{{Tunnel: "UDP 1;" + evil + " (vxlan)"}}
	for _, kind := range diagnosis.Kinds {
		for _, to := range append(names, "") {
			reports = append(reports, probe.Report{Observations: []diagnosis.Observation{{Kind: kind, From: "w1", Place: diagnosis.FromHost, To: to, Via: evil, Detail: evil}}})
		}
	}
	read := 0
	for _, r := range reports {
		r.Node, r.Host, r.Nonce = "w1", true, "n"
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		is, err := probe.Read(strings.NewReader(string(data)), r, names)
		if err != nil {
			continue
		}
		read++
		facts := diagnosis.Facts{Nodes: names, Tunnel: is.Tunnel}
		tunnel := diagnosis.Observation{Kind: diagnosis.PodReach, From: "w1", To: "w2"}
		for _, f := range diagnosis.Diagnose(facts, append(is.Observations, tunnel)) {
			if strings.Contains(f.Fix, "reboot") {
				t.Errorf("%+v: type: %s", r, f.Fix)
			}
		}
	}
	if read < 20 {
		t.Errorf("only %d reports were accepted", read)
	}
}

// TestNotTested: a probe that does not report all that it was asked has not tested its node, and the cluster does not pass.
func TestNotTested(t *testing.T) {
	test, k := newTest(t)
	k.asks = func(p probe.Plan, c probe.Check) error {
		if c.How == "closed" {
			return errors.New("reached")
		}
		if p.Node == "w1" && !p.Host && c.Kind == diagnosis.API {
			return errOmitted
		}
		return nil
	}
	result, err := test.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := result.Findings; result.Passed || len(f) != 1 || f[0].Name != "probe" || !slices.Equal(f[0].Nodes, []string{"w1"}) || !strings.Contains(f[0].Text, "no result of") {
		t.Errorf("%+v", f)
	}
}

// TestNamespaceOfAnotherTest: a test that lost its Lease, or was interrupted, leaves the namespace of the test that follows it.
func TestNamespaceOfAnotherTest(t *testing.T) {
	test, _ := newTest(t)
	client, ctx := test.Client, testcluster.Within(t)
	namespaces := client.API.CoreV1().Namespaces()
	testcluster.Must(namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{managedBy: airlift, roleLabel: "b"}}}, metav1.CreateOptions{}))(t)
	first, second := &Test{Client: client, nonce: "a"}, &Test{Client: client, nonce: "b"}
	if err := first.remove(ctx, first.created); err != nil {
		t.Fatal(err)
	}
	if n := testcluster.Must(namespaces.Get(ctx, Namespace, metav1.GetOptions{}))(t); n.DeletionTimestamp != nil {
		t.Error("the namespace of another test is removed")
	}
	if err := second.remove(ctx, second.created); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, client)
}

// TestStateOf: a webhook has added a container that never ends.
func TestStateOf(t *testing.T) {
	for code, ok := range map[int32]bool{0: true, 1: false} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}},
		}}}
		if s := stateOf(p); !s.ended || !s.started || s.succeeded != ok {
			t.Errorf("code %d: %+v", code, s)
		}
		p.Status.ContainerStatuses[0], p.Status.ContainerStatuses[1].Name = p.Status.ContainerStatuses[1], "proxy"
		p.Status.ContainerStatuses = p.Status.ContainerStatuses[1:]
		if s := stateOf(p); s.ended {
			t.Errorf("only another container has ended: %+v", s)
		}
	}
}

// TestNameOfOneFamily: in a cluster with both families, the name that DNS resolves has the addresses of the Service kubernetes.
func TestNameOfOneFamily(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
	pod := &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.0.2"}, {IP: "fd01::2"}}}}
	for address, ipv6 := range map[string]bool{"10.96.0.1": false, "fd00::1": true} {
		test := &Test{Client: &cluster.Client{}, servers: map[string]*corev1.Pod{"w1": pod}, site: &site{names: []string{"w1"}, nodes: []corev1.Node{node}, tested: []corev1.Node{node}, kubernetes: []string{address}}}
		if plan := test.plan(node, false); plan.NameIPv6 != ipv6 || !plan.IPv4 || !plan.IPv6 {
			t.Errorf("%s: %+v", address, plan)
		}
	}
}
