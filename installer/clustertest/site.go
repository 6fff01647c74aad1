package clustertest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster"
	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/installer/config"
	"airlift/installer/loadbalancer/agent"
)

// maxPeers is how many other nodes each node asks. A larger cluster has too many pairs for one test.
const maxPeers = 60

// A site is what the test reads of the cluster before it begins.
type site struct {
	nodes  []corev1.Node
	names  []string
	tested []corev1.Node // those that are Ready

	system     []corev1.Pod // of kube-system and the pod network
	dnsName    string       // that DNS resolves
	dnsService []string     // addresses of the Service of DNS
	dnsPods    []corev1.Pod
	dnsReady   int
	kubernetes []string          // addresses of the Service kubernetes
	api        map[string]string // "host:port" of the API servers, by node
	endpoints  []endpointOf      // other ways to the API
	registry   *config.EmbeddedRegistry
	class      *storagev1.StorageClass // the default one; nil if there is none
	hostPort   int32
	balancer   *agent.State // of the add-on load-balancer, if it has a default pool
}

// An endpointOf is a way to the API that is not one API server.
type endpointOf struct{ via, address, name string }

// Namespaces with the pods of the system, and flannel's.
const flannelNamespace = "kube-flannel"

// read reads the cluster.
func (t *Test) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s := &site{api: map[string]string{}}
	t.site, t.nonce, t.servers, t.failed = s, rand.String(26), map[string]*corev1.Pod{}, map[string]string{}
	nodes, err := t.Client.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if os := n.Labels[corev1.LabelOSStable]; os != "" && os != "linux" {
			t.note("%s is not tested: it runs %s", n.Name, os)
			continue
		}
		s.nodes, s.names = append(s.nodes, n), append(s.names, n.Name)
		ready, why := cluster.NodeReady(&n)
		t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.NodeReady, From: n.Name, OK: ready, Detail: why})
		switch {
		case !ready:
			t.Report("%s is not Ready: no pod is started there: %s", n.Name, why)
		default:
			s.tested = append(s.tested, n)
			if n.Spec.Unschedulable {
				t.note("%s is cordoned; it was tested all the same", n.Name)
			}
		}
	}
	if len(s.tested) == 0 {
		t.note("no node is Ready, so no pod was started")
	}
	for _, read := range []func(context.Context) error{t.readSystem, t.readDNS, t.readAPI, t.readRegistry, t.readStorage, t.readBalancer} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readSystem reads the pods of the system, and finds a port for hostPort that no pod has.
func (t *Test) readSystem(ctx context.Context) error {
	pods, err := t.Client.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	used := map[int32]bool{}
	for _, p := range pods.Items {
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				used[port.HostPort] = true
			}
		}
		if p.Namespace != metav1.NamespaceSystem && p.Namespace != flannelNamespace && p.Namespace != agent.Namespace || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		t.site.system = append(t.site.system, p)
		state := stateOf(&p)
		t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.Component, From: p.Spec.NodeName, Via: workload(&p), OK: state.ready, Detail: cmp.Or(state.why, "not ready")})
	}
	for t.site.hostPort = probe.OpenPort; used[t.site.hostPort]; {
		t.site.hostPort++
	}
	return nil
}

// workload is the name of what created a pod: of a DaemonSet or a Deployment, or of a static pod.
func workload(p *corev1.Pod) string {
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return p.Name
	case owner.Kind == "ReplicaSet":
		if i := strings.LastIndexByte(owner.Name, '-'); i > 0 {
			return owner.Name[:i]
		}
	case owner.Kind == "Node":
		return strings.TrimSuffix(p.Name, "-"+owner.Name)
	}
	return owner.Name
}

// dnsLabel is the label of the Service and of the pods of DNS. The name of the Service differs between tools.
const dnsLabel, dnsPort = "kube-dns", "53"

func (t *Test) readDNS(ctx context.Context) error {
	s := t.site
	domain := config.DefaultDNSDomain
	if fetched, err := t.Client.FetchConfig(ctx); err != nil { // a cluster of another tool may have none
		t.note("the control-plane endpoint is not tested, and the domain of DNS is taken to be %s: the configuration of the cluster could not be read: %v", domain, err)
	} else {
		domain = cmp.Or(fetched.Cluster.Networking.DNSDomain, domain)
		if endpoint := fetched.Cluster.ControlPlaneEndpoint; endpoint != "" {
			if host, port, err := config.SplitEndpoint(endpoint, config.DefaultBindPort); err == nil {
				s.endpoints = append(s.endpoints, endpointOf{"control-plane endpoint " + endpoint, net.JoinHostPort(host, strconv.Itoa(port)), host})
			}
		}
	}
	s.dnsName = "kubernetes.default.svc." + domain + "."
	services, err := t.Client.API.CoreV1().Services(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=" + dnsLabel})
	if err != nil {
		return fmt.Errorf("reading the Service of DNS: %w", err)
	}
	if len(services.Items) == 0 {
		t.note("DNS is not tested: kube-system has no Service with the label k8s-app=%s", dnsLabel)
		s.dnsName = ""
		return nil
	}
	service := &services.Items[0]
	s.dnsService = addressesOf(service)
	slicesOf, err := t.Client.API.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return fmt.Errorf("reading the endpoints of DNS: %w", err)
	}
	for _, slice := range slicesOf.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				s.dnsReady++
			}
		}
	}
	for _, p := range s.system {
		switch {
		case p.Labels["k8s-app"] != dnsLabel || p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning:
		case s.isTested(p.Spec.NodeName):
			s.dnsPods = append(s.dnsPods, p)
		case stateOf(&p).ready: // it is an endpoint of the Service until Kubernetes notices
			t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.DNSPod, To: p.Spec.NodeName, Detail: "its node is not Ready"})
		}
	}
	o := diagnosis.Observation{Kind: diagnosis.DNSPods, OK: s.dnsReady > 0}
	if !o.OK {
		o.Detail = fmt.Sprintf("the Service kube-system/%s has no endpoint, and %d pods run", service.Name, len(s.dnsPods))
	}
	t.seen = append(t.seen, o)
	return nil
}

func (s *site) isTested(node string) bool {
	return slices.ContainsFunc(s.tested, func(n corev1.Node) bool { return n.Name == node })
}

// addressesOf returns the addresses of a Service, one of each family.
func addressesOf(s *corev1.Service) (list []string) {
	for _, a := range s.Spec.ClusterIPs {
		if a != corev1.ClusterIPNone && a != "" {
			list = append(list, a)
		}
	}
	return list
}

func (t *Test) readAPI(ctx context.Context) error {
	s := t.site
	service, err := t.Client.API.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Service kubernetes: %w", err)
	}
	s.kubernetes = addressesOf(service)
	byNode, err := cluster.NodesOfAPIServers(ctx, t.Client.API)
	if err != nil {
		return err
	}
	for node, address := range byNode {
		if _, err := netip.ParseAddrPort(address); err == nil && slices.Contains(s.names, node) {
			s.api[node] = address
		}
	}
	is, err := t.Client.Endpoint(ctx)
	if err != nil {
		return err
	}
	port := strconv.Itoa(config.DefaultBindPort)
	for _, address := range s.api {
		_, port, _ = net.SplitHostPort(address) // it was parsed
	}
	for _, vip := range is.VIPs {
		s.endpoints = append(s.endpoints, endpointOf{"virtual address " + vip, net.JoinHostPort(vip, port), vip})
	}
	if is.Balancer {
		loopback := "127.0.0.1"
		if a, err := netip.ParseAddr(cmp.Or(append(s.kubernetes, "")[0], loopback)); err == nil && a.Is6() {
			loopback = "::1"
		}
		s.endpoints = append(s.endpoints, endpointOf{"balancer of the node", net.JoinHostPort(loopback, strconv.Itoa(config.BalancerPort)), loopback})
	}
	seen := map[string]bool{}
	s.endpoints = slices.DeleteFunc(s.endpoints, func(e endpointOf) bool {
		again := seen[e.address]
		seen[e.address] = true
		return again
	})
	return nil
}

func (t *Test) readRegistry(ctx context.Context) error {
	r, err := t.Client.Registry(ctx)
	if err == nil && r != nil && r.Used {
		t.site.registry = r
	}
	return err
}

// readStorage finds the StorageClass of claims that name none. Of several default ones, Kubernetes uses the newest.
func (t *Test) readStorage(ctx context.Context) error {
	list, err := t.Client.API.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing StorageClasses: %w", err)
	}
	classes := slices.DeleteFunc(list.Items, func(c storagev1.StorageClass) bool {
		return c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" && c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true"
	})
	if len(classes) == 0 {
		t.note("volumes are not tested: there is no default StorageClass")
		return nil
	}
	class := slices.MinFunc(classes, func(a, b storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	volumes, err := t.Client.API.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing PersistentVolumes: %w", err)
	}
	free := slices.IndexFunc(volumes.Items, func(v corev1.PersistentVolume) bool {
		return v.Spec.StorageClassName == class.Name && v.Spec.ClaimRef == nil
	})
	switch {
	case ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) != corev1.PersistentVolumeReclaimDelete:
		t.note("volumes are not tested: the default StorageClass %s keeps volumes, so each test would leave one", class.Name)
	case class.Provisioner == "kubernetes.io/no-provisioner":
		t.note("volumes are not tested: nothing creates volumes of the default StorageClass %s", class.Name)
	case free >= 0:
		t.note("volumes are not tested: the default StorageClass %[2]s has the free PersistentVolume %[1]s, and the test would use it up", volumes.Items[free].Name, class.Name)
	default:
		t.site.class = &class
	}
	return nil
}

// pauseImage is in the names of the images that every node has.
const pauseImage = "/pause:"

// image returns an image that a node has, "" if it reports none.
func image(n *corev1.Node) string {
	found := ""
	for _, i := range n.Status.Images {
		for _, name := range i.Names {
			if strings.Contains(name, "@") {
				continue
			}
			if strings.Contains(name, pauseImage) {
				return name
			}
			found = cmp.Or(found, name)
		}
	}
	return found
}

// askers returns the names of the nodes that ask a node, itself included.
func (s *site) askers(node string) (names []string) {
	begin := slices.Index(s.names, node)
	for i := range min(len(s.names), maxPeers+1) {
		names = append(names, s.names[(begin-i+len(s.names))%len(s.names)])
	}
	return names
}

// peers returns the nodes that a node asks: all, or the next ones in a large cluster.
func (t *Test) peers(node string) (list []probe.Peer) {
	s := t.site
	begin := slices.Index(s.names, node)
	for i := range min(len(s.nodes), maxPeers+1) {
		n := s.nodes[(begin+i)%len(s.nodes)]
		p := probe.Peer{Node: n.Name, KubeletPort: n.Status.DaemonEndpoints.KubeletEndpoint.Port, Ranges: n.Spec.PodCIDRs}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				p.Hosts = append(p.Hosts, a.Address)
			}
		}
		if pod := t.servers[n.Name]; pod != nil {
			for _, ip := range pod.Status.PodIPs {
				p.Pods = append(p.Pods, ip.IP)
			}
		}
		list = append(list, p)
	}
	if len(s.nodes) > maxPeers+1 {
		t.note("each node asked %d others, not all %d", maxPeers, len(s.nodes)-1)
	}
	return list
}
