package noderemove

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/workflow"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// answerTimeout limits the wait for a host that may be off.
const answerTimeout = 5 * time.Second

// A target is the node to remove, and what is left without it.
type target struct {
	name    string
	node    *cluster.NodeState  // nil if its Node was deleted before
	others  []cluster.NodeState // the nodes that remain
	member  *etcd.Member        // nil if it has none
	rest    etcd.Rest           // etcd without the member
	server  string              // "host:port" of its API server, "" if not known
	silence string              // why its kubelet does not answer, "" if it does
	evict   []string            // pods that a drain moves
	bare    []string            // the pods that no controller creates again
	unnamed []etcd.Member       // members that have not started yet: no data of the cluster has the name of their host
	// endpoint is the endpoint of the cluster if it leads to this control plane, which does not serve it; "" else.
	endpoint string
}

// find reads the state of the cluster.
func (r *Removal) find(ctx context.Context) (t target, err error) {
	var members []etcd.Member
	if r.etcd != nil {
		if members, err = r.etcd.Members(ctx); err != nil {
			return t, err
		}
	}
	nodes, apiErr := r.nodes(ctx)
	if t, err = choose(r.options.Node, nodes, members); err != nil && apiErr == nil {
		return t, err
	}
	// First, because without a quorum of etcd, the API server does not answer either.
	if t.member != nil {
		if t.member.HasPeer(r.ownPeer) {
			return t, fault.New(fault.Usage, "%s is the etcd member of this host", t.member).Hint("to remove this host from the cluster: ./install reset")
		}
		if t.rest, err = withoutMember(r.etcd.Health(ctx, members), *t.member); err != nil {
			return t, err
		}
	}
	if apiErr != nil {
		return t, apiErr
	}
	if err := t.leavesControlPlane(); err != nil {
		return t, err
	}
	if t.node != nil {
		servers, err := cluster.NodesOfAPIServers(ctx, r.api.API)
		if err != nil {
			return t, err
		}
		t.server = servers[t.name]
		t.silence = silence(ctx, *t.node)
		if t.evict, t.bare, err = workloads.NewDrain(r.api.API, t.name, config.DrainTimeout).Pods(ctx); err != nil {
			return t, err
		}
	}
	return t, r.checkEndpoint(ctx, &t)
}

// checkEndpoint refuses to remove a control plane to which the endpoint of the cluster leads: no other node would reach the API. If
// it does not serve the endpoint any more, the removal ends nothing.
func (r *Removal) checkEndpoint(ctx context.Context, t *target) error {
	if !t.controlPlane() {
		return nil
	}
	fetched, err := r.api.FetchConfig(ctx)
	if err != nil {
		return err
	}
	is := fetched.Cluster.ControlPlaneEndpoint
	lookup, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	addresses, err := cluster.EndpointAddresses(lookup, is)
	alive := t.node != nil && t.silence == ""
	if err != nil && ctx.Err() == nil && alive {
		return fault.Wrap(fmt.Errorf("checking whether the endpoint of the cluster leads to %s: %w", t.name, err), fault.Failure, "add the name to /etc/hosts of this host")
	}
	if alive {
		if err := r.checkFormerEndpoint(lookup, fetched.Cluster.Endpoint, t); err != nil {
			return err
		}
	}
	leads := slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		return !slices.Contains(fetched.Cluster.Endpoint.VIPs, a.String()) && slices.Contains(t.addresses(), a)
	})
	switch {
	case !leads:
		return ctx.Err()
	case !alive && !serves(ctx, is):
		t.endpoint = is
		return ctx.Err()
	}
	return fault.New(fault.Preflight, "the endpoint of the cluster, %s, leads to %s: without it, no other node would reach the API", is, t.name).
		Hint("give the cluster another endpoint first, on a control plane: ./install endpoint apply --control-plane-endpoint HOST:PORT; or with --control-plane-vip ADDRESS; then on each node: ./install endpoint node")
}

// checkFormerEndpoint refuses to remove a control plane at the endpoint that the last change replaced, while kube-proxy, flannel or
// nodes use it.
func (r *Removal) checkFormerEndpoint(ctx context.Context, e config.Endpoint, t *target) error {
	behind := func(n cluster.NodeState) bool {
		return e.Change != nil && (n.Follows.Endpoint != e.Change.Number || n.Follows.OnlyServes)
	}
	former := e.Former(slices.ContainsFunc(t.others, behind))
	addresses, err := cluster.EndpointAddresses(ctx, former)
	if err != nil || !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return slices.Contains(t.addresses(), a) }) {
		return nil // without a name, nobody uses it
	}
	return fault.New(fault.Preflight, "kube-proxy, flannel or nodes still use %s, which leads to %s: the last change of the endpoint is not finished", former, t.name).
		Hint("finish it first, on each node that has not followed, then on a control plane: ./install endpoint node")
}

// serves reports whether a server that encrypts answers at an endpoint.
func serves(ctx context.Context, endpoint string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	host, port, err := config.SplitEndpoint(endpoint, 6443)
	return err == nil && answers(ctx, net.JoinHostPort(host, strconv.Itoa(port))) == nil
}

// answers returns why a server that encrypts does not answer at an address. A process that hangs accepts connections, but does not
// encrypt them. Its certificate may be of any CA.
func answers(ctx context.Context, address string) error {
	conn, err := dialer.Dial(ctx, "tcp", address)
	if err == nil {
		err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
		_ = conn.Close()
	}
	return err
}

// nodes lists the nodes, if the API server of this host is ready: after the removal, it must serve the
// cluster.
func (r *Removal) nodes(ctx context.Context) ([]cluster.NodeState, error) {
	if ready, state := r.api.Ready(ctx); !ready {
		return nil, fault.New(fault.Failure, "the API server of this host is not ready: %s", state).Hint("run the command on another control plane; or see './install status'")
	}
	return r.api.Nodes(ctx)
}

// choose finds the node with a name among the nodes and the members of etcd.
func choose(name string, nodes []cluster.NodeState, members []etcd.Member) (target, error) {
	t := target{name: name}
	for _, n := range nodes {
		if n.Name == name {
			t.node = &n
		} else {
			t.others = append(t.others, n)
		}
	}
	var err error
	if t.member, t.unnamed, err = memberOf(name, members); err != nil {
		return t, err
	}
	if t.node != nil || t.member != nil {
		return t, nil
	}
	return t, fault.New(fault.Usage, "the cluster has no node %q", name).Hint("its nodes are: " + strings.Join(names(t.others), ", "))
}

// memberOf returns the member of etcd with the name of the node, which kubeadm gives it. What a Node reports is the claim of its
// kubelet, and its addresses could be those of another member. So a member that has not started, which has no name, stays.
func memberOf(name string, members []etcd.Member) (found *etcd.Member, unnamed []etcd.Member, err error) {
	for i, m := range members {
		switch {
		case m.Name == "":
			unnamed = append(unnamed, m)
		case m.Name == name && found != nil:
			return nil, nil, fault.New(fault.Failure, "etcd has two members with the name %q: %s and %s", name, found, m).
				Hint(fmt.Sprintf("see which of them is lost: ./install etcd status; and remove it: ./install etcd member remove 0x%016x, or 0x%016x", found.ID, m.ID))
		case m.Name == name:
			found = &members[i]
		}
	}
	return found, unnamed, nil
}

// withoutMember returns etcd without a member. It refuses to leave etcd without a quorum.
func withoutMember(states []etcd.State, m etcd.Member) (etcd.Rest, error) {
	rest, err := etcd.Without(states, m)
	if err == nil && rest.Members == 0 {
		err = fault.New(fault.Failure, "%s is the last voting member of etcd", m).Hint("to delete the cluster, run on that host: ./install reset")
	}
	if err != nil {
		err = fault.Wrap(err, fault.Failure, "start the other members; if they are lost permanently and there is a backup: ./install reset --force on this host, then ./install etcd restore FILE")
	}
	return rest, err
}

// controlPlane reports whether the node is a control plane.
func (t *target) controlPlane() bool {
	// A kubelet may create the pod of an API server, but not this label.
	return t.member != nil || t.node != nil && t.node.Role == cluster.ControlPlaneRole
}

// leavesControlPlane refuses to remove the last control plane.
func (t *target) leavesControlPlane() error {
	isControlPlane := func(n cluster.NodeState) bool { return n.Role == cluster.ControlPlaneRole }
	if !t.controlPlane() || slices.ContainsFunc(t.others, isControlPlane) {
		return nil
	}
	return fault.New(fault.Failure, "%s is the last control plane", t.name).
		Hint("to delete the cluster, run on that host: ./install reset; if this host is a control plane, register its node again: systemctl restart kubelet, then ./install init phase mark-control-plane")
}

// silence returns why the kubelet of a node does not answer, and "" if it does.
func silence(ctx context.Context, n cluster.NodeState) string {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	reason := "the cluster does not know its address"
	for _, address := range n.Addresses {
		err := answers(ctx, net.JoinHostPort(address, strconv.Itoa(int(n.KubeletPort))))
		if err == nil {
			return ""
		}
		reason = err.Error()
	}
	return reason
}

// addresses returns the addresses at which the API server of the node may have been announced.
func (t *target) addresses() (list []netip.Addr) {
	var all []string
	if t.node != nil {
		all = append(all, t.node.Addresses...)
	}
	if host, _, err := net.SplitHostPort(t.server); err == nil {
		all = append(all, host)
	}
	if t.member != nil {
		all = append(all, t.member.Host())
	}
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// describe returns the text of Describe. drain reports whether pods may be moved.
func (t *target) describe(drain bool) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "  %-8s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	role := "worker"
	if t.controlPlane() {
		role = "control plane"
	}
	if t.node == nil {
		line("node", "%s, %s; its Node is already deleted", t.name, role)
	} else {
		line("node", "%s, %s, %s, %s", t.name, role, t.node.Version, strings.Join(t.node.Addresses, ", "))
		line("host", "%s", t.hostState())
		line("pods", "%s", t.podsState(drain))
	}
	if t.member != nil && t.member.Learner {
		line("etcd", "removes the learner %s, which has no vote", t.member)
	} else if t.member != nil {
		line("etcd", "removes member %s; %s left, %d healthy, %d needed: it then survives the failure of %d",
			t.member, workflow.Count(t.rest.Members, "voting member"), t.rest.Healthy, t.rest.Quorum, t.rest.Healthy-t.rest.Quorum)
	}
	if len(t.unnamed) > 0 && t.member == nil && (t.controlPlane() || !t.node.Ready) {
		line("etcd", "keeps %s, which has not started: if its host is lost, ./install etcd member remove 0x%016x", t.unnamed[0], t.unnamed[0].ID)
	}
	line("left", "%s", t.left())
	if t.endpoint != "" {
		fmt.Fprintf(&b, "\nThe endpoint of the cluster, %s, leads to this host. Nodes reach the API again when another host\nhas the address, or after: ./install endpoint apply --control-plane-endpoint HOST:PORT\n", t.endpoint)
	}
	if t.silence != "" {
		b.WriteString("\nMake sure that the host is off. Otherwise its containers run on, while other nodes start\nthe same pods.\n")
	}
	return b.String()
}

func (t *target) hostState() string {
	switch {
	case t.silence != "":
		return "its kubelet does not answer: " + t.silence
	case !t.node.Ready:
		return "its kubelet answers, but the node is not Ready: " + t.node.Reason
	}
	return "its kubelet answers, and the node is Ready"
}

func (t *target) podsState(drain bool) string {
	moved := workflow.Count(len(t.evict), "pod") + " moved to other nodes"
	if !drain || t.silence != "" {
		moved = workflow.Count(len(t.evict), "pod") + " deleted with the Node, and created again on other nodes"
	}
	if len(t.bare) == 0 {
		return moved
	}
	return moved + "; deletes pods that nothing creates again: " + strings.Join(slices.Sorted(slices.Values(t.bare)), ", ") // as the plan prints it
}

// left returns the nodes that remain.
func (t *target) left() string {
	var planes, workers []cluster.NodeState
	for _, n := range t.others {
		if n.Role == cluster.ControlPlaneRole {
			planes = append(planes, n)
		} else {
			workers = append(workers, n)
		}
	}
	text := workflow.Count(len(planes), "control plane") + " (" + strings.Join(names(planes), ", ") + ")"
	if len(workers) > 0 {
		text += " and " + workflow.Count(len(workers), "worker") + " (" + strings.Join(names(workers), ", ") + ")"
	}
	return text
}

// names returns the names of nodes. It marks a node that is not Ready.
func names(nodes []cluster.NodeState) (list []string) {
	for _, n := range nodes {
		name := n.Name
		if !n.Ready {
			name += " not Ready"
		}
		list = append(list, name)
	}
	return list
}

// closingWords returns the summary: what happens if the host starts again.
func (t *target) closingWords() string {
	text := t.name + ` was removed from the cluster. Its host keeps valid certificates. Before its kubelet starts again,
run there:

    ./install reset --force

Otherwise, the kubelet registers the node again if it reaches an API server, and pods are scheduled on it.
`
	if t.controlPlane() {
		text += "The host also has the keys of the cluster's CAs.\n"
	}
	return text
}
