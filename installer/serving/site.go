package serving

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// joinTime is how long after its registration a node without a record may get one by its first request.
const joinTime = time.Hour

// errNoNode is why a request has to wait: a kubelet makes its first one while it registers its Node.
var errNoNode = errors.New("there is no such Node")

// A site is what decides about requests, apart from themselves.
type site struct {
	now     time.Time
	nodes   []corev1.Node
	records records
	stored  *corev1.ConfigMap // of the records
	// self is the node of this host. The host itself knows which addresses it has.
	self          string
	credentials   []string // of this host's kubelet; nil if they are not known
	ownAddresses  []netip.Addr
	reservedNames []string       // of API servers
	reserved      []netip.Addr   // of API servers
	ranges        []netip.Prefix // of Services and pods
}

// judge decides about a request: it returns why it is refused. pinned is the record with which it is approved, nil if the node
// needs no other one than it has.
func (s *site) judge(r *request) (pinned *record, err error) {
	i := slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == r.node })
	if i < 0 {
		return nil, errNoNode
	}
	node := &s.nodes[i]
	has, recorded := s.records.of(node)
	if r.node == s.self {
		// Whoever has a bootstrap token can get a client certificate with this name, too.
		if r.credential != "" && s.credentials != nil && !slices.Contains(s.credentials, r.credential) {
			return nil, errors.New("it was not made with the client certificate of this host's kubelet")
		}
		return nil, r.within(slices.Concat(s.ownAddresses, has.addresses()), has)
	}
	if err := s.notOfServers(r); err != nil {
		return nil, err
	}
	if recorded {
		if err = r.within(has.addresses(), has); err == nil && has.UID == "" {
			has.UID = node.UID
			pinned = &has
		}
		return pinned, err
	}
	if s.now.Sub(node.CreationTimestamp.Time) > joinTime {
		return nil, errors.New("no addresses are recorded for this node, and it did not join in the last hour")
	}
	if err := r.within(r.addresses, record{}); err != nil {
		return nil, err
	}
	if len(r.addresses) == 0 {
		return nil, errors.New("it has no address")
	}
	pinned = &record{UID: node.UID}
	for _, a := range r.addresses {
		if err := s.free(a, node.Name); err != nil {
			return nil, err
		}
		pinned.Addresses = append(pinned.Addresses, a.String())
	}
	return pinned, nil
}

// within returns an error if the request has another address, or another name than the node's and the recorded names.
func (r *request) within(addresses []netip.Addr, has record) error {
	for _, name := range r.names {
		if name != r.node && !slices.Contains(has.Addresses, name) {
			return fmt.Errorf("%s is not a name of this node", name)
		}
	}
	for _, a := range r.addresses {
		if !slices.Contains(addresses, a) {
			return fmt.Errorf("%s is not an address of this node", a)
		}
	}
	return nil
}

// notOfServers refuses names and addresses of the API servers: with them, a kubelet's certificate would pass for one of theirs. Only
// the host of a control plane decides about its own node.
func (s *site) notOfServers(r *request) error {
	for _, name := range append([]string{r.node}, r.names...) {
		if slices.Contains(s.reservedNames, name) {
			return fmt.Errorf("%s is a name of the API servers", name)
		}
	}
	for _, a := range r.addresses {
		if slices.Contains(s.reserved, a) {
			return fmt.Errorf("%s is an address of the API servers", a)
		}
	}
	return nil
}

// free returns why a joining node cannot have an address.
func (s *site) free(a netip.Addr, node string) error {
	if err := usable(a); err != nil {
		return err
	}
	for _, p := range s.ranges {
		if p.Contains(a) {
			return fmt.Errorf("%s is in %s, the range of Services or pods", a, p)
		}
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.Name == node {
			continue
		}
		has, _ := s.records.of(n)
		if slices.Contains(has.addresses(), a) || slices.ContainsFunc(n.Status.Addresses, func(o corev1.NodeAddress) bool {
			is, err := netip.ParseAddr(o.Address)
			return err == nil && is.Unmap() == a
		}) {
			return fmt.Errorf("%s is an address of node %s", a, n.Name)
		}
	}
	for name, has := range s.records {
		if name != node && has.UID == "" && slices.Contains(has.addresses(), a) {
			return fmt.Errorf("%s is recorded for node %s, which has not joined yet", a, name)
		}
	}
	return nil
}

// usable returns why no node can be reached at an address from another host.
func usable(a netip.Addr) error {
	if !a.IsGlobalUnicast() || a.Zone() != "" {
		return fmt.Errorf("%s is not an address of a host", a)
	}
	return nil
}
