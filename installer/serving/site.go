package serving

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/pki"
)

// joinTime is how long after its registration a node without a record may get one by its first request.
const joinTime = time.Hour

// registrationTime is how long before the Node its kubelet may make the first request.
const registrationTime = time.Minute

// errNoNode is why a request has to wait: a kubelet makes its first one while it registers its Node.
var errNoNode = errors.New("there is no such Node")

// A site is what decides about requests, apart from themselves.
type site struct {
	now     time.Time // zero where no request is judged
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

// siteOf reads what decides who may have an address: from the cluster and, in root, from the host of a control plane. It has the records of
// stored, which was read before: so the nodes are not older than it.
func (s *Settings) siteOf(ctx context.Context, c *cluster.Client, root fs.FS, stored *corev1.ConfigMap) (*site, error) {
	all, err := decodeRecords(stored)
	if err != nil {
		return nil, err
	}
	nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	found := &site{self: s.Node, ranges: s.Ranges, stored: stored, records: all, nodes: nodes.Items}
	servers, err := c.APIServers(ctx)
	if err != nil {
		return nil, err
	}
	for _, server := range servers {
		found.reserved = append(found.reserved, server.Addr().Unmap())
	}
	data, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(s.CertificatesDir, "apiserver.crt"), "/"))
	if err != nil {
		return nil, err
	}
	names, err := pki.ServingNames(data) // with the control-plane endpoint
	if err != nil {
		return nil, fmt.Errorf("reading apiserver.crt: %w", err)
	}
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil {
			found.reserved = append(found.reserved, a.Unmap())
		} else {
			found.reservedNames = append(found.reservedNames, name)
		}
	}
	return found, nil
}

// judge decides about a request: it returns why it is refused. pinned is the record with which it is approved, nil if the node
// needs no other one than it has.
func (s *site) judge(r *request) (pinned *record, err error) {
	i := slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == r.node })
	if i < 0 {
		return nil, errNoNode
	}
	node := &s.nodes[i]
	if node.CreationTimestamp.Sub(r.created) > registrationTime {
		return nil, errors.New("it is older than the Node: a former node of this name made it")
	}
	has, recorded := s.records.of(node)
	if r.node == s.self {
		// Whoever has a bootstrap token can get a client certificate with this name, too.
		if r.credential != "" && s.credentials != nil && !slices.Contains(s.credentials, r.credential) {
			return nil, errors.New("it was not made with the client certificate of this host's kubelet")
		}
		return nil, r.within(slices.Concat(s.ownAddresses, has.addresses()), has)
	}
	if err := s.notOfServers(append([]string{r.node}, r.names...), r.addresses); err != nil {
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
func (s *site) notOfServers(names []string, addresses []netip.Addr) error {
	for _, name := range names {
		if slices.Contains(s.reservedNames, name) {
			return fmt.Errorf("%s is a name of the API servers", name)
		}
	}
	for _, a := range addresses {
		if slices.Contains(s.reserved, a) {
			return fmt.Errorf("%s is an address of the API servers", a)
		}
	}
	return nil
}

// free returns why a node cannot get an address by what its kubelet requests or reports: also if another node only reports it.
func (s *site) free(a netip.Addr, node string) error {
	if err := s.available(a, node); err != nil {
		return err
	}
	for i := range s.nodes {
		if n := &s.nodes[i]; n.Name != node && slices.Contains(addressesOf(n), a) {
			return taken{what: a.String(), node: n.Name}
		}
	}
	return nil
}

// available returns why nobody may give an address to a node. What another worker reports is only a claim: without a record, it does not
// have that address.
func (s *site) available(a netip.Addr, node string) error {
	if err := usable(a); err != nil {
		return err
	}
	for _, p := range s.ranges {
		if p.Contains(a) {
			return fmt.Errorf("%s is in %s, the range of Services or pods", a, p)
		}
	}
	if err := s.notOfServers(nil, []netip.Addr{a}); err != nil {
		return err
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		_, plane := n.Labels[cluster.ControlPlaneLabel]
		if n.Name != node && plane && slices.Contains(addressesOf(n), a) {
			return taken{what: a.String(), node: n.Name}
		}
	}
	return s.unrecorded(a.String(), node)
}

// unrecorded returns a taken if an address or a DNS name is recorded for another node.
func (s *site) unrecorded(text, node string) error {
	for _, other := range slices.Sorted(maps.Keys(s.records)) {
		has := s.records[other]
		i := slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == other })
		if other == node || has.UID != "" && (i < 0 || s.nodes[i].UID != has.UID) { // of a node that is gone
			continue
		}
		if slices.Contains(has.Addresses, text) {
			return taken{what: text, node: other, recorded: true}
		}
	}
	return nil
}

// allows returns why an administrator cannot record addresses and names for a node.
func (s *site) allows(one record, node string) error {
	names := slices.DeleteFunc(append([]string{node}, one.Addresses...), func(name string) bool { // its API server has its name
		return node == s.self && name == node
	})
	if err := s.notOfServers(names, nil); err != nil {
		return err
	}
	for _, text := range one.Addresses {
		a, err := netip.ParseAddr(text)
		switch {
		case err == nil:
			err = s.available(a, node)
		case text != node && slices.ContainsFunc(s.nodes, func(n corev1.Node) bool { return n.Name == text }):
			err = taken{what: text, node: text}
		default:
			err = s.unrecorded(text, node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// taken is an address or a name of another node.
type taken struct {
	what, node string
	recorded   bool // for that node, which may join later
}

func (t taken) Error() string {
	if t.recorded {
		return fmt.Sprintf("%s is recorded for node %s", t.what, t.node)
	}
	return fmt.Sprintf("%s belongs to node %s", t.what, t.node)
}

// usable returns why no node can be reached at an address from another host.
func usable(a netip.Addr) error {
	if !a.IsGlobalUnicast() || a.Zone() != "" {
		return fmt.Errorf("%s is not an address of a host", a)
	}
	return nil
}
