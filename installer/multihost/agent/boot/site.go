package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/agent"
	"airlift/installer/multihost/seed"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// objectName is the name of the ConfigMap with the claims of hosts, and of the Role that lets them write it.
const objectName = "airlift-seed"

// maxMessage limits what a host claims, in characters.
const maxMessage = 200

// A Claim is what a host reports about itself. Who has the token can write any: it is only shown, and the seed ends early at most.
type Claim struct {
	State   string    `json:"state"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// A Site is the cluster, as a host that runs a seed needs it.
type Site interface {
	// Begun returns an error if the cluster exists, before the first control plane initialises it.
	Begun(ctx context.Context, s *seed.Seed) error
	// Report writes a claim. errOver means that the cluster does not accept the token any more.
	Report(ctx context.Context, s *seed.Seed, name string, c Claim) error
	// Lead does on the first control plane what other hosts wait for, and returns the hosts that are not done.
	Lead(ctx context.Context, s *seed.Seed) (missing []string, err error)
	// End deletes the token, the certificates and the permission to report.
	End(ctx context.Context, s *seed.Seed) error
}

// site is the cluster behind its API.
type site struct {
	root   string          // of this host
	client *cluster.Client // of a host that joins
}

const dialTimeout = 5 * time.Second

// Begun asks the other control planes, which join after the first one, whether they have an API server: then the first one has lost what it had, and
// init would make a second cluster with the same endpoint.
func (b *site) Begun(ctx context.Context, s *seed.Seed) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	servers := s.APIServers()
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		conn, err := dialer.Dial(ctx, "tcp", servers[name])
		if err != nil {
			continue
		}
		_ = conn.Close()
		return fault.New(fault.Preflight, "%s at %s has an API server, and this host is no node: init would make a second cluster; add this host by ./install cluster apply, or end the other cluster there: ./install reset", name, servers[name])
	}
	return nil
}

func (b *site) Report(ctx context.Context, s *seed.Seed, name string, c Claim) error {
	if b.client == nil {
		found, err := find(ctx, s)
		if err != nil {
			return err
		}
		b.client = found
	}
	err := report(ctx, b.client, name, c)
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%w: %w", errOver, err)
	}
	if err != nil {
		b.client = nil // the endpoint may have moved
	}
	return err
}

// find returns a client with the rights of the token. cluster-info is signed with it.
func find(ctx context.Context, s *seed.Seed) (*cluster.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*dialTimeout)
	defer cancel()
	dialing, end := context.WithTimeout(ctx, dialTimeout)
	conn, err := dialer.Dial(dialing, "tcp", s.Endpoint())
	end()
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err
		}
		return nil, err
	}
	_ = conn.Close()
	found, err := discovery.Find(ctx, config.Discovery{Token: s.Token, TLSBootstrapToken: s.Token, APIServerEndpoint: s.Endpoint(), UnsafeSkipCAVerification: true, Timeout: 2 * dialTimeout}, nil)
	if err != nil {
		return nil, err
	}
	return cluster.New(found.Kubeconfig, "")
}

func report(ctx context.Context, client *cluster.Client, name string, c Claim) error {
	c.Message, c.Time = clean(c.Message), time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{name: string(text)}})
	if err == nil {
		_, err = client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(ctx, objectName, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("reporting to the cluster: %w", err)
	}
	return nil
}

// clean makes one short line of a text from another host.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxMessage {
		text = string(runes[:maxMessage-1]) + "…"
	}
	return strings.TrimSpace(text)
}

// access lets hosts with the token of a seed write this one ConfigMap.
func access() (*rbacv1.Role, *rbacv1.RoleBinding) {
	meta := metav1.ObjectMeta{Name: objectName, Namespace: metav1.NamespaceSystem}
	return &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{objectName}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: objectName},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: seed.Group}}}
}

// connect returns this host, a control plane, with a client of its cluster.
func (b *site) connect() (*host.Host, *cluster.Client, error) {
	h, err := host.Open(b.root)
	if err != nil {
		return nil, nil, err
	}
	client, err := agent.Connect(h)
	return h, client, err
}

func (b *site) Lead(ctx context.Context, s *seed.Seed) (missing []string, err error) {
	h, client, err := b.connect()
	if err != nil {
		return nil, err
	}
	return lead(ctx, client, h, s)
}

func lead(ctx context.Context, client *cluster.Client, h *host.Host, s *seed.Seed) (missing []string, err error) {
	maps := client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: objectName}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the ConfigMap for reports: %w", err)
	}
	role, binding := access()
	if _, err := client.Apply(ctx, role, binding); err != nil {
		return nil, err
	}
	first := s.First().Name
	rows, err := rowsOf(ctx, client, recordOf(s, s.First()).Hosts)
	if err != nil {
		return nil, err
	}
	joins := false
	nodes := map[string]bool{}
	for _, r := range rows {
		nodes[r.Name] = r.Node != ""
		if r.Node != nodeReady || r.Name != first && r.State != seed.Done {
			missing = append(missing, r.Name)
			joins = joins || r.Role == cluster.ControlPlaneRole
		}
		if r.Name == first && r.State != seed.Done {
			if err := report(ctx, client, first, Claim{State: seed.Done}); err != nil {
				return nil, err
			}
		}
	}
	if joins {
		if _, err := client.UploadCerts(ctx, os.DirFS(h.Path("/")), node.Observe(h).PKI(), s.CertificateKey); err != nil {
			return nil, err
		}
		if _, err := client.Apply(ctx, render.UploadCertsRBAC()...); err != nil {
			return nil, err
		}
	}
	wanted, err := s.Meta()
	if err != nil {
		return nil, err
	}
	var metas []cluster.NodeMeta
	for _, m := range wanted {
		if nodes[m.Name] {
			metas = append(metas, cluster.NodeMeta(m))
		}
	}
	if len(metas) > 0 {
		if _, err := agent.SetNodes(ctx, client, metas, false); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (b *site) End(ctx context.Context, s *seed.Seed) error {
	_, client, err := b.connect()
	if err != nil {
		return err
	}
	return end(ctx, client, s)
}

func end(ctx context.Context, client *cluster.Client, s *seed.Seed) error {
	if _, err := agent.DeleteCredentials(ctx, client, agent.Credentials{Token: s.Token, CertificateKey: s.CertificateKey}); err != nil {
		return err
	}
	rbac := client.API.RbacV1()
	for _, err := range []error{
		rbac.RoleBindings(metav1.NamespaceSystem).Delete(ctx, objectName, metav1.DeleteOptions{}),
		rbac.Roles(metav1.NamespaceSystem).Delete(ctx, objectName, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the permission to report: %w", err)
		}
	}
	return nil
}

const (
	nodeReady    = "Ready"
	nodeNotReady = "NotReady"
)

// A HostStatus is a host of a seed, as the cluster has it.
type HostStatus struct {
	seed.Row
	// State, Message and Time are what the host claims.
	State   string     `json:"state"`
	Message string     `json:"message,omitempty"`
	Time    *time.Time `json:"time,omitempty"`
	Node    string     `json:"node,omitempty"` // Ready, NotReady, or "" without a Node
}

// rowsOf returns the hosts with their claims and Nodes. Claims of other names are ignored.
func rowsOf(ctx context.Context, client *cluster.Client, hosts []seed.Row) (rows []HostStatus, err error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	claims, err := client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, objectName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the reports of the hosts: %w", err)
	}
	for _, host := range hosts {
		row := HostStatus{Row: host, State: seed.Waiting}
		var c Claim
		if text := claims.Data[host.Name]; text != "" && json.Unmarshal([]byte(text), &c) == nil && slices.Contains([]string{seed.Waiting, seed.Running, seed.Failed, seed.Done}, c.State) {
			row.State, row.Message, row.Time = c.State, clean(c.Message), &c.Time
		}
		if i := slices.IndexFunc(nodes, func(n cluster.NodeState) bool { return n.Name == host.Name }); i >= 0 {
			row.Node = nodeNotReady
			if nodes[i].Ready {
				row.Node = nodeReady
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// A Status is what this host knows about its seed.
type Status struct {
	*seed.Record
	// Rows are all hosts; only on a control plane whose API server answers.
	Rows []HostStatus `json:"rows,omitempty"`
	// Unknown is why there are no rows.
	Unknown string `json:"unknown,omitempty"`
}

// ReadStatus returns the status of the seed on this host, nil if it has taken none.
func ReadStatus(ctx context.Context, root string) (*Status, error) {
	r, err := seed.ReadRecord(root)
	if r == nil || err != nil {
		return nil, err
	}
	s := &Status{Record: r}
	h, err := host.Open(root)
	if err != nil || !node.FileExists(h, node.AdminConf) {
		return s, err
	}
	client, err := agent.Connect(h)
	if err == nil {
		s.Rows, err = rowsOf(ctx, client, r.Hosts)
	}
	if err != nil {
		s.Unknown = clean(err.Error())
	}
	return s, nil
}

func rootOf(root string) filesystem.Root { return filesystem.Root(root) }

// observed returns of which cluster a host is a node, "" for none.
func observed(h *host.Host) (text string) {
	o := node.Observe(h)
	if !o.IsNode {
		return ""
	}
	id, _ := o.Identity() // what it cannot read is left out
	text = "the node " + id.Node
	if id.Cluster != "" {
		text += " of cluster " + id.Cluster
	}
	return text
}
