package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"airlift/installer/daemon"
	"airlift/installer/loadbalancer"
)

const (
	// manager owns the field status.loadBalancer of Services that have an address.
	manager = "airlift-load-balancer"
	// interval is the pause between two steps of the writer if nothing changes, minStep the shortest one.
	interval, minStep = 500 * time.Millisecond, 200 * time.Millisecond
	// suspicion is how long the writer has not renewed its Lease when other nodes begin to observe all Leases.
	suspicion = 1500 * time.Millisecond
	// gap is the time without an answer of the API after which nothing is known about other nodes.
	gap = 2 * time.Second
	// clusterInterval is how often the ranges of the cluster are read.
	clusterInterval = 30 * time.Second
	// statusTime limits how long one step writes the status of Services. The others wait for the next step.
	statusTime = 500 * time.Millisecond
)

// A writer decides which node answers for which address, while it has the Lease of the table. At other times it waits for it.
type writer struct {
	*agent
	wake   chan struct{}
	events *events

	lease   *coordinationv1.Lease // as this node wrote it; nil if another node has it
	renewed time.Time             // the last write began
	stepped time.Time
	stores  *stores // nil if another node has the Lease
	stop    func()

	failed   failure
	holder   string // the last renewal of the other node
	heldFrom time.Time

	observed map[string]*observation // by the name of the node
	looked   time.Time

	cluster   loadbalancer.Taken
	clusterAt time.Time
}

// An observation is what a Lease of a node was when it last changed.
type observation struct {
	record
	renewTime string
	seen      time.Time
}

func newWriter(a *agent) *writer {
	return &writer{agent: a, wake: make(chan struct{}, 1), events: newEvents(a.API, a.Log), observed: map[string]*observation{}}
}

// run makes steps until ctx ends, and then gives the Lease up.
func (w *writer) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	go w.events.run(ctx)
	for ctx.Err() == nil {
		woken := false
		select {
		case <-ctx.Done():
		case <-w.wake:
			woken = true
			time.Sleep(minStep)
		case <-ticker.C:
		}
		w.step(ctx, woken)
	}
	if w.lease != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		defer cancel()
		next := w.lease.DeepCopy()
		next.Spec.HolderIdentity = ptr.To("")
		_, _ = w.API.CoordinationV1().Leases(Namespace).Update(limited, next, metav1.UpdateOptions{}) // otherwise, the others wait
	}
	w.lose()
}

// lose stops what only the writer does.
func (w *writer) lose() {
	if w.lease = nil; w.stop != nil {
		w.stop()
		w.stop, w.stores = nil, nil
	}
}

// step does what is due, and logs an error once.
func (w *writer) step(ctx context.Context, woken bool) {
	now := daemon.Now()
	if w.lease != nil && now.Sub(w.renewed) >= loadbalancer.Valid {
		w.lose()
	}
	var err error
	switch {
	case w.lease == nil:
		err = w.compete(ctx, now)
	case !woken && now.Sub(w.stepped) < interval:
		return
	default:
		w.stepped = now
		err = w.write(ctx)
	}
	if ctx.Err() == nil && w.failed.isNew(err) {
		w.Log.Warn("deciding which node has which address failed", "error", err)
	}
}

// compete takes the Lease if no other node renews it.
func (w *writer) compete(ctx context.Context, now time.Time) error {
	w.mu.Lock()
	lease := w.table
	w.mu.Unlock()
	if lease == nil {
		return nil
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if renewal := holder + renewTime(lease); w.heldFrom.IsZero() || renewal != w.holder {
		w.holder, w.heldFrom = renewal, now
	}
	silence := now.Sub(w.heldFrom)
	if holder != "" && holder != w.Node && silence < loadbalancer.Silence {
		if silence > suspicion && now.Sub(w.looked) > loadbalancer.Cycle {
			return w.observe(ctx)
		}
		return nil
	}
	if err := w.put(ctx, lease, nil); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("taking the Lease %s: %w", tableName, err)
	}
	w.Log.Info("this node decides which node has which address")
	inner, cancel := context.WithCancel(ctx)
	w.stop, w.stores = cancel, newStores(inner, w.API, w.wake)
	go w.follow(inner, "", w.wake)
	return nil
}

// put writes the table's Lease for this node, with another table if it is not nil. It fails if another node wrote it meanwhile.
func (w *writer) put(ctx context.Context, lease *coordinationv1.Lease, t *loadbalancer.Table) error {
	began := daemon.Now()
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	next := lease.DeepCopy()
	next.Name, next.Namespace = tableName, Namespace
	next.Spec.HolderIdentity, next.Spec.RenewTime = &w.Node, ptr.To(metav1.NowMicro())
	next.Spec.LeaseDurationSeconds = ptr.To(int32(loadbalancer.Valid / time.Second))
	if t != nil {
		text, err := json.Marshal(t)
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, tableKey, string(text))
	}
	var err error
	if next.ResourceVersion == "" {
		next, err = w.API.CoordinationV1().Leases(Namespace).Create(limited, next, metav1.CreateOptions{})
	} else {
		next, err = w.API.CoordinationV1().Leases(Namespace).Update(limited, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	w.lease, w.renewed = next, began
	return nil
}

func renewTime(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return ""
	}
	return lease.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro)
}

// observe reads the Leases of all nodes.
func (w *writer) observe(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	list, err := w.API.CoordinationV1().Leases(Namespace).List(limited, metav1.ListOptions{LabelSelector: nodeLabel})
	if err != nil {
		return fmt.Errorf("reading the Leases of the nodes: %w", err)
	}
	now := daemon.Now()
	if now.Sub(w.looked) > gap { // perhaps they could not renew them either
		for _, o := range w.observed {
			o.seen = now
		}
	}
	w.looked = now
	found := map[string]bool{}
	for _, lease := range list.Items {
		name := strings.TrimPrefix(lease.Name, nodePrefix)
		found[name] = true
		o := w.observed[name]
		if o == nil {
			o = &observation{}
			w.observed[name] = o
		}
		if renewal := renewTime(&lease); renewal != o.renewTime {
			o.renewTime, o.seen, o.record = renewal, now, record{}
			if err := json.Unmarshal([]byte(lease.Annotations[nodeKey]), &o.record); err != nil {
				w.Log.Warn("the Lease of a node cannot be read", "node", name, "error", err)
			}
		}
	}
	for name, o := range w.observed {
		if !found[name] && now.Sub(o.seen) > time.Minute {
			delete(w.observed, name)
		}
	}
	return nil
}

// nodes returns what is known of the nodes, with the nodes in the table.
func (w *writer) nodes(t loadbalancer.Table, now time.Time) map[string]*loadbalancer.Node {
	for _, e := range t.Entries {
		for _, name := range []string{e.Node, e.Leaving} {
			if name != "" && w.observed[name] == nil {
				w.observed[name] = &observation{seen: now}
			}
		}
	}
	ranks := map[string]int{}
	for _, n := range w.stores.listNodes() {
		ranks[n.Name] = rank(n)
	}
	nodes := map[string]*loadbalancer.Node{}
	for name, o := range w.observed {
		rank, exists := ranks[name]
		if !exists {
			rank = -1
		}
		nodes[name] = &loadbalancer.Node{Name: name, Renewed: o.seen, Read: o.Read, Gone: o.Gone, Subnets: o.Subnets, Looking: o.Looking, Conflicts: o.Conflicts, Rank: rank}
	}
	return nodes
}

// rank returns whether a node should announce addresses: see loadbalancer.Node.
func rank(n *corev1.Node) int {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case excluded || n.DeletionTimestamp != nil:
		return -1
	case !ready:
		return 2
	case n.Spec.Unschedulable:
		return 1
	}
	return 0
}

// write computes the next table, writes it, and then the status of the Services.
func (w *writer) write(ctx context.Context) error {
	if !w.stores.synced() {
		return w.renewTable(ctx)
	}
	if err := w.readCluster(ctx); err != nil {
		_ = w.renewTable(ctx)
		return err
	}
	if err := w.observe(ctx); err != nil {
		return err
	}
	t, err := tableOf(w.lease)
	if err != nil {
		return err
	}
	now := daemon.Now()
	services := w.stores.listServices()
	decisions := w.decide(services, t)
	nodes := w.nodes(t, now)
	limit(decisions, t, slices.Collect(maps.Keys(nodes)))
	next, changed := t.Next(now, w.demands(decisions), nodes)
	if !changed {
		err = w.renewTable(ctx)
	} else if err = w.put(ctx, w.lease, &next); apierrors.IsConflict(err) {
		w.lose()
	}
	if err != nil {
		return fmt.Errorf("writing the Lease %s: %w", tableName, err)
	}
	w.reportTable(t, next, nodes, decisions)
	return w.writeStatuses(ctx, decisions, next)
}

// limit takes addresses for which the table has no room out of decisions: the youngest Services get no new address. An address that a Service
// has in its status stays there, but no node answers for it.
func limit(decisions []decision, t loadbalancer.Table, nodes []string) {
	longest := ""
	for _, name := range nodes {
		if len(name) > len(longest) {
			longest = name
		}
	}
	listed, room := map[netip.Addr]bool{}, loadbalancer.MaxSize-len(`{"version":9223372036854775807,"entries":[]}`)
	for _, e := range t.Entries {
		listed[e.Address] = true
		room -= e.Reserve(longest)
	}
	for _, in := range []bool{true, false} { // first the addresses in the status
		for i := range decisions {
			d := &decisions[i]
			var refused []netip.Addr
			for _, a := range d.Addresses {
				if listed[a] || slices.Contains(d.Current, a) != in {
					continue
				}
				if need := (loadbalancer.Entry{Address: a, Service: d.Name}).Reserve(longest); need <= room {
					room -= need
					listed[a] = true
				} else {
					refused = append(refused, a)
				}
			}
			if len(refused) == 0 {
				continue
			}
			d.Problem = "the Lease " + tableName + " has no room for more addresses"
			if in {
				d.waiting = append(d.waiting, refused...)
				continue
			}
			kept := slices.DeleteFunc(slices.Clone(d.Addresses), func(a netip.Addr) bool { return slices.Contains(refused, a) })
			if d.Both && len(kept) < len(d.Bits) {
				kept = slices.DeleteFunc(kept, func(a netip.Addr) bool { return !slices.Contains(d.Current, a) })
			}
			d.Addresses = kept
		}
	}
}

func (w *writer) renewTable(ctx context.Context) error {
	if daemon.Now().Sub(w.renewed) < loadbalancer.Cycle {
		return nil
	}
	err := w.put(ctx, w.lease, nil)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		w.lose()
	}
	return err
}

// A decision is one for an object.
type decision struct {
	loadbalancer.Decision
	object *corev1.Service
	// waiting are addresses that no node gets yet: the status of another Service still has them, or the table has no room.
	waiting []netip.Addr
}

// decide decides about the addresses of Services.
func (w *writer) decide(services []*corev1.Service, t loadbalancer.Table) (list []decision) {
	taken := takenBy(w.stores.listNodes(), w.nodeSubnets(), w.cluster)
	pools, exists, err := poolsOf(w.stores.poolsMap(), taken)
	if err != nil {
		w.events.warn(reference("ConfigMap", Namespace, PoolsName, string(w.stores.poolsMap().UID)), "InvalidPools", err.Error()+"; nothing changes until this is corrected")
	}
	return decisionsOf(services, t, pools, exists, err, taken)
}

// decisionsOf decides about the addresses of Services. If the pools are refused, each Service keeps what it has and nothing else of the
// cluster has: otherwise a node would answer for an address of another node or of the API.
func decisionsOf(services []*corev1.Service, t loadbalancer.Table, pools loadbalancer.Pools, exists bool, refused error, taken loadbalancer.Taken) (list []decision) {
	objects := map[string]*corev1.Service{}
	inStatus := map[netip.Addr]string{}
	var input []loadbalancer.Service
	for _, s := range services {
		input = append(input, asService(s))
		last := &input[len(input)-1]
		objects[last.UID] = s
		for _, a := range slices.Concat(last.Current, last.Others) {
			inStatus[a] = last.Name
		}
		for _, e := range t.Entries { // what was decided, and is not in the status yet
			if e.Service == last.Name && !slices.Contains(last.Current, e.Address) && len(last.Others) == 0 {
				last.Current = append(last.Current, e.Address)
			}
		}
	}
	var decisions []loadbalancer.Decision
	switch {
	case refused != nil:
		for _, s := range input {
			if len(s.Others) > 0 {
				continue
			}
			d := loadbalancer.Decision{Service: s}
			for _, a := range s.Current {
				if what := taken.Of(a); what != "" {
					d.Problem = fmt.Sprintf("%s is %s, and the pools are refused", a, what)
				} else {
					d.Addresses = append(d.Addresses, a)
				}
			}
			decisions = append(decisions, d)
		}
	case !exists:
		for _, s := range input {
			if len(s.Others) == 0 {
				decisions = append(decisions, loadbalancer.Decision{Service: s})
			}
		}
	default:
		decisions = loadbalancer.Allocate(pools, input)
	}
	for _, d := range decisions {
		one := decision{Decision: d, object: objects[d.UID]}
		for _, a := range d.Addresses {
			if inStatus[a] != "" && inStatus[a] != d.Name {
				one.waiting = append(one.waiting, a)
			}
		}
		list = append(list, one)
	}
	return list
}

// nodeSubnets returns the subnets of the nodes.
func (w *writer) nodeSubnets() (list []netip.Prefix) {
	for _, o := range w.observed {
		list = append(list, o.Subnets...)
	}
	return list
}

// poolsOf returns the pools, and whether the ConfigMap exists. A pool must have nothing of the cluster.
func poolsOf(cm *corev1.ConfigMap, taken loadbalancer.Taken) (loadbalancer.Pools, bool, error) {
	if cm == nil {
		return nil, false, nil
	}
	pools, err := loadbalancer.ParsePools(cm.Data, taken)
	return pools, true, err
}

// takenBy returns the addresses of the cluster.
func takenBy(nodes []*corev1.Node, subnets []netip.Prefix, cluster loadbalancer.Taken) loadbalancer.Taken {
	taken := loadbalancer.Taken{}
	for what, list := range cluster {
		taken[what] = list
	}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				what := "the address of node " + n.Name
				taken[what] = append(taken[what], netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
		for _, text := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				taken["the pod network"] = append(taken["the pod network"], p)
			}
		}
	}
	for _, subnet := range subnets {
		taken["the first or the last address of the subnet "+subnet.Masked().String()] = loadbalancer.Ends(subnet)
	}
	return taken
}

// asService returns the part of a Service that decides about its addresses.
func asService(s *corev1.Service) loadbalancer.Service {
	out := loadbalancer.Service{Name: s.Namespace + "/" + s.Name, UID: string(s.UID), Created: s.CreationTimestamp.Time,
		Pool:   s.Annotations[loadbalancer.PoolAnnotation],
		Wanted: cmp.Or(s.Annotations[loadbalancer.AddressAnnotation], s.Spec.LoadBalancerIP),
		Both:   ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicyRequireDualStack,
		Local:  s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	for _, f := range s.Spec.IPFamilies {
		out.Bits = append(out.Bits, map[corev1.IPFamily]int{corev1.IPv4Protocol: 32, corev1.IPv6Protocol: 128}[f])
	}
	ours := served(s) && (len(s.Status.LoadBalancer.Ingress) == 0 || slices.ContainsFunc(s.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Subresource == "status"
	}))
	for _, i := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(i.IP)
		switch {
		case err == nil && ours:
			out.Current = append(out.Current, a)
		case err == nil:
			out.Others = append(out.Others, a)
		}
	}
	if !ours && len(out.Others) == 0 { // another controller's, with a name or without an address
		out.Others = []netip.Addr{{}}
	}
	return out
}

// served reports whether Airlift gives a Service its addresses.
func served(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == loadbalancer.Class)
}

// demands are the addresses that nodes should announce, each once.
func (w *writer) demands(decisions []decision) (list []loadbalancer.Demand) {
	listed := map[netip.Addr]bool{}
	for _, d := range decisions {
		for _, a := range d.Addresses {
			var nodes map[string]bool
			if d.Local {
				nodes = w.stores.nodesWithEndpoints(d.object, a.BitLen())
			}
			if !slices.Contains(d.waiting, a) && !listed[a] {
				listed[a] = true
				list = append(list, loadbalancer.Demand{Address: a, Service: d.Name, Nodes: nodes})
			}
		}
	}
	return list
}

// writeStatuses writes the addresses of Services that differ: first to Services that lose one.
func (w *writer) writeStatuses(ctx context.Context, decisions []decision, t loadbalancer.Table) (failed error) {
	limited, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	reserved := func(d decision) bool {
		for _, a := range d.Addresses {
			if !slices.ContainsFunc(t.Entries, func(e loadbalancer.Entry) bool { return e.Address == a && e.Service == d.Name }) {
				return false
			}
		}
		return true
	}
	slices.SortStableFunc(decisions, func(a, b decision) int { return cmp.Compare(len(a.Addresses), len(b.Addresses)) })
	for _, d := range decisions {
		var want, have []string
		for _, a := range d.Addresses {
			want = append(want, a.String())
		}
		for _, i := range d.object.Status.LoadBalancer.Ingress {
			have = append(have, i.IP)
		}
		w.events.problem(d)
		if slices.Equal(want, have) {
			continue
		}
		if !reserved(d) {
			want = slices.DeleteFunc(slices.Clone(have), func(a string) bool { return !slices.Contains(want, a) })
			if slices.Equal(want, have) {
				continue
			}
		}
		if err := w.writeStatus(limited, d.object, want); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = cmp.Or(failed, fmt.Errorf("writing the status of Service %s: %w", d.Name, err))
		} else if err == nil {
			w.events.normal(ofService(d.object), "AddressAssigned", "addresses: "+cmp.Or(strings.Join(want, ", "), "none"))
		}
	}
	return failed
}

// writeStatus applies the addresses as the owner of the field. It fails if the Service changed, or if another controller owns the field.
func (w *writer) writeStatus(ctx context.Context, s *corev1.Service, addresses []string) error {
	status := map[string]any{}
	if len(addresses) > 0 {
		var ingress []any
		for _, a := range addresses {
			ingress = append(ingress, map[string]any{"ip": a})
		}
		status["loadBalancer"] = map[string]any{"ingress": ingress}
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Service", "status": status,
		"metadata": map[string]any{"name": s.Name, "namespace": s.Namespace, "uid": s.UID, "resourceVersion": s.ResourceVersion}})
	if err != nil {
		return err
	}
	_, err = w.API.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}

// readCluster reads the ranges and the addresses of the cluster from the configuration that kubeadm stores, if there is one.
func (w *writer) readCluster(ctx context.Context) error {
	if !w.clusterAt.IsZero() && daemon.Now().Sub(w.clusterAt) < clusterInterval {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	cluster, err := readRanges(limited, w.API)
	if err == nil {
		w.cluster, w.clusterAt = cluster, daemon.Now()
	}
	return err
}

func readRanges(ctx context.Context, api kubernetes.Interface) (loadbalancer.Taken, error) {
	cm, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm, err = &corev1.ConfigMap{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ranges of the cluster: %w", err)
	}
	return ranges(cm.Data["ClusterConfiguration"]), nil
}

func ranges(text string) loadbalancer.Taken {
	var c struct {
		ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
		Networking           struct {
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
		APIServer struct {
			CertSANs []string `json:"certSANs"`
		} `json:"apiServer"`
	}
	_ = yaml.Unmarshal([]byte(text), &c) // what is not readable is not known
	taken := loadbalancer.Taken{}
	add := func(what string, values ...string) {
		for _, v := range values {
			if p, err := netip.ParsePrefix(v); err == nil {
				taken[what] = append(taken[what], p)
			} else if a, err := netip.ParseAddr(v); err == nil {
				taken[what] = append(taken[what], netip.PrefixFrom(a, a.BitLen()))
			} else if a, err := netip.ParseAddrPort(v); err == nil {
				taken[what] = append(taken[what], netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
			}
		}
	}
	add("the pod network", strings.Split(c.Networking.PodSubnet, ",")...)
	add("the range of Services", strings.Split(c.Networking.ServiceSubnet, ",")...)
	add("an address of the API", append(c.APIServer.CertSANs, c.ControlPlaneEndpoint)...)
	return taken
}

// reportTable reports which nodes got addresses, and what keeps an address from being announced.
func (w *writer) reportTable(before, after loadbalancer.Table, nodes map[string]*loadbalancer.Node, decisions []decision) {
	for _, d := range decisions {
		for _, e := range after.Entries {
			if e.Service != d.Name {
				continue
			}
			about := ofService(d.object)
			switch n := nodes[e.Node]; {
			case after.Full(e.Address):
				w.events.warn(about, "NoAddress", fmt.Sprintf("the Lease %s has no room to give %s to another node", tableName, e.Address))
			case e.Node == "" && e.Leaving == "":
				w.events.warn(about, "NoNode", fmt.Sprintf("no ready node has a subnet with %s%s", e.Address, map[bool]string{true: " and an endpoint of this Service"}[d.Local]))
			case n != nil && n.Conflicts[e.Address] != "":
				w.events.warn(about, "AddressInUse", fmt.Sprintf("another host, %s, has %s in the network of %s", n.Conflicts[e.Address], e.Address, e.Node))
			case e.Node != "" && before.Where(e.Address) != e.Node:
				w.events.normal(about, "Announced", fmt.Sprintf("node %s answers for %s", e.Node, e.Address))
			}
		}
	}
}

func ofService(s *corev1.Service) corev1.ObjectReference {
	return reference("Service", s.Namespace, s.Name, string(s.UID))
}
