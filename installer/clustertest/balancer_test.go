package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer/agent"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestBalancer: real agents of the load balancer give the Service of a test an address, and each layer that fails has its finding.
func TestBalancer(t *testing.T) {
	test, k := newTest(t)
	p := testcluster.Start(t)
	api, ctx := testclient.Super(t, p).API, testcluster.Within(t)
	testcluster.Must(api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}}, metav1.CreateOptions{}))(t)
	labels := map[string]string{"app": "x"}
	testcluster.Must(api.AppsV1().DaemonSets(agent.Namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: agent.Namespace}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = api.AppsV1().DaemonSets(agent.Namespace).Delete(context.Background(), agent.Namespace, metav1.DeleteOptions{})
		_ = api.CoreV1().ConfigMaps(agent.Namespace).Delete(context.Background(), agent.PoolsName, metav1.DeleteOptions{})
	})
	pools := func(text string) {
		t.Helper()
		_ = api.CoreV1().ConfigMaps(agent.Namespace).Delete(ctx, agent.PoolsName, metav1.DeleteOptions{})
		if text != "" {
			testcluster.Must(api.CoreV1().ConfigMaps(agent.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: agent.PoolsName}, Data: map[string]string{"default": text}}, metav1.CreateOptions{}))(t)
		}
	}
	stop := startAgents(t, api, "cp1", "w1", "w2")
	run := func() *Result {
		t.Helper()
		one := *test
		one.seen, one.notes, one.balanced = nil, nil, nil
		result, err := one.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, test.Client)
		return result
	}
	found := func(want string, parts ...string) {
		t.Helper()
		result := run()
		if len(result.Findings) != 1 || result.Findings[0].Name != want || result.Passed {
			t.Errorf("want %s: %+v", want, result.Findings)
			return
		}
		f := result.Findings[0]
		for _, part := range parts {
			if !strings.Contains(f.Text+"\n"+f.Fix, part) {
				t.Errorf("%s: %q is not in %q, %q", want, part, f.Text, f.Fix)
			}
		}
	}

	if result := run(); !result.Passed || !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, "the load balancer is not tested") }) {
		t.Errorf("without pools: %+v", result)
	}
	pools("198.51.100.10")
	result := run()
	if !result.Passed || len(result.Addresses) != 1 || result.Addresses[0].Address != "198.51.100.10" || !slices.Contains([]string{"cp1", "w1", "w2"}, result.Addresses[0].Node) {
		t.Errorf("%+v", result)
	}
	if want := result.Addresses[0].Node + " answers for 198.51.100.10, an address of a Service: 2 of 2 other nodes in its network heard that; clients outside of the cluster were not tested"; !slices.Contains(result.Notes, want) {
		t.Errorf("%q is not in %q", want, result.Notes)
	}
	var text strings.Builder
	result.Write(&text)
	_, line, _ := strings.Cut(text.String(), "\n  load balancer")
	passed, all := 0, 0
	if n, _ := fmt.Sscanf(line, " %d of %d\n", &passed, &all); n != 2 || passed != all || passed < 5 {
		t.Error(text.String())
	}

	const outside = "02:00:00:00:00:01"
	answers := k.answers
	set := func(f func(probe.Check) string) { k.mu.Lock(); k.answers = f; k.mu.Unlock() }
	set(func(probe.Check) string { return outside })
	found("address-taken", "another host has 198.51.100.10", outside, "no node of the cluster")
	set(func(probe.Check) string { return "" })
	found("address-silent", "announces 198.51.100.10", "no answer", "ARP inspection")
	set(func(c probe.Check) string {
		return macOf(map[string]string{"cp1": "w1", "w1": "w2", "w2": "cp1"}[c.To])
	})
	found("address-twice", "has more than one node", "strictARP")
	set(answers)

	pools("198.51.100.10, 10.244.0.0/16")
	found("address-pools", "the ConfigMap load-balancer/pools is refused", "the pod network", "kubectl edit configmap pools")

	pools("198.51.100.10")
	taker := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "taker"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
	testcluster.Must(api.CoreV1().Services("default").Create(ctx, taker, metav1.CreateOptions{}))(t)
	testcluster.Eventually(t, func() bool {
		s, err := api.CoreV1().Services("default").Get(ctx, "taker", metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) == 1
	})
	if result := run(); !result.Passed || !slices.Contains(result.Notes, `the load balancer is not tested with IPv4: the pool "default" has no free address`) {
		t.Errorf("with a full pool: %+v", result)
	}
	if err := api.CoreV1().Services("default").Delete(ctx, "taker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	stop() // otherwise the node that decides replaces what follows
	lease, err := api.CoordinationV1().Leases("load-balancer").Get(ctx, "assignments", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Annotations["airlift.dev/assignments"] = "no JSON"
	if _, err := api.CoordinationV1().Leases("load-balancer").Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	found("address-assignments", "airlift.dev/assignments", "kubectl delete lease assignments")
	if err := api.CoordinationV1().Leases("load-balancer").Delete(ctx, "assignments", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	found("address-decider", "no node decides", "kubectl -n load-balancer get pods")
}

// startAgents starts the agents of nodes, in a subnet that this machine does not have, and returns what ends them.
func startAgents(t *testing.T, api kubernetes.Interface, nodes ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			ended <- agent.Run(ctx, agent.Options{Node: n, API: api, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
				Interfaces: func() ([]agent.Interface, error) {
					return []agent.Interface{{Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}, nil
				},
				Open: func(*net.Interface, netip.Addr, func(net.HardwareAddr) bool) (neighbours.Segment, error) {
					return nil, errors.New("this machine is in no network")
				}})
		}()
	}
	done := false
	stop = func() {
		if cancel(); !done {
			done = true
			for range nodes {
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestHoldersAreClaims: what a pod prints about hardware addresses is used only if it is one.
func TestHoldersAreClaims(t *testing.T) {
	want := probe.Report{Node: "w1", Host: true, Nonce: "n"}
	for text, ok := range map[string]bool{
		`{"address":"10.0.0.9","own":"02:00:00:00:00:01","macs":["02:00:00:00:00:02"]}`:          true,
		`{"address":"10.0.0.9","own":"02:00:00:00:00:01","macs":["$(reboot)"]}`:                  false,
		`{"address":"10.0.0.9;x","own":"02:00:00:00:00:01"}`:                                     false,
		`{"address":"10.0.0.9","own":"0200.0000.0001"}`:                                          false,
		`{"address":"10.0.0.9","own":"02:00:00:00:00:01","macs":["02:00:00:00:00:02"],"x":true}`: false,
	} {
		_, err := probe.Read(strings.NewReader(`{"node":"w1","host":true,"nonce":"n","took":1,"observations":[],"holders":[`+text+`]}`), want, []string{"w1"})
		if (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestJudgeHolders: the node of the address, and nobody else, must answer. It hears no answer of its own.
func TestJudgeHolders(t *testing.T) {
	const outside, a = "02:00:00:00:00:99", "10.0.0.9"
	for name, c := range map[string]struct {
		heard map[string][]string // by node
		want  string
	}{
		"as it should be":          {map[string][]string{"n1": nil, "n2": {"02:00:00:00:00:01"}}, ""},
		"nobody":                   {map[string][]string{"n1": nil, "n2": nil}, "n2: no answer"},
		"two hosts":                {map[string][]string{"n1": {outside}, "n2": {"02:00:00:00:00:01", outside}}, "n1: a host with the hardware address " + outside + ", which is no node of the cluster, answers; n2: a host with"},
		"two nodes":                {map[string][]string{"n1": {"02:00:00:00:00:02"}, "n2": {"02:00:00:00:00:01"}}, "n1: several nodes answer: n2"},
		"its node does not report": {map[string][]string{"n2": {outside}}, ""},
	} {
		var reports []*probe.Report
		for _, node := range sorted(c.heard) {
			r := &probe.Report{Node: node, Host: true, Holders: []probe.Holder{{Address: a, Own: "02:00:00:00:00:0" + node[1:], MACs: c.heard[node]}}}
			r.Observations = []diagnosis.Observation{{Kind: diagnosis.AddressHeard, From: node, Place: diagnosis.FromHost, To: "n1", Via: a, OK: true}}
			reports = append(reports, r)
		}
		var failed []string
		for _, o := range assemble(reports, nil, t.Logf) {
			if !o.OK {
				failed = append(failed, o.From+": "+o.Detail)
			}
		}
		if got := strings.Join(failed, "; "); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
