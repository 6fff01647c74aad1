package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"airlift/builder/addons"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/loadbalancer"
	"airlift/installer/loadbalancer/agent"
	"airlift/installer/payload"
	"airlift/installer/status"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testbundle"
)

// Commands at sites whose files have the add-on load-balancer.
const (
	balancerApply  = "apply with the load balancer"
	balancerUndo   = "apply undo load-balancer"
	balancerRemove = "apply remove load-balancer"

	poolsFew     = "the user creates pools with two addresses"
	poolsMany    = "the user creates two pools"
	poolsMoved   = "the user gives the addresses to another pool"
	poolsOther   = "the user creates pools with other addresses"
	poolsOverlap = "the user creates pools that overlap"
	poolsOverAPI = "the user creates a pool with the endpoint"
	poolsOverNew = "the user creates a pool with the next endpoint"
	poolsOnNodes = "the user creates a pool with the addresses of hosts"
	poolsGone    = "the user deletes the pools"

	serviceAny     = "the user creates a Service"
	serviceWants   = "the user creates a Service with an address"
	serviceInPool  = "the user creates a Service in a pool"
	serviceLocal   = "the user creates a Service with externalTrafficPolicy Local"
	serviceGone    = "the user deletes a Service"
	serviceChanges = "the user changes the type of a Service"

	nodeCordon  = "kubectl cordon"
	nodeExclude = "kubectl label node: no addresses"
	nodeBack    = "kubectl uncordon, without the label"
	hostReboots = "the host loses its power for a minute"
	podKilled   = "the pod of the load balancer is killed"
	// nodeAlone also cordons the node meanwhile, so that its addresses move.
	nodeAlone = "the load balancer of a node reaches no API server for a while"
	// leaseDamaged also deletes the Lease, as the status asks.
	leaseDamaged = "the Lease of the assignments is damaged, and deleted"
)

// pools are the ConfigMaps of the user, by their commands.
var pools = map[string]map[string]string{
	poolsFew:     {"default": "10.0.0.102-10.0.0.103"},
	poolsMany:    {"default": "10.0.0.102-10.0.0.107", "web": "10.0.0.110, 10.0.0.112/30"},
	poolsMoved:   {"web": "10.0.0.102-10.0.0.103", "default": "10.0.0.104-10.0.0.105"},
	poolsOther:   {"default": "10.0.0.120-10.0.0.122"},
	poolsOverlap: {"default": "10.0.0.102-10.0.0.104", "web": "10.0.0.104-10.0.0.106"},
	poolsOverAPI: {"default": "10.0.0.98-10.0.0.103"},
	poolsOverNew: {"default": "10.0.0.101-10.0.0.104"},
	poolsOnNodes: {"default": "10.0.0.2-10.0.0.5"},
	poolsGone:    nil,
}

// balancerCommands are drawn at sites with the load balancer.
var balancerCommands = slices.Concat(slices.Sorted(maps.Keys(pools)), []string{
	balancerApply, balancerApply, balancerUndo, balancerRemove, poolsMany, poolsMany, serviceAny, serviceAny, serviceAny, serviceAny, serviceWants, serviceWants, serviceInPool, serviceInPool, serviceLocal, serviceLocal, serviceGone,
	serviceChanges, nodeCordon, nodeExclude, nodeBack, hostReboots, podKilled, nodeAlone, nodeAlone, leaseDamaged,
})

// hasBalancer reports whether a sequence needs files with the load balancer.
func (s Sequence) hasBalancer() bool {
	return slices.ContainsFunc(s, func(c Command) bool { return slices.Contains(balancerCommands, c.Name) })
}

const (
	poolsKey   = "configmaps/" + agent.Namespace + "/" + agent.PoolsName
	podPrefix  = "pods/" + agent.Namespace + "/" + agent.Namespace + "-"
	podToken   = "pod of "
	pauseImage = "registry.k8s.io/pause:3.10.1"
)

// addBalancer adds the add-on to a file.
func addBalancer(t *testing.T, b *testbundle.Images, version string) {
	t.Helper()
	list, err := release.AddOns(version)
	if err != nil {
		t.Fatal(err)
	}
	a := list[slices.IndexFunc(list, func(a release.AddOn) bool { return a.Name == release.LoadBalancer })]
	a.Image = pauseImage
	text, err := addons.Objects(a)
	if err != nil {
		t.Fatal(err)
	}
	m := bundle.SiteManifest{Name: a.Name, AddOn: a.Version}
	b.Manifest.Manifests = append(b.Manifest.Manifests, m)
	b.Manifest.Entries = append(b.Manifest.Entries, bundle.Entry{Name: m.Entry(), Size: int64(len(text)), SHA256: testbundle.Sum(text)})
	b.Content[m.Entry()] = text
}

// A speaker is the process of the load balancer on a host, in its pod.
type speaker struct {
	host       *Host
	uid        string // of the Pod
	sandbox    string
	ca         string
	executable string
	created    time.Time
	run        *run
	end        context.CancelCauseFunc
	ended      chan struct{}
	ends       bool
}

func (p *speaker) name() string { return agent.Namespace + "-" + p.host.Name }

// stop ends the process; with agent.ErrRestart, another one goes on. The caller holds w.mu.
func (p *speaker) stop(cause error) {
	if !p.ends {
		p.ends = true
		p.host.world.note("%s: the load balancer ends: %v", p.host.Name, cause)
		p.end(cause)
	}
}

// errEnded is the end of a pod.
var errEnded = errors.New("its pod ends")

// cutSpeaker ends the process as a power cut does; the host boots for 20 seconds. The caller holds w.mu.
func (h *Host) cutSpeaker() {
	h.boots = time.Now().Add(20 * time.Second)
	p := h.speaker
	if p == nil {
		return
	}
	p.run.dead = true
	for c := range h.world.conns {
		if c.run == p.run {
			_ = c.Conn.Close()
		}
	}
	p.stop(errors.New("no power"))
}

// endSpeaker does the same at a host that does not boot, and waits for the end.
func (h *Host) endSpeaker() {
	h.world.mu.Lock()
	p, boots := h.speaker, h.boots
	h.cutSpeaker()
	h.boots = boots
	h.world.mu.Unlock()
	if p != nil {
		<-p.ended
	}
}

// stopSpeaker ends the pod with this sandbox.
func (h *Host) stopSpeaker(sandbox string) {
	h.world.mu.Lock()
	p := h.speaker
	if p == nil || p.sandbox != sandbox {
		h.world.mu.Unlock()
		return
	}
	p.stop(errEnded)
	h.world.mu.Unlock()
	<-p.ended
	h.world.mu.Lock()
	if h.speaker == p {
		h.speaker = nil
	}
	h.world.mu.Unlock()
}

// syncSpeaker does what the kubelet does with the pod of the load balancer.
func (h *Host) syncSpeaker() {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p := h.speaker
	if p != nil {
		select {
		case <-p.ended:
			h.speaker, p = nil, nil
		default:
		}
	}
	w.dropDead(p)
	c := w.api()
	if c == nil || time.Now().Before(h.boots) || h.off || !h.unit("kubelet.service").active || h.endRuntime == nil || h.kubeletReady() != nil || !h.registers(c) {
		return
	}
	pod := c.object(podPrefix + h.Name)
	uid, ca, executable := text(pod, "metadata", "uid"), text(c.object("configmaps/"+agent.Namespace+"/kube-root-ca.crt"), "data", "ca.crt"), h.read(commandAirlift)
	switch {
	case p == nil:
	case p.uid != uid:
		p.stop(errEnded)
		return
	case ca != "" && p.ca != ca || executable != "" && p.executable != executable:
		p.stop(agent.ErrRestart)
		return
	}
	if p != nil || pod == nil || ca == "" || executable == "" || !h.store.has(pauseImage) || c.data["serviceaccounts/"+agent.Namespace+"/"+agent.Namespace] == "" {
		return
	}
	h.nextID++
	p = &speaker{host: h, uid: uid, sandbox: fmt.Sprintf("sandbox-%s-%d", h.Name, h.nextID), ca: ca, executable: executable, created: time.Now(), run: &run{host: h}, ended: make(chan struct{})}
	ctx, end := context.WithCancelCause(w.ctx)
	p.end, p.run.ctx, p.run.cancel = end, ctx, func() { end(nil) }
	api, err := kubernetes.NewForConfig(&rest.Config{Host: "https://10.96.0.1:443", BearerToken: podToken + agent.Namespace + "/" + agent.Namespace, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(ca)}, Dial: p.dial})
	if err != nil {
		w.violateLocked("%v", err)
		return
	}
	h.speaker = p
	w.note("%s: the load balancer begins", h.Name)
	w.done.Go(func() {
		defer close(p.ended)
		_ = agent.Run(ctx, agent.Options{Node: h.Name, API: api, Log: slog.New(slog.NewTextHandler(noteWriter{h}, nil)), Open: p.open,
			Interfaces: func() ([]agent.Interface, error) {
				return []agent.Interface{{Subnets: []netip.Prefix{subnet}}}, nil
			}})
	})
}

// dropDead ends the connections to API servers without an etcd, which the kubelet restarts because they are not live. The caller holds w.mu.
func (w *World) dropDead(p *speaker) {
	if p == nil {
		return
	}
	for c := range w.conns {
		for _, h := range w.hosts {
			if c.run == p.run && strings.HasPrefix(c.to.address, h.IP+":") && !h.works() {
				_ = c.Conn.Close()
			}
		}
	}
}

// subnet is the subnet of all hosts.
var subnet = netip.MustParsePrefix("10.0.0.0/24")

// dial connects to the first API server that accepts. Those without an etcd come last.
func (p *speaker) dial(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	w := p.host.world
	w.mu.Lock()
	hosts := slices.Clone(w.hosts)
	slices.SortStableFunc(hosts, func(a, b *Host) int {
		return cmp.Compare(map[bool]int{true: -1}[a.works()], map[bool]int{true: -1}[b.works()])
	})
	alone := time.Now().Before(p.host.alone)
	w.mu.Unlock()
	for _, h := range hosts {
		if alone {
			return nil, errors.New("no API server can be reached")
		}
		if conn, err = w.dial(ctx, p.run, p.host, network, net.JoinHostPort(h.IP, "6443")); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// A lan carries what nodes announce and ask.
type lan struct {
	mu       sync.Mutex // nothing else is locked while it is
	segments []*segment
	heard    map[netip.Addr][]announcement // the last two of other nodes, and the last one
}

type announcement struct {
	by *Host
	at time.Time
}

// A segment is the network of a host, for one address.
type segment struct {
	speaker *speaker
	address netip.Addr
	answer  func(prober net.HardwareAddr) bool
	packets chan packet
	closed  chan struct{}
	once    sync.Once
}

// A packet claims an address, or asks for it.
type packet struct {
	from  *segment
	probe bool
}

// open is neighbours.Open in the network of the world.
func (p *speaker) open(_ *net.Interface, a netip.Addr, answer func(prober net.HardwareAddr) bool) (neighbours.Segment, error) {
	s := &segment{speaker: p, address: a, answer: answer, packets: make(chan packet, 100), closed: make(chan struct{})}
	n := &p.host.world.network
	n.mu.Lock()
	n.segments = append(n.segments, s)
	n.mu.Unlock()
	return s, nil
}

func (s *segment) mac() net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, 0, byte(slices.Index(s.speaker.host.world.hosts, s.speaker.host) + 1)}
}

// send sends a packet to all hosts that listen for the address.
func (s *segment) send(p packet, to ...*segment) error {
	n := &s.speaker.host.world.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.segments {
		if other.address == s.address && other.speaker.host != s.speaker.host && (len(to) == 0 || other == to[0]) {
			select {
			case other.packets <- p:
			default:
			}
		}
	}
	return nil
}

func (s *segment) Announce() error {
	w := s.speaker.host.world
	w.network.announced(w, s.address, s.speaker.host)
	return s.send(packet{from: s})
}

func (s *segment) Solicit() error { return s.send(packet{from: s, probe: true}) }

func (s *segment) Ask() error { return nil }

func (s *segment) Hear() (net.HardwareAddr, error) {
	for {
		select {
		case <-s.closed:
			return nil, net.ErrClosed
		case p := <-s.packets:
			if !p.probe {
				return p.from.mac(), nil
			}
			if s.answer(p.from.mac()) {
				_ = s.send(packet{from: s}, p.from)
			}
		}
	}
}

func (s *segment) Close() error {
	s.once.Do(func() {
		close(s.closed)
		n := &s.speaker.host.world.network
		n.mu.Lock()
		n.segments = slices.DeleteFunc(n.segments, func(o *segment) bool { return o == s })
		n.mu.Unlock()
	})
	return nil
}

// together is the time in which an address cannot move to another node and back.
const together = 600 * time.Millisecond

// announced records that two nodes announce an address at the same time.
func (n *lan) announced(w *World, a netip.Addr, by *Host) {
	n.mu.Lock()
	if n.heard == nil {
		n.heard = map[netip.Addr][]announcement{}
	}
	list := n.heard[a]
	now := time.Now()
	both := len(list) == 2 && list[0].by == by && list[1].by != by && now.Sub(list[0].at) < together
	if len(list) > 0 && list[len(list)-1].by == by {
		list[len(list)-1].at = now
	} else {
		list = append(list, announcement{by, now})
		list = list[max(0, len(list)-2):]
	}
	n.heard[a] = list
	n.mu.Unlock()
	if both {
		w.violate("%s and another node announce %s at the same time", by.Name, a)
	}
}

// speakers returns the hosts that answer for each address. The caller does not hold w.mu.
func (n *lan) speakers() map[netip.Addr][]string {
	n.mu.Lock()
	segments := slices.Clone(n.segments)
	n.mu.Unlock()
	list := map[netip.Addr][]string{}
	for _, s := range segments {
		if s.answer(nil) {
			list[s.address] = append(list[s.address], s.speaker.host.Name)
		}
	}
	return list
}

// applyBalancer applies the add-on of a file, its version before, or removes it.
func (r *run) applyBalancer(b *payload.Bundle, command string) (string, error) {
	return r.changing(command, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		o := site.ApplyOptions{Undo: command == balancerUndo, Remove: command == balancerRemove}
		o.Kubeconfig = h.Path(config.KubernetesDir + "/admin.conf")
		if o.Undo || o.Remove {
			o.Names = []string{release.LoadBalancer}
		}
		run := site.NewApply(b, o, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// useBalancer does what a user of the load balancer does with kubectl. Without an API, it does nothing.
func (s *Site) useBalancer(c Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := s.api()
	if cluster == nil {
		return
	}
	metadata := func(namespace, name string) map[string]any {
		return map[string]any{"name": name, "namespace": namespace, "annotations": map[string]any{}}
	}
	service := "services/default/web" + fmt.Sprint(c.Host)
	create := func(annotation, value string) {
		m := metadata("default", "web"+fmt.Sprint(c.Host))
		if annotation != "" {
			m["annotations"] = map[string]any{annotation: value}
		}
		if cluster.data[service] == "" {
			cluster.store(service, map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": m,
				"spec": map[string]any{"type": "LoadBalancer", "clusterIP": "10.96.0." + fmt.Sprint(10+c.Host), "ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack"}})
		}
	}
	data, isPools := pools[c.Name]
	node := "nodes/" + s.hosts[c.Host-1].Name
	switch {
	case isPools && data == nil:
		cluster.remove(poolsKey)
	case isPools && cluster.data["namespaces/"+agent.Namespace] != "":
		text := map[string]any{}
		for name, list := range data {
			text[name] = list
		}
		cluster.store(poolsKey, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(agent.Namespace, agent.PoolsName), "data": text})
	case c.Name == serviceAny:
		create("", "")
	case c.Name == serviceWants:
		create(loadbalancer.AddressAnnotation, fmt.Sprintf("10.0.0.%d", 101+c.File))
	case c.Name == serviceInPool:
		create(loadbalancer.PoolAnnotation, "web")
	case c.Name == serviceLocal:
		create("", "")
		cluster.update(service, func(o map[string]any) { set(o, "Local", "spec", "externalTrafficPolicy") })
	case c.Name == serviceGone:
		cluster.remove(service)
	case c.Name == serviceChanges && cluster.data[service] != "": // the API server removes the addresses
		cluster.update(service, func(o map[string]any) {
			set(o, "ClusterIP", "spec", "type")
			delete(o, "status")
		})
	case c.Name == nodeCordon:
		cluster.update(node, func(o map[string]any) { set(o, true, "spec", "unschedulable") })
	case c.Name == nodeExclude:
		cluster.update(node, func(o map[string]any) {
			set(o, "", "metadata", "labels", "node.kubernetes.io/exclude-from-external-load-balancers")
		})
	case c.Name == nodeBack:
		cluster.update(node, func(o map[string]any) {
			spec, _ := o["spec"].(map[string]any)
			delete(spec, "unschedulable")
			labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
			delete(labels, "node.kubernetes.io/exclude-from-external-load-balancers")
		})
	}
}

// damageLease writes assignments that are no JSON, and removes the Lease when the status asks for that.
func (s *Site) damageLease(r *run) error {
	const lease = "leases/" + agent.Namespace + "/assignments"
	s.mu.Lock()
	c := s.api()
	if c == nil || c.data[lease] == "" {
		s.mu.Unlock()
		return nil
	}
	c.update(lease, func(o map[string]any) { set(o, "no JSON", "metadata", "annotations", "airlift.dev/assignments") })
	s.mu.Unlock()
	time.Sleep(10 * time.Second)
	found, err := r.balancerStatus()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api() == c && c.data[lease] != "" && err == nil && r.host.works() && !slices.ContainsFunc(found.Warnings, func(p status.Problem) bool { return p.Name == status.AssignmentsDamaged }) {
		return fmt.Errorf("the status of %s does not report that the assignments are damaged: %+v, %v", r.host.Name, found.Warnings, found.Unknown)
	}
	c.remove(lease)
	return nil
}

// balancerStatus is what status reports of the load balancer.
func (r *run) balancerStatus() (*status.Status, error) {
	h, err := host.Open(r.host.Root)
	if err != nil {
		return nil, err
	}
	r.use(h)
	reader := status.Reader{Host: h, Only: []string{"loadBalancer"}}
	return reader.Read(r.ctx)
}

// disturbNode takes the power from a host for a while, or kills its pod.
func (s *Site) disturbNode(h *Host, command string) {
	if command == podKilled {
		boots := h.boots
		s.mu.Lock()
		h.cutSpeaker()
		h.boots = boots
		s.mu.Unlock()
		return
	}
	if command == nodeAlone {
		s.mu.Lock()
		h.alone = time.Now().Add(20 * time.Second)
		for c := range s.conns {
			if h.speaker != nil && c.run == h.speaker.run {
				_ = c.Conn.Close()
			}
		}
		if c := s.api(); c != nil {
			c.update("nodes/"+h.Name, func(o map[string]any) { set(o, true, "spec", "unschedulable") })
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		return
	}
	h.powerOff()
	h.boot()
}

// spread returns the addresses of a pool.
func spread(text string) (list []netip.Addr) {
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		first, last, isRange := strings.Cut(field, "-")
		p, err := netip.ParsePrefix(field)
		switch {
		case err == nil:
			for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
				list = append(list, a)
			}
		case isRange:
			for a := netip.MustParseAddr(first); a.Compare(netip.MustParseAddr(last)) <= 0; a = a.Next() {
				list = append(list, a)
			}
		default:
			list = append(list, netip.MustParseAddr(field))
		}
	}
	return list
}

// A balancerState is what Services, pools and nodes are.
type balancerState struct {
	pools    map[string][]netip.Addr // nil if there are none
	refused  bool
	services map[string]balancedService
	nodes    map[string]int // that can announce: 0, or 1 if a node is not schedulable, or 2 if it is not Ready
	lacks    string         // a node that should have a pod, and has none
}

type balancedService struct {
	pool, wanted string
	local        string // the only node that can serve it, "" for all
	addresses    []netip.Addr
}

// readBalancer reads them from the cluster; nil if no API server works or the cluster does not have the add-on.
func (s *Site) readBalancer() (b *balancerState, taken map[netip.Addr]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	if c == nil || !slices.ContainsFunc(s.hosts, func(h *Host) bool { return h.works() && !h.outdated() }) {
		return nil, nil
	}
	b, taken = &balancerState{services: map[string]balancedService{}, nodes: map[string]int{}}, map[netip.Addr]string{}
	kubeadm := c.data["configmaps/kube-system/kubeadm-config"]
	for _, endpoint := range []string{Endpoint, otherEndpoint} {
		if strings.Contains(kubeadm, endpoint) {
			taken[netip.MustParseAddr(endpoint)] = "the endpoint"
		}
	}
	for _, h := range s.hosts {
		o := c.object("nodes/" + h.Name)
		status, _ := o["status"].(map[string]any)
		addresses, _ := status["addresses"].([]any)
		for _, one := range addresses {
			if a, err := netip.ParseAddr(one.(map[string]any)["address"].(string)); err == nil {
				taken[a] = h.Name
			}
		}
	}
	if o := c.object(poolsKey); o != nil {
		b.pools = map[string][]netip.Addr{}
		seen := map[netip.Addr]bool{}
		data, _ := o["data"].(map[string]any)
		for name, list := range data {
			b.pools[name] = spread(list.(string))
			for _, a := range b.pools[name] {
				b.refused = b.refused || seen[a] || taken[a] != ""
				seen[a] = true
			}
		}
	}
	for key := range c.data {
		o := c.object(key)
		if !strings.HasPrefix(key, "services/") || text(o, "spec", "type") != "LoadBalancer" {
			continue
		}
		one := balancedService{pool: text(o, "metadata", "annotations", loadbalancer.PoolAnnotation), wanted: text(o, "metadata", "annotations", loadbalancer.AddressAnnotation)}
		if text(o, "spec", "externalTrafficPolicy") == "Local" {
			endpoints, _ := c.object("endpointslices/" + strings.TrimPrefix(key, "services/") + "-model")["endpoints"].([]any)
			one.local = "none"
			if len(endpoints) > 0 {
				one.local = cmp.Or(text(endpoints[0].(map[string]any), "nodeName"), one.local)
			}
		}
		status, _ := o["status"].(map[string]any)
		balancer, _ := status["loadBalancer"].(map[string]any)
		ingress, _ := balancer["ingress"].([]any)
		for _, i := range ingress {
			one.addresses = append(one.addresses, netip.MustParseAddr(i.(map[string]any)["ip"].(string)))
		}
		b.services[strings.TrimPrefix(key, "services/")] = one
	}
	for _, h := range s.hosts {
		o := c.object("nodes/" + h.Name)
		if h.speaker == nil && o != nil && h.registered == c.id && h.unit("kubelet.service").active && h.exists(commandAirlift) && c.data["daemonsets/"+agent.Namespace+"/"+agent.Namespace] != "" {
			b.lacks = h.Name
		}
		if h.speaker != nil && !h.speaker.ends && h.speaker.uid == text(c.object(podPrefix+h.Name), "metadata", "uid") && o != nil && !strings.Contains(c.data["nodes/"+h.Name], "exclude-from-external-load-balancers") {
			unschedulable, _, _ := unstructured.NestedBool(o, "spec", "unschedulable")
			switch {
			case !strings.Contains(c.data["nodes/"+h.Name], `"status":"True","type":"Ready"`):
				b.nodes[h.Name] = 2
			case unschedulable:
				b.nodes[h.Name] = 1
			default:
				b.nodes[h.Name] = 0
			}
		}
	}
	return b, taken
}

// unbalanced returns what is not as it must be when nothing changes any more; "" if all is.
func (s *Site) unbalanced() string {
	b, taken := s.readBalancer()
	speakers := s.network.speakers()
	switch {
	case b == nil:
		return ""
	case b.lacks != "":
		return b.lacks + " has no pod of the load balancer"
	}
	owner := map[netip.Addr]string{}
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		one := b.services[name]
		may := maps.Clone(b.nodes)
		maps.DeleteFunc(may, func(node string, _ int) bool { return one.local != "" && node != one.local })
		best := slices.Min(append(slices.Collect(maps.Values(may)), 3))
		maps.DeleteFunc(may, func(_ string, rank int) bool { return rank > best })
		for _, a := range one.addresses {
			switch {
			case owner[a] != "":
				return fmt.Sprintf("the Services %s and %s have the address %s", owner[a], name, a)
			case taken[a] != "":
				return fmt.Sprintf("the Service %s has the address %s of %s", name, a, taken[a])
			case len(b.nodes) > 0 && len(speakers[a]) != min(1, len(may)):
				return fmt.Sprintf("the nodes %q answer for %s of the Service %s; one of %v should", speakers[a], a, name, may)
			case len(may) > 0 && !has(may, speakers[a][0]):
				return fmt.Sprintf("the node %s answers for %s, and one of %v should", speakers[a][0], a, may)
			}
			owner[a] = name
		}
		if len(one.addresses) > 1 {
			return fmt.Sprintf("the Service %s has the addresses %s", name, one.addresses)
		}
	}
	for a, list := range speakers {
		if owner[a] == "" && len(b.nodes) > 0 {
			return fmt.Sprintf("the nodes %q answer for %s, which no Service has", list, a)
		}
	}
	if len(b.nodes) == 0 || b.refused {
		return ""
	}
	for name, one := range b.services {
		var may []netip.Addr
		for pool, list := range b.pools {
			if pool == cmp.Or(one.pool, loadbalancer.DefaultPool) || one.wanted != "" && one.pool == "" {
				may = append(may, list...)
			}
		}
		if one.wanted != "" {
			may = slices.DeleteFunc(may, func(a netip.Addr) bool { return a.String() != one.wanted })
		}
		for _, a := range one.addresses {
			if !slices.Contains(may, a) {
				return fmt.Sprintf("the Service %s has the address %s, which its pool does not have", name, a)
			}
		}
		for _, a := range may {
			if len(one.addresses) == 0 && owner[a] == "" {
				return fmt.Sprintf("the Service %s has no address, and %s is free", name, a)
			}
		}
	}
	return ""
}

func has(nodes map[string]int, name string) bool { _, ok := nodes[name]; return ok }

// checkBalancer fails if Services do not get what they should, or if a host that is no node still takes part.
func (s *Site) checkBalancer(h *Host) error {
	if !s.balanced {
		return nil
	}
	why := ""
	for range 60 { // longer than an API server and a kubelet need to start
		if why = s.unbalanced(); why == "" {
			break
		}
		time.Sleep(5 * time.Second)
	}
	if why != "" {
		return errors.New(why)
	}
	if h.controlPlane() {
		r, err := h.process(0)
		if err == nil {
			err = s.showsBalancer(r)
			r.cancel()
		}
		if err != nil {
			return err
		}
	}
	speakers := s.network.speakers()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if h.exists(kubeletConf) || h.exists("etc/kubernetes") || h.speaker == nil && !slices.ContainsFunc(slices.Collect(maps.Values(speakers)), func(list []string) bool { return slices.Contains(list, h.Name) }) {
			continue
		}
		return fmt.Errorf("%s is no node any more, and its load balancer runs", h.Name)
	}
	return nil
}

// showsBalancer fails if the status of a control plane reports a problem of the load balancer that does not exist, or none that does.
func (s *Site) showsBalancer(r *run) error {
	b, _ := s.readBalancer()
	found, err := r.balancerStatus()
	if err != nil || b == nil {
		return nil
	}
	refused := false
	for _, p := range found.Warnings {
		refused = refused || p.Name == status.PoolsRefused
		without := slices.ContainsFunc(slices.Collect(maps.Values(b.services)), func(one balancedService) bool { return len(one.addresses) == 0 })
		if p.Name == status.AddressInUse || p.Name == status.NoServiceAddress && !without {
			return fmt.Errorf("the status of %s reports %q", r.host.Name, p.Message)
		}
	}
	if why := found.Unknown["loadBalancer"]; refused != b.refused || why != "" {
		return fmt.Errorf("the status of %s reports that the pools are refused: %t, and they should be: %t (%s)", r.host.Name, refused, b.refused, why)
	}
	return nil
}
