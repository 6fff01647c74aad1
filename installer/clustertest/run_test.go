package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// kubelets are the kubelets of a real API server's nodes, and its namespace controller. They run no container: what a pod prints is computed.
type kubelets struct {
	t   *testing.T
	api kubernetes.Interface
	// starts returns why a pod does not start, "" if it does.
	starts func(p *corev1.Pod) string
	// asks returns the result of a check of a probe.
	asks func(p probe.Plan, c probe.Check) error
	// answers returns the hardware address of the host that answers for the address of a check, "" if none does.
	answers func(c probe.Check) string

	mu     sync.Mutex
	logs   map[string]string
	seen   map[string]corev1.PodSpec
	server map[string]string // addresses of servers, by node
}

func startKubelets(t *testing.T, api kubernetes.Interface) *kubelets {
	k := &kubelets{
		t: t, api: api, logs: map[string]string{}, seen: map[string]corev1.PodSpec{}, server: map[string]string{},
		starts:  func(*corev1.Pod) string { return "" },
		answers: func(c probe.Check) string { return macOf(c.To) },
		asks: func(_ probe.Plan, c probe.Check) error {
			if c.How == "closed" {
				return errors.New("reached")
			}
			return nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.once(ctx)
			_ = pause(ctx, 100*time.Millisecond)
		}
	}()
	return k
}

func (k *kubelets) once(ctx context.Context) {
	namespace, err := k.api.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	if err != nil {
		return
	}
	pods, err := k.api.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	if namespace.DeletionTimestamp != nil {
		if len(pods.Items) == 0 {
			_ = k.api.CoreV1().ServiceAccounts(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			_ = k.api.NetworkingV1().NetworkPolicies(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			for _, name := range []string{anyService, localService, balancedName} {
				_ = k.api.CoreV1().Services(Namespace).Delete(ctx, name, metav1.DeleteOptions{})
			}
			_ = k.api.CoreV1().Events(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			namespace.Spec.Finalizers = nil
			_, _ = k.api.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		}
		return
	}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" {
			k.run(ctx, &p)
		}
	}
}

// run starts a pod, as far as the API server sees it.
func (k *kubelets) run(ctx context.Context, p *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[p.Name] = p.Spec
	if why := k.starts(p); why != "" {
		if k.logs[p.Name] == "" {
			k.logs[p.Name] = "-"
			_, _ = k.api.CoreV1().Events(Namespace).Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: Namespace},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: p.Name, Namespace: Namespace}, Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: why}, metav1.CreateOptions{})
		}
		return
	}
	command := p.Spec.Containers[0].Command
	p.Status.Phase = corev1.PodSucceeded
	switch {
	case command[1] == "--help":
	case command[2] == "serve":
		var s probe.Server
		k.decode(command[3], &s)
		p.Status.Phase = corev1.PodRunning
		k.server[s.Node] = fmt.Sprintf("10.244.%d.9", len(k.server)+1)
		p.Status.PodIP = k.server[s.Node]
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		for _, n := range s.Nodes {
			k.logs[p.Name] += fmt.Sprintf("{\"heard\":%q}\n", n)
		}
	case command[2] == "probe":
		var plan probe.Plan
		k.decode(command[3], &plan)
		k.logs[p.Name] = k.report(plan)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, _ = k.api.CoreV1().Pods(Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
}

func (k *kubelets) decode(text string, into any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		k.t.Errorf("%s: %v", text, err)
	}
}

// report is what a probe prints whose checks succeed as asks decides.
func (k *kubelets) report(plan probe.Plan) string {
	r := probe.Report{Node: plan.Node, Host: plan.Host, Nonce: plan.Nonce, Observations: []diagnosis.Observation{}}
	saw := func(kind diagnosis.Kind, to, via string, err error) {
		o := diagnosis.Observation{Kind: kind, From: plan.Node, To: to, Via: via, Place: diagnosis.FromPod, OK: err == nil}
		if plan.Host {
			o.Place = diagnosis.FromHost
		}
		if err != nil {
			o.Detail = err.Error()
		}
		r.Observations = append(r.Observations, o)
	}
	for _, peer := range plan.Peers {
		kind := diagnosis.PodReach
		if plan.Host {
			kind = diagnosis.HostPod
		}
		for range peer.Pods {
			saw(kind, peer.Node, "UDP over IPv4", nil)
			saw(kind, peer.Node, "TCP over IPv4", nil)
		}
		if plan.Host && peer.Node != plan.Node {
			saw(diagnosis.HostReach, peer.Node, "IPv4", nil)
		}
	}
	for _, c := range plan.Checks {
		if c.How == "holders" {
			h := probe.Holder{Address: c.Address, Own: macOf(plan.Node)}
			if answers := k.answers(c); answers != "" && answers != h.Own {
				h.MACs = []string{answers}
			}
			r.Holders = append(r.Holders, h)
		}
		if err := k.asks(plan, c); !errors.Is(err, errOmitted) {
			saw(c.Kind, c.To, c.Via, err)
		}
	}
	for _, c := range plan.Steady {
		r.Losses = append(r.Losses, probe.Loss{Via: c.Via, Sent: 40})
	}
	text, _ := json.Marshal(r)
	return string(text) + "\n"
}

// macOf is the hardware address of a node.
func macOf(node string) string { return fmt.Sprintf("02:00:00:00:00:%02x", node[0]^node[1]) }

// errOmitted is the result of a check that a probe does not report.
var errOmitted = errors.New("not reported")

func (k *kubelets) log(_ context.Context, pod string) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return io.NopCloser(bytes.NewReader([]byte(k.logs[pod]))), nil
}

// newTest returns a test of a cluster of three nodes with DNS.
func newTest(t *testing.T) (*Test, *kubelets) {
	p := testcluster.Start(t)
	client := testclient.Initialized(t, p)
	api, ctx := client.API, testcluster.Within(t)
	for i, name := range []string{"cp1", "w1", "w2"} {
		p.AddNode(t, name, true)
		node := testcluster.Must(api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))(t)
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+11)}}
		node.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.k8s.io/coredns/coredns:v1.11.1"}}, {Names: []string{"registry.k8s.io/pause@sha256:0", "registry.k8s.io/pause:3.9"}}}
		for j := range node.Status.Conditions {
			if node.Status.Conditions[j].Type == corev1.NodeReady {
				node.Status.Conditions[j].Status = corev1.ConditionTrue
			}
		}
		node = testcluster.Must(api.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}))(t)
		node.Spec.Unschedulable = name == "w1"
		testcluster.Must(api.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}))(t)
	}
	dns := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: map[string]string{"k8s-app": dnsLabel}}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 53, Protocol: "UDP"}}}}
	if _, err := api.CoreV1().Services("kube-system").Get(ctx, dns.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) { // of the test before
		testcluster.Must(api.CoreV1().Services("kube-system").Create(ctx, dns, metav1.CreateOptions{}))(t)
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns-x", Labels: map[string]string{discoveryv1.LabelServiceName: "coredns"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}}
	if _, err := api.DiscoveryV1().EndpointSlices("kube-system").Create(ctx, slice, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	k := startKubelets(t, testclient.Super(t, p).API)
	return &Test{Client: client, Node: "cp1", Report: t.Logf, openLog: k.log}, k
}

// nothingLeft fails if a test has left something.
func nothingLeft(t *testing.T, c *cluster.Client) {
	t.Helper()
	ctx := testcluster.Within(t)
	if _, err := c.API.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace: %v", err)
	}
	if _, err := c.API.CoordinationV1().Leases("kube-system").Get(ctx, leaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease: %v", err)
	}
}

// TestRun: a real API server accepts what a test creates, and nothing is left of it.
func TestRun(t *testing.T) {
	test, k := newTest(t)
	moved := 0
	k.starts = func(p *corev1.Pod) string { // a drain that begins meanwhile does not refuse the pods
		evict, bare, err := workloads.NewDrain(k.api, p.Spec.NodeName, time.Second).Pods(t.Context())
		if moved += len(evict); err != nil || len(bare) > 0 {
			t.Errorf("a drain: no controller has %q, %v", bare, err)
		}
		return ""
	}
	result, err := test.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if moved == 0 {
		t.Error("no drain had a pod to move")
	}
	var text strings.Builder
	result.Write(&text)
	t.Log(text.String())
	for _, want := range []string{"3 nodes in ", "w1 (cordoned)", "note: NetworkPolicies are not enforced", "note: volumes are not tested", "The cluster passed", "requests to a Service: 0 lost of 120"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the text", want)
		}
	}
	if !result.Passed || len(result.Findings) > 0 {
		t.Errorf("%+v", result.Findings)
	}
	nothingLeft(t, test.Client)
	for name, spec := range k.seen {
		c := spec.Containers[0]
		if c.Image != "registry.k8s.io/pause:3.9" || c.ImagePullPolicy != corev1.PullNever || *spec.AutomountServiceAccountToken || len(spec.Tolerations) != 1 && spec.Tolerations[0].Operator != corev1.TolerationOpExists {
			t.Errorf("%s: %+v", name, spec)
		}
		if host := strings.HasPrefix(name, "host-"); spec.HostNetwork != host || (*c.SecurityContext.RunAsUser == 0) != host {
			t.Errorf("%s is in the host's network: %t, user %d", name, spec.HostNetwork, *c.SecurityContext.RunAsUser)
		}
	}
	if len(k.seen) != 9 {
		t.Errorf("%d pods", len(k.seen))
	}
}

// TestRunFinds: what a node reports, or that it cannot run pods, becomes a finding with the node's name.
func TestRunFinds(t *testing.T) {
	test, k := newTest(t)
	p := testcluster.Start(t)
	p.AddNode(t, "w2", false)
	k.starts = func(p *corev1.Pod) string {
		if p.Spec.NodeName == "w1" && !p.Spec.HostNetwork {
			return "failed to allocate for range 0: no IP addresses available in range set: 10.244.1.1-10.244.1.254"
		}
		return ""
	}
	k.asks = func(p probe.Plan, c probe.Check) error {
		// As a controller of the site does in each namespace.
		_, _ = k.api.NetworkingV1().NetworkPolicies(Namespace).Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default-deny"}}, metav1.CreateOptions{})
		if c.Kind == diagnosis.LocalProxy && p.Node == "cp1" || c.How == "closed" {
			return errors.New("no answer")
		}
		return nil
	}
	result, err := test.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	result.Write(&text)
	t.Log(text.String())
	var names []string
	for _, f := range result.Findings {
		names = append(names, f.Name+" "+strings.Join(f.Nodes, ","))
	}
	if got := strings.Join(names, "; "); got != "node-not-ready w2; address-range-full w1; kube-proxy cp1" || result.Passed {
		t.Errorf("findings: %s", got)
	}
	if want := "NetworkPolicies to the namespace airlift-test (default-deny)"; !strings.Contains(text.String(), want) {
		t.Errorf("%q is not in the text", want)
	}
	nothingLeft(t, test.Client)
	p.AddNode(t, "w2", true)
}

// TestOneAtATime: a second test is refused while the first one runs; one that was killed is not waited for long, and what it left is removed.
func TestOneAtATime(t *testing.T) {
	test, _ := newTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	var once sync.Once
	first := *test
	first.Report = func(format string, args ...any) {
		if strings.Contains(format, "%s") && len(args) > 0 && args[0] == "waiting for the servers" {
			once.Do(func() { close(began) })
			<-ctx.Done()
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := first.Run(ctx)
		ended <- err
	}()
	<-began
	second := *test
	second.Node = "w1"
	_, err := second.Run(t.Context())
	if fault.ExitCode(err) != fault.Waiting || !strings.Contains(err.Error(), "cp1, process") {
		t.Errorf("a second test: %v", err)
	}
	cancel() // Ctrl-C
	if err := <-ended; fault.ExitCode(err) != fault.Interrupted {
		t.Errorf("the first test: %v", err)
	}
	nothingLeft(t, test.Client)

	// A killed one leaves its namespace and its Lease.
	api := test.Client.API
	within := testcluster.Within(t)
	testcluster.Must(api.CoreV1().Namespaces().Create(within, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{managedBy: airlift}}}, metav1.CreateOptions{}))(t)
	third := *test
	if _, err := third.Run(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, test.Client)

	// A namespace of somebody else stays.
	testcluster.Must(api.CoreV1().Namespaces().Create(within, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{}))(t)
	fourth := *test
	if _, err := fourth.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Airlift did not create it") || !strings.Contains(fault.Hint(err), "kubectl") {
		t.Errorf("with a namespace of the user: %v", err)
	}
	if _, err := api.CoreV1().Namespaces().Get(within, Namespace, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	_ = api.CoreV1().Namespaces().Delete(within, Namespace, metav1.DeleteOptions{})
	testcluster.Eventually(t, func() bool {
		_, err := api.CoreV1().Namespaces().Get(within, Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestReportsAreClaims: a pod may print anything, and only what it may know is used.
func TestReportsAreClaims(t *testing.T) {
	want := probe.Report{Node: "w1", Nonce: "n"}
	nodes := []string{"w1", "w2"}
	const good = `{"node":"w1","nonce":"n","took":1,"observations":[{"kind":"pod","from":"w1","place":"pod","to":"w2","ok":true}]}`
	if r, err := probe.Read(strings.NewReader(good), want, nodes); err != nil || len(r.Observations) != 1 {
		t.Fatal(r, err)
	}
	for name, text := range map[string]string{
		"nothing":            "",
		"an error":           "error: unknown command \"test\"",
		"another node":       strings.Replace(good, `"node":"w1"`, `"node":"w2"`, 1),
		"of another test":    strings.Replace(good, `"nonce":"n"`, `"nonce":"m"`, 1),
		"from another node":  strings.Replace(good, `"from":"w1"`, `"from":"w2"`, 1),
		"to an unknown node": strings.Replace(good, `"to":"w2"`, `"to":"w3"`, 1),
		"from the host":      strings.Replace(good, `"place":"pod"`, `"place":"host"`, 1),
		"about a node":       strings.Replace(good, `"kind":"pod"`, `"kind":"node"`, 1),
		"an unknown field":   strings.Replace(good, `"took":1`, `"tock":1`, 1),
		"two reports":        good + good,
		"losses":             strings.Replace(good, `"took":1`, `"took":1,"losses":[{"via":"x","sent":1,"lost":2}]`, 1),
		"too much":           good + strings.Repeat(" ", 5<<20),
	} {
		if _, err := probe.Read(strings.NewReader(text), want, nodes); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := strings.Replace(good, `"ok":true`, `"ok":false,"detail":"`+strings.Repeat(`x\n`, 5000)+`"`, 1)
	if r, err := probe.Read(strings.NewReader(long), want, nodes); err != nil || len(r.Observations[0].Detail) > 400 {
		t.Error("a long detail is not cut", err)
	}
}

// TestPlanIsSmall: what a probe has to do fits into an argument of a process, which Linux limits to 128 KiB.
func TestPlanIsSmall(t *testing.T) {
	test := &Test{site: &site{api: map[string]string{}, dnsName: "kubernetes.default.svc.cluster.local.", kubernetes: []string{"10.96.0.1", "fd00:10:96::1"}},
		nonce: testNonce, servers: map[string]*corev1.Pod{}, Client: &cluster.Client{CA: []byte(testCA)}}
	for i := range 5000 {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d.site.example", strings.Repeat("n", 235), i)}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.100.0/24", "fd00:10:244:100::/64"}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.100.100"}, {Type: corev1.NodeInternalIP, Address: "fd00:1234:5678:9abc::100"}}
		test.site.nodes, test.site.names = append(test.site.nodes, n), append(test.site.names, n.Name)
		test.servers[n.Name] = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.100.100"}, {IP: "fd00:10:244:100::100"}}}}
		if i < 5 {
			test.site.api[n.Name] = net.JoinHostPort("192.168.100.100", "6443")
		}
	}
	test.nodePort, test.addresses = 30000, map[string][]string{anyService: {"10.96.200.200", "fd00:10:96::200"}, localService: {"10.96.200.201", "fd00:10:96::201"}}
	for _, host := range []bool{false, true} {
		size := len(argument(test.plan(test.site.nodes[7], host)))
		t.Logf("%d bytes", size)
		if size >= 1<<17 {
			t.Errorf("the plan has %d bytes", size)
		}
	}
	if !strings.Contains(strings.Join(test.notes, " "), "each node asked 60 others") {
		t.Error(test.notes)
	}
	server := test.serverPod(test.site.nodes[7]).Spec.Containers[0].Command
	if size := len(server[len(server)-1]); size >= 1<<17 {
		t.Errorf("the argument of a server has %d bytes", size)
	}
	for i, n := range test.site.names { // who asks a node is who the node reports
		if i%500 != 0 {
			continue
		}
		for _, peer := range test.peers(n) {
			if !slices.Contains(test.site.askers(peer.Node), n) {
				t.Errorf("%s asks %s, which would not report it", n, peer.Node)
			}
		}
	}
}

// TestPodNames: the API server accepts the names of all pods for each name that a node can have, and no two pods have the same one.
func TestPodNames(t *testing.T) {
	part := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?`)
	name := rapid.Custom(func(t *rapid.T) string {
		text := strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "parts"), ".")
		if n := rapid.SampledFrom([]int{len(text), 253, 252, 246, 241, 240, 63}).Draw(t, "length"); len(text) < n {
			text += strings.Repeat("x", n-len(text))
		}
		return strings.TrimRight(text[:min(len(text), 253)], ".-")
	})
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]bool{}
		test := &Test{site: &site{}, nonce: testNonce, Client: &cluster.Client{}}
		for _, node := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID[string]).Draw(t, "nodes") {
			if errs := validation.IsDNS1123Subdomain(node); len(errs) > 0 {
				t.Fatalf("%q is no name of a node: %q", node, errs)
			}
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
			test.site.names = append(test.site.names, node)
			for _, p := range []*corev1.Pod{test.serverPod(n), test.pullPod(n), test.probePod(n, probe.Plan{}), test.probePod(n, probe.Plan{Host: true})} {
				if errs := validation.IsDNS1123Subdomain(p.Name); len(errs) > 0 || seen[p.Name] || p.Spec.NodeName != node {
					t.Fatalf("the pod of %q is %q: %q, twice: %t", node, p.Name, errs, seen[p.Name])
				}
				seen[p.Name] = true
			}
		}
	})
}

// TestLongNodeName: a node with the longest name is tested as the others are.
func TestLongNodeName(t *testing.T) {
	test, _ := newTest(t)
	p := testcluster.Start(t)
	long := strings.Repeat("n", 63) + "." + strings.Repeat("o", 63) + "." + strings.Repeat("d", 63) + "." + strings.Repeat("e", 61)
	p.AddNode(t, long, true)
	defer func() {
		if err := test.Client.API.CoreV1().Nodes().Delete(context.Background(), long, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	result, err := test.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !result.Passed {
		t.Errorf("%+v", result.Findings)
	}
	nothingLeft(t, test.Client)
}
