package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/installer/cluster"
	"airlift/internal/fault"
)

// recordMap in kube-system has a record for each node, by its name. No node may write it. One object for all nodes, because its
// version makes sure that two nodes do not get the same address at once.
const recordMap = "airlift-node-addresses"

// A record has the addresses that the site gave to a node.
type record struct {
	// UID of the Node for which it is valid; "" for the next one of this name. So a node that was removed leaves nothing to
	// one that gets its name later.
	UID types.UID `json:"uid,omitempty"`
	// Addresses are IP addresses and, besides the name of the node, DNS names.
	Addresses []string `json:"addresses"`
}

func (r record) addresses() (list []netip.Addr) {
	for _, text := range r.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

type records map[string]record

// of returns the record of a Node.
func (r records) of(n *corev1.Node) (record, bool) {
	has, ok := r[n.Name]
	if !ok || has.UID != "" && has.UID != n.UID {
		return record{}, false
	}
	return has, true
}

// readRecords returns the ConfigMap of a cluster that signs serving certificates.
func readRecords(ctx context.Context, c *cluster.Client) (*corev1.ConfigMap, error) {
	m, err := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, recordMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Failure, "there is no ConfigMap %s/%s", metav1.NamespaceSystem, recordMap).
			Hint("create it: kubectl -n kube-system create configmap " + recordMap)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of nodes: %w", err)
	}
	return m, nil
}

// decodeRecords reads the data of the ConfigMap. A damaged line is an error: without it, its node would have no record, and its
// addresses would be free.
func decodeRecords(m *corev1.ConfigMap) (records, error) {
	all := records{}
	for name, text := range m.Data {
		var one record
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			return nil, fault.New(fault.Failure, "the record of node %q in the ConfigMap %s/%s is damaged: %w", name, m.Namespace, m.Name, err).
				Hint("write it again: ./install node addresses " + name + " ADDRESS")
		}
		all[name] = one
	}
	return all, nil
}

// set stores the record of a node, and removes the records of nodes that are gone.
func set(m *corev1.ConfigMap, all records, name string, one record, nodes []corev1.Node) error {
	data, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	for other, has := range all {
		if has.UID != "" && !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == other && n.UID == has.UID }) {
			delete(m.Data, other)
		}
	}
	m.Data[name] = string(data)
	return nil
}

// A State is what is recorded for a node, and what its kubelet requests.
type State struct {
	Recorded []string
	Waiting  []Waiting
}

// A Waiting is a request that nobody has decided about.
type Waiting struct {
	Name  string
	Wants []string
}

// Read returns the state of a node.
func Read(ctx context.Context, c *cluster.Client, node string) (*State, error) {
	m, err := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, recordMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, notUsed()
	}
	if err != nil {
		return nil, err
	}
	all, err := decodeRecords(m)
	if err != nil {
		return nil, err
	}
	list, err := c.API.CertificatesV1().CertificateSigningRequests().List(ctx, onlyServing)
	if err != nil {
		return nil, err
	}
	s := &State{Recorded: all[node].Addresses}
	if n, err := c.API.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err == nil {
		has, _ := all.of(n)
		s.Recorded = has.Addresses
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	for _, csr := range list.Items {
		if csr.Spec.Username != nodeUser+node || !isPending(&csr) {
			continue
		}
		w := Waiting{Name: csr.Name}
		if r, err := parse(&csr); err != nil {
			w.Wants = []string{err.Error()}
		} else {
			for _, a := range r.addresses {
				w.Wants = append(w.Wants, a.String())
			}
			w.Wants = append(w.Wants, r.names...)
		}
		s.Waiting = append(s.Waiting, w)
	}
	return s, nil
}

// Unrecorded returns the names of workers that have no record, and get none by a request any more. A Node that was deleted, or that a restored
// backup does not have, registers again, but its kubelet makes no request while its certificate is valid. That one would not be approved.
func Unrecorded(ctx context.Context, c *cluster.Client) (names []string, err error) {
	m, err := readRecords(ctx, c)
	if err != nil {
		return nil, err
	}
	all, err := decodeRecords(m)
	if err != nil {
		return nil, err
	}
	nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		_, has := all.of(n)
		if _, plane := n.Labels[cluster.ControlPlaneLabel]; !has && !plane && time.Since(n.CreationTimestamp.Time) > joinTime {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

func notUsed() error {
	return fault.New(fault.Failure, "this cluster does not sign the serving certificates of kubelets: it has no ConfigMap %s/%s", metav1.NamespaceSystem, recordMap).
		Hint("a cluster with 'init --profile hardened' does: ./install docs hardening")
}

// SetAddresses records the addresses and DNS names of a node, for the certificates that its kubelet requests from now on. The
// node may join later. root is the host of a control plane. It refuses what belongs to another node, an API server or the endpoint.
func SetAddresses(ctx context.Context, c *cluster.Client, root fs.FS, node string, addresses []string) (changed bool, err error) {
	one, err := check(node, addresses)
	if err != nil {
		return false, err
	}
	for {
		changed, err = setAddresses(ctx, c, root, node, one)
		if !apierrors.IsConflict(err) {
			return changed, err
		}
	}
}

// check returns a record with these addresses.
func check(node string, addresses []string) (one record, err error) {
	usage := func(format string, args ...any) error {
		return fault.New(fault.Usage, format, args...).Hint("give IP addresses and DNS names of the node: ./install node addresses NAME 192.0.2.10")
	}
	if msgs := validation.IsDNS1123Subdomain(node); len(msgs) > 0 {
		return one, usage("%q is not the name of a node: %s", node, msgs[0])
	}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			if msgs := validation.IsDNS1123Subdomain(text); len(msgs) > 0 {
				return one, usage("%q is neither an IP address nor a DNS name", text)
			}
		} else if err := usable(a); err != nil {
			return one, usage("%w", err)
		} else {
			text = a.Unmap().String()
		}
		one.Addresses = append(one.Addresses, text)
	}
	slices.Sort(one.Addresses)
	one.Addresses = slices.Compact(one.Addresses)
	return one, nil
}

func setAddresses(ctx context.Context, c *cluster.Client, root fs.FS, node string, one record) (changed bool, err error) {
	maps := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m, err := maps.Get(ctx, recordMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, notUsed()
	}
	if err != nil {
		return false, err
	}
	settings, err := readSettings(root)
	if err != nil {
		return false, err
	}
	before := m.Data[node]
	delete(m.Data, node) // it may be damaged
	s, err := settings.siteOf(ctx, c, root, m)
	if err != nil {
		return false, err
	}
	if err := s.allows(one, node); err != nil {
		return false, refusedRecord(err, node)
	}
	if i := slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == node }); i >= 0 {
		one.UID = s.nodes[i].UID
	}
	if err := set(m, nil, node, one, nil); err != nil || m.Data[node] == before {
		return false, err
	}
	if _, err = maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		err = fmt.Errorf("changing ConfigMap %s/%s: %w", metav1.NamespaceSystem, recordMap, err)
	}
	return err == nil, err
}

// refusedRecord is the error about a record that a node cannot have.
func refusedRecord(err error, node string) error {
	hint := "give addresses that no other node, no API server and no Service has: ./install node addresses " + node + " ADDRESS"
	if t, ok := errors.AsType[taken](err); ok && t.recorded {
		hint = fmt.Sprintf("if %s does not have it any more, record its new addresses first: ./install node addresses %[1]s ADDRESS; or remove its record: kubectl -n %s patch configmap %s -p '{\"data\":{\"%[1]s\":null}}'",
			t.node, metav1.NamespaceSystem, recordMap)
	}
	return fault.New(fault.Preflight, "recording the addresses of node %s: %w", node, err).Hint(hint)
}
