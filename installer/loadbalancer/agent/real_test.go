package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"airlift/builder/addons"
	"airlift/builder/manifests"
	"airlift/images/release"
	"airlift/installer/cluster"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer"
	"airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster"
)

// A realCluster has a real API server with the add-on's objects, and agents that use it with the add-on's permissions.
type realCluster struct {
	*testing.T
	*testcluster.ControlPlane
	api    kubernetes.Interface
	token  string
	agents map[string]*realAgent
}

type realAgent struct {
	log  *lockedBuffer
	end  context.CancelFunc
	done chan struct{}
	cut  atomic.Bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A cuttable transport fails while the agent has no API.
type cuttable struct {
	http.RoundTripper
	cut *atomic.Bool
}

func (c cuttable) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the API is cut off")
	}
	return c.RoundTripper.RoundTrip(r)
}

func (c *realCluster) rest() *rest.Config {
	c.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Super)
	if err != nil {
		c.Fatal(err)
	}
	config.QPS = -1
	return config
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	p := testcluster.Start(t)
	c := &realCluster{T: t, ControlPlane: p, api: p.API(t), agents: map[string]*realAgent{}}
	list, err := release.AddOns(testcluster.Version)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(a release.AddOn) bool { return a.Name == release.LoadBalancer })
	text, err := addons.Objects(list[i])
	if err != nil {
		t.Fatal(err)
	}
	client, err := cluster.Load(p.Super, "")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Decode(release.LoadBalancer, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if _, err := client.Apply(t.Context(), &unstructured.Unstructured{Object: o.Content}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := c.api.CoreV1().ServiceAccounts(Namespace).CreateToken(t.Context(), "load-balancer",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.token = token.Status.Token
	return c
}

// start starts the agent of a node, which exists.
func (c *realCluster) start(node string) {
	c.Helper()
	a := &realAgent{done: make(chan struct{}), log: &lockedBuffer{}}
	config := rest.AnonymousClientConfig(c.rest())
	config.BearerToken, config.QPS = c.token, -1
	config.Wrap(func(t http.RoundTripper) http.RoundTripper { return cuttable{t, &a.cut} })
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	ctx, end := context.WithCancel(c.Context())
	a.end = end
	c.agents[node] = a
	var listed atomic.Bool
	go func() {
		defer close(a.done)
		_ = Run(ctx, Options{Node: node, API: api, Log: slog.New(slog.NewTextHandler(a.log, nil)),
			Open: func(*net.Interface, netip.Addr, func(net.HardwareAddr) bool) (neighbours.Segment, error) {
				return nil, errors.New("this host is in no network")
			},
			Interfaces: func() ([]Interface, error) {
				if listed.Swap(true) {
					return nil, netlink.ErrDumpInterrupted // the first list stays
				}
				return []Interface{{Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.18.0.0/15")}}}, nil
			}})
	}()
	c.Cleanup(func() { end(); <-a.done })
}

func (c *realCluster) pools(data map[string]string) {
	c.Helper()
	maps := c.api.CoreV1().ConfigMaps(Namespace)
	_ = maps.Delete(c.Context(), PoolsName, metav1.DeleteOptions{})
	if data == nil {
		return
	}
	if _, err := maps.Create(c.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: PoolsName}, Data: data}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *realCluster) service(name string, change ...func(*corev1.Service)) {
	c.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
		AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, f := range change {
		f(s)
	}
	if _, err := c.api.CoreV1().Services("default").Create(c.Context(), s, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *realCluster) remove(name string) {
	c.Helper()
	if err := c.api.CoreV1().Services("default").Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
}

// addresses returns the addresses in the status of a Service.
func (c *realCluster) addresses(name string) string {
	c.Helper()
	s, err := c.api.CoreV1().Services("default").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return inStatus(s)
}

func inStatus(s *corev1.Service) string {
	var list []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, i.IP+i.Hostname)
	}
	return strings.Join(list, " ")
}

func (c *realCluster) has(name, want string) {
	c.Helper()
	c.eventually(func() (string, bool) { got := c.addresses(name); return name + ": " + got, got == want }, want)
}

// node returns the node that the table names for an address.
func (c *realCluster) node(address string) string {
	lease, err := c.api.CoordinationV1().Leases(Namespace).Get(c.Context(), tableName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	table, err := tableOf(lease)
	if err != nil {
		c.Fatal(err)
	}
	return table.Where(netip.MustParseAddr(address))
}

func (c *realCluster) event(object, reason, text string) {
	c.Helper()
	c.eventually(func() (string, bool) {
		list, err := c.api.CoreV1().Events("").List(c.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object + ",reason=" + reason})
		if err != nil {
			c.Fatal(err)
		}
		var seen []string
		for _, e := range list.Items {
			seen = append(seen, e.Message)
		}
		return strings.Join(seen, "\n"), strings.Contains(strings.Join(seen, "\n"), text)
	}, reason+": "+text)
}

func (c *realCluster) eventually(check func() (string, bool), want string) {
	c.Helper()
	var got string
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var ok bool
		if got, ok = check(); ok {
			return
		}
	}
	c.Fatalf("%s; want %s", got, want)
}

// With the add-on's permissions, Services get addresses and nodes, and lose them, as the pages say.
func TestServices(t *testing.T) {
	c := newRealCluster(t)
	for _, n := range []string{"lb1", "lb2"} {
		c.AddNode(t, n, true)
		c.start(n)
	}
	c.service("early")
	c.service("other", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") })
	c.service("others")
	others := []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.10"}]}}}`)
	if _, err := c.api.CoreV1().Services("default").Patch(t.Context(), "others", types.MergePatchType, others, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.pools(map[string]string{"default": "198.51.100.10-198.51.100.12"})
	c.has("early", "198.51.100.11")
	c.event("early", "Announced", "answers for 198.51.100.11")

	c.service("class", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To(loadbalancer.Class) })
	c.has("class", "198.51.100.12")
	c.service("late")
	c.event("late", "NoAddress", `the pool "default" has no free IPv4 address`)
	c.remove("early")
	c.has("late", "198.51.100.11")

	// A drain moves an address, and so does the label; nothing moves back.
	home := c.node("198.51.100.11")
	away := map[string]string{"lb1": "lb2", "lb2": "lb1"}[home]
	patch := func(node, text string) {
		if _, err := c.api.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(address, want string) {
		t.Helper()
		c.eventually(func() (string, bool) { got := c.node(address); return got, got == want }, want)
	}
	patch(home, `{"spec":{"unschedulable":true}}`)
	at("198.51.100.11", away)
	patch(home, `{"spec":{"unschedulable":false}}`)
	patch(away, `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}}}`)
	at("198.51.100.11", home)
	patch(away, `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`)

	// A node without the API loses its addresses, and an agent that ends, too.
	c.agents[home].cut.Store(true)
	at("198.51.100.11", away)
	c.agents[home].cut.Store(false)
	c.agents[away].end()
	<-c.agents[away].done
	at("198.51.100.11", home)
	c.start(away)

	// Only nodes with an endpoint serve a Service of this kind.
	c.remove("class")
	c.service("local", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	c.has("local", "198.51.100.12")
	c.event("local", "NoNode", "and an endpoint of this Service")
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "local-1", Labels: map[string]string{discoveryv1.LabelServiceName: "local"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.9"}, NodeName: &away}}}
	if _, err := c.api.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	at("198.51.100.12", away)

	// Pools that cannot be used change nothing; without the ConfigMap, Airlift's addresses are gone and others are not.
	c.pools(map[string]string{"default": "198.51.100.10-198.51.100.12,x"})
	c.event(PoolsName, "InvalidPools", `"x" is not an address`)
	c.has("late", "198.51.100.11")
	c.pools(nil)
	c.has("late", "")
	c.has("local", "")
	c.has("others", "198.51.100.10")
	c.has("other", "")
	for _, name := range []string{"late", "local", "others", "other"} {
		c.remove(name)
	}
}

// Each time in which the API does not answer is in the log of the node that decides.
func TestEachFailureIsLogged(t *testing.T) {
	c := newRealCluster(t)
	c.AddNode(t, "log1", true)
	c.start("log1")
	c.pools(map[string]string{"default": "198.51.100.10"})
	c.service("logged")
	c.has("logged", "198.51.100.10")
	a := c.agents["log1"]
	failures := func() int { return strings.Count(a.log.String(), "deciding which node has which address failed") }
	for range 2 {
		had := failures()
		a.cut.Store(true)
		c.eventually(func() (string, bool) { return a.log.String(), failures() > had }, "another error")
		a.cut.Store(false)
		lease := func() string {
			l, err := c.api.CoordinationV1().Leases(Namespace).Get(t.Context(), tableName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return renewTime(l)
		}
		before := lease()
		c.eventually(func() (string, bool) { now := lease(); return now, now != before }, "another renewal")
		time.Sleep(2 * loadbalancer.Cycle)
	}
	c.remove("logged")
	c.pools(nil)
}

// More Services than the Lease of the table has room for: some get no address, and an Event shows why. The others keep theirs, which move as
// before, and when one is free, it is given to another Service. Most of the room is taken by addresses of a node that renews its Lease and does
// not read the table.
func TestTableIsFull(t *testing.T) {
	c := newRealCluster(t)
	long := func(prefix string, length int) string {
		return prefix + strings.Repeat("x", length-len(prefix))
	}
	namespace := long("full-", 63)
	ctx := t.Context()
	if _, err := c.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	nodes := []string{long("full1.", 60) + "." + long("y", 60) + "." + long("y", 60) + "." + long("y", 50), long("full2.", 60) + "." + long("y", 60) + "." + long("y", 60) + "." + long("y", 50)}
	stuck := nodes[0] + long("stuck", 15)
	c.overfill(stuck, 660)
	for _, n := range nodes {
		c.AddNode(t, n, true)
		c.start(n)
	}
	c.pools(map[string]string{"default": "198.18.0.0/15"})
	const count = 200
	fast, err := kubernetes.NewForConfig(c.rest()) // without a limit of requests
	if err != nil {
		t.Fatal(err)
	}
	services := fast.CoreV1().Services(namespace)
	for i := range count {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: long(fmt.Sprintf("s%d-", i), 63)}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := services.Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (with, without []string) {
		all, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all.Items {
			if inStatus(&s) != "" {
				with = append(with, s.Name)
			} else {
				without = append(without, s.Name)
			}
		}
		return with, without
	}
	table := func() (loadbalancer.Table, int) {
		lease, err := c.api.CoordinationV1().Leases(Namespace).Get(ctx, tableName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := tableOf(lease)
		if err != nil {
			t.Fatal(err)
		}
		return table, len(lease.Annotations[tableKey])
	}
	entries := func(t loadbalancer.Table) (n int) {
		for _, e := range t.Entries {
			if e.Leaving != stuck {
				n++
			}
		}
		return n
	}
	given, before := 0, 0
	c.eventually(func() (string, bool) {
		with, _ := list()
		before, given = given, len(with)
		is, _ := table()
		return fmt.Sprint(given, " Services have an address, the table has ", entries(is)), given > 30 && given == before && given < count && given == entries(is)
	}, "as many as the table has room for")
	_, size := table()
	t.Logf("%d of %d Services have an address; the table has %d bytes", given, count, size)
	if perService := (loadbalancer.Entry{Address: netip.MustParseAddr("198.18.0.1"), Service: namespace + "/" + long("s", 63), Node: nodes[0]}).Reserve(""); size+(count-given)*perService < 256<<10 {
		t.Fatal("all Services would have room")
	}
	_, without := list()
	c.event(without[0], "NoAddress", "has no room for more addresses")
	state, err := ReadState(ctx, c.api) // what airlift status and airlift test read
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range state.Services {
		if len(s.Addresses) == 0 != (s.Problem != "") || s.Problem != "" && !strings.Contains(s.Problem, "has no room for more addresses") {
			t.Errorf("%s has %v: %q", s.Name, s.Addresses, s.Problem)
		}
	}

	// One node ends: everything moves to the other one.
	c.agents[nodes[0]].end()
	<-c.agents[nodes[0]].done
	c.eventually(func() (string, bool) {
		is, size := table()
		moved := len(is.Of(nodes[1]))
		return fmt.Sprint(moved, " addresses moved, ", size, " bytes"), moved == given
	}, "all")

	with, _ := list()
	if err := services.Delete(ctx, with[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() (string, bool) {
		now, _ := list()
		new := slices.ContainsFunc(now, func(name string) bool { return !slices.Contains(with, name) })
		return fmt.Sprint(len(now)), new
	}, "another Service with an address")
	c.pools(nil)
	c.eventually(func() (string, bool) { now, _ := list(); return fmt.Sprint(len(now)), len(now) == 0 }, "no address")
	all, _ := services.List(ctx, metav1.ListOptions{})
	for _, s := range all.Items {
		_ = services.Delete(ctx, s.Name, metav1.DeleteOptions{})
	}
}

// overfill writes a table in which addresses wait for a node, which renews its Lease and does not read the table.
func (c *realCluster) overfill(node string, addresses int) {
	c.Helper()
	table, a := loadbalancer.Table{Version: 1}, netip.MustParseAddr("198.19.0.1")
	for range addresses {
		table.Entries = append(table.Entries, loadbalancer.Entry{Address: a, Leaving: node, Left: math.MaxInt64})
		a = a.Next()
	}
	text, err := json.Marshal(table)
	if err != nil {
		c.Fatal(err)
	}
	leases, ctx := c.api.CoordinationV1().Leases(Namespace), c.Context()
	lease, err := leases.Get(ctx, tableName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: tableName}}, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, tableKey, string(text))
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	own, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodePrefix + node, Labels: map[string]string{nodeLabel: ""},
		Annotations: map[string]string{nodeKey: `{"read":0}`}}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NowMicro())}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(loadbalancer.Cycle / 2)
			own.Spec.RenewTime = ptr.To(metav1.NowMicro())
			if next, err := leases.Update(ctx, own, metav1.UpdateOptions{}); err == nil {
				own = next
			}
		}
	})
	c.Cleanup(func() {
		renewing.Wait()
		_ = leases.Delete(context.Background(), nodePrefix+node, metav1.DeleteOptions{})
	})
}

// In a sequence of changes, with nodes that lose the API and agents that end, no two Services have one address in their status at any time,
// and in the end each Service that can have an address has one of the pool.
func TestGeneratedSequence(t *testing.T) {
	c := newRealCluster(t)
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	nodes := []string{"gen1", "gen2", "gen3"}
	for _, n := range nodes {
		c.AddNode(t, n, true)
		c.start(n)
	}
	var mu sync.Mutex
	var twice []string
	watched, stop := context.WithCancel(t.Context())
	defer stop()
	w, err := c.api.CoreV1().Services("default").Watch(watched, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		have := map[string]string{}
		for e := range w.ResultChan() {
			s, ok := e.Object.(*corev1.Service)
			if !ok {
				continue
			}
			if delete(have, s.Name); e.Type == "DELETED" || inStatus(s) == "" {
				continue
			}
			for other, a := range have {
				if a == inStatus(s) {
					mu.Lock()
					twice = append(twice, fmt.Sprintf("%s and %s have %s", other, s.Name, a))
					mu.Unlock()
				}
			}
			have[s.Name] = inStatus(s)
		}
	}()
	first, names := 20, map[string]bool{}
	resize := func() {
		first = 20 + random.IntN(3)
		c.pools(map[string]string{"default": fmt.Sprintf("198.51.100.%d-198.51.100.25", first)})
	}
	resize()
	for step := range 25 {
		node := nodes[random.IntN(len(nodes))]
		switch random.IntN(6) {
		case 0, 1:
			name := fmt.Sprint("gen-", step)
			names[name] = true
			c.service(name)
		case 2:
			for name := range names {
				c.remove(name)
				delete(names, name)
				break
			}
		case 3:
			resize()
		case 4:
			c.agents[node].cut.Store(!c.agents[node].cut.Load())
		case 5:
			c.agents[node].end()
			<-c.agents[node].done
			c.start(node)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	for _, a := range c.agents {
		a.cut.Store(false)
	}
	c.eventually(func() (string, bool) {
		used := map[string]string{}
		for name := range names {
			a := c.addresses(name)
			if a == "" {
				continue
			}
			number := netip.MustParseAddr(a).As4()[3]
			if used[a] != "" || int(number) < first || number > 25 || c.node(a) == "" {
				return fmt.Sprintf("%s has %s, which %q has, at %q", name, a, used[a], c.node(a)), false
			}
			used[a] = name
		}
		return fmt.Sprintf("%d of %d Services have an address: %v", len(used), len(names), used), len(used) == min(len(names), 26-first)
	}, "one for each")
	mu.Lock()
	defer mu.Unlock()
	if len(twice) > 0 {
		t.Error(strings.Join(twice, "\n"))
	}
	for name := range names {
		c.remove(name)
	}
	c.pools(nil)
}
