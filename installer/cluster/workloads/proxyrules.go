package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
	"airlift/internal/dialer"
)

const (
	// proxyAnswer limits a request to a kube-proxy. It has nothing to compute.
	proxyAnswer = 2 * time.Second
	// proxyRequests is how many kube-proxies are asked at the same time.
	proxyRequests = 16
	// sliceEndpoints is how many endpoints the API allows in an EndpointSlice.
	sliceEndpoints = 1000
)

// WaitForProxyRules waits until the kube-proxy of each node has written rules that are up to date.
// After an API server was away, each kube-proxy tries again after a pause that grows up to 60 s (30 s and
// a random part; client-go's reflector). If the new API server does not have its last version, it pauses
// once more. Until then it sends requests to pods that have ended.
//
// It creates a Service of type LoadBalancer with an endpoint on each node, and deletes it. No load
// balancer has the class of the Service, so it gets no address. A kube-proxy serves a health check of such
// a Service, with the number of endpoints on its node, after it has written the rules (its
// healthcheck/service_health.go). Its iptables rules accept that port. Only nodes are checked whose
// kube-proxy is Ready, and whose address has the IP family of the Service. A client that may not create
// Services does not wait.
func WaitForProxyRules(ctx context.Context, api kubernetes.Interface, with wait.Limit) error {
	proxies, err := readyProxies(ctx, api)
	if apierrors.IsForbidden(err) || err == nil && len(proxies) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the pods of kube-proxy: %w", err)
	}
	defer RemoveProbes(context.WithoutCancel(ctx), api)
	probe, err := createProxyProbe(ctx, api, proxies)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating a Service, to check that kube-proxy is up to date: %w", err)
	}
	w := wait.For{
		What: "kube-proxy to be up to date on all nodes", Short: "kube-proxy's rules",
		Hint:    "if a firewall closes the node ports between nodes, this cannot be seen, and the time was enough; otherwise see kube-proxy's log on these nodes",
		Timeout: with.Timeout, Report: with.Report,
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		probe.ask(ctx)
		return len(probe.nodes) == 0, probe.state(), nil
	})
}

// readyProxies returns the address of each node whose kube-proxy is Ready.
func readyProxies(ctx context.Context, api kubernetes.Interface) (map[string]netip.Addr, error) {
	pods, err := wait.List(ctx, api.CoreV1().Pods(metav1.NamespaceSystem).List, metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
	if err != nil {
		return nil, err
	}
	nodes := map[string]netip.Addr{}
	for _, p := range pods.Items {
		address, err := netip.ParseAddr(p.Status.HostIP)
		if ready, _ := PodReady(&p); ready && err == nil && p.DeletionTimestamp == nil {
			nodes[p.Spec.NodeName] = address
		}
	}
	return nodes, nil
}

// createProxyProbe creates the Service and its EndpointSlices. The endpoints have the addresses of
// the nodes; nothing connects to them.
func createProxyProbe(ctx context.Context, api kubernetes.Interface, nodes map[string]netip.Addr) (*proxyProbe, error) {
	class, without := "airlift.dev/none", false
	service, err := createProbe(ctx, api, corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, AllocateLoadBalancerNodePorts: &without,
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
	})
	if err != nil {
		return nil, err
	}
	ipv6 := len(service.Spec.IPFamilies) > 0 && service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	family := discoveryv1.AddressTypeIPv4
	if ipv6 {
		family = discoveryv1.AddressTypeIPv6
	}
	probe := &proxyProbe{service: service.Name, port: service.Spec.HealthCheckNodePort, nodes: map[string]netip.Addr{}, last: map[string]string{}}
	var endpoints []discoveryv1.Endpoint
	for name, address := range nodes {
		if address.Is6() == ipv6 { // the API refuses others
			probe.nodes[name] = address
			endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: &name})
		}
	}
	number, yes := int32(1), true
	for some := range slices.Chunk(endpoints, sliceEndpoints) {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName:    service.Name + "-",
				Labels:          map[string]string{probeLabel: "", discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "airlift.dev"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: &yes}},
			},
			AddressType: family,
			Endpoints:   some,
			Ports:       []discoveryv1.EndpointPort{{Port: &number}},
		}
		if err := wait.Retry(ctx, func() error {
			_, err := api.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, slice, metav1.CreateOptions{})
			return err
		}); err != nil {
			return nil, err
		}
	}
	return probe, nil
}

// A proxyProbe is a Service whose health check shows that a kube-proxy is up to date.
type proxyProbe struct {
	service string
	port    int32
	nodes   map[string]netip.Addr // that are not up to date yet, by name
	last    map[string]string     // why, by name
}

// ask sends a health check to each kube-proxy that was not up to date before.
func (p *proxyProbe) ask(ctx context.Context) {
	var (
		lock  sync.Mutex
		all   sync.WaitGroup
		limit = make(chan struct{}, proxyRequests)
		why   = map[string]error{}
	)
	for name, address := range p.nodes {
		all.Go(func() {
			limit <- struct{}{}
			err := p.check(ctx, address)
			<-limit
			lock.Lock()
			defer lock.Unlock()
			why[name] = err
		})
	}
	all.Wait()
	for name, err := range why {
		if err == nil {
			delete(p.nodes, name)
			continue
		}
		p.last[name] = err.Error()
	}
}

// check returns nil if the kube-proxy of a node has the Service and its endpoint on the node.
func (p *proxyProbe) check(ctx context.Context, node netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, proxyAnswer)
	defer cancel()
	url := "http://" + net.JoinHostPort(node.String(), strconv.Itoa(int(p.port)))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: dialer.Dial}).RoundTrip(req) // without a proxy
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Service        struct{ Name string }
		LocalEndpoints int
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil || json.Unmarshal(body, &answer) != nil || answer.Service.Name != p.service {
		return fmt.Errorf("%s is not served by kube-proxy", url)
	}
	if answer.LocalEndpoints == 0 {
		return errors.New("it has the Service, but not its endpoints")
	}
	return nil
}

// state names the nodes that are not up to date.
func (p *proxyProbe) state() string {
	var list []string
	for name := range p.nodes {
		list = append(list, fmt.Sprintf("node %s: %s", name, p.last[name]))
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}
