// Package pki creates the certificates, keys and kubeconfigs of a cluster, with
// kubeadm's files, names and profiles. It is pure: it reads the host's files from
// an fs.FS, and returns a list of files to write.
package pki

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// A Certificate is one row of the table: kubeadm's profile of the certificate with
// that name (cmd/kubeadm/app/phases/certs/certlist.go).
type Certificate struct {
	Name          string // kubeadm's name for it, as in `init phase certs NAME`
	Doc           string // what it is for
	Base          string // the file's path in the certificates directory, without ".crt"
	CA            string // the Name of the signer; "" for a CA, which signs itself
	CommonName    string
	Organizations []string
	DNSNames      []string     // sorted, each once
	IPs           []netip.Addr // each once
	Usages        []x509.ExtKeyUsage
}

// Groups and names that RBAC or the API server's flags refer to.
const (
	ClusterAdminsGroup    = "kubeadm:cluster-admins"
	systemPrivilegedGroup = "system:masters"
	nodesGroup            = "system:nodes"
	nodeUserPrefix        = "system:node:"
)

var (
	serverAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	// etcd also uses its server certificate as a client certificate, for
	// connections to itself (github.com/etcd-io/etcd/issues/9785).
	bothAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// item is a row without the profile: a file, or a pair of files, that a phase creates by itself.
func item(name, doc, base, ca string) Certificate {
	return Certificate{Name: name, Doc: doc, Base: base, CA: ca}
}

// items are kubeadm's sub-phases of `certs`, in its order.
var items = []Certificate{
	item("ca", "the cluster's certificate authority", "ca", ""),
	item("apiserver", "the API server's serving certificate", "apiserver", "ca"),
	item("apiserver-kubelet-client", "the API server's client certificate for kubelets", "apiserver-kubelet-client", "ca"),
	item("front-proxy-ca", "the certificate authority of the front proxy, for extension API servers", "front-proxy-ca", ""),
	item("front-proxy-client", "the API server's client certificate for extension API servers", "front-proxy-client", "front-proxy-ca"),
	item("etcd-ca", "etcd's certificate authority", "etcd/ca", ""),
	item("etcd-server", "etcd's serving certificate", "etcd/server", "etcd-ca"),
	item("etcd-peer", "the certificate for traffic between etcd members", "etcd/peer", "etcd-ca"),
	item("etcd-healthcheck-client", "the client certificate for etcd health checks", "etcd/healthcheck-client", "etcd-ca"),
	item("apiserver-etcd-client", "the API server's client certificate for etcd", "apiserver-etcd-client", "etcd-ca"),
	item("sa", "the key pair that signs service-account tokens", "sa", ""),
}

// fixed is the part of the table that does not depend on names and addresses in
// the configuration. With an external etcd, it has none of etcd's certificates.
func fixed(cfg *config.Config) []Certificate {
	return slices.DeleteFunc(slices.Clone(items), func(c Certificate) bool {
		return c.Name == "sa" || cfg.Etcd.External != nil && (c.Name == "etcd-ca" || c.CA == "etcd-ca")
	})
}

// row is the row of items with this name.
func row(name string) Certificate {
	return items[slices.IndexFunc(items, func(c Certificate) bool { return c.Name == name })]
}

// Names are the names that Ensure knows, in kubeadm's order.
func Names() []string { return names(items) }

// FileNames are the paths in the certificates directory of all files that kubeadm writes there.
func FileNames() (files []string) {
	for _, i := range items {
		files = append(files, i.Base+".crt", i.Base+".key")
		if i.Name == "sa" {
			files[len(files)-2] = i.Base + ".pub"
		}
	}
	return files
}

// Doc describes a name of Names or KubeconfigNames in a few words; "" for any
// other name.
func Doc(name string) string {
	for _, i := range slices.Concat(items, kubeconfigItems) {
		if i.Name == name {
			return i.Doc
		}
	}
	return ""
}

func names(items []Certificate) (list []string) {
	for _, i := range items {
		list = append(list, i.Name)
	}
	return list
}

// KubeletClientByName reports how a version of Kubernetes authorizes the API
// server at kubelets: by its user name, with a ClusterRoleBinding, or otherwise by
// the administrators' group in its certificate. kubeadm switched to the name in
// v1.37 and in these earlier patch releases
// (github.com/kubernetes/kubernetes/pull/138957).
func KubeletClientByName(kubernetes string) bool {
	v, err := version.ParseSemantic(kubernetes)
	if err != nil {
		return false
	}
	since := map[uint]uint{33: 12, 34: 8, 35: 5, 36: 1}
	patch, changed := since[v.Minor()]
	return v.Major() == 1 && (v.Minor() >= 37 || changed && v.Patch() >= patch)
}

// Certificates is the table of all certificates of a control plane, each CA before
// the certificates that it signs. With an external etcd, it has none of etcd's.
func Certificates(cfg *config.Config) ([]Certificate, error) {
	node := cfg.NodeRegistration.Name
	own, err := netip.ParseAddr(cfg.LocalAPIEndpoint.AdvertiseAddress)
	if err != nil {
		return nil, fmt.Errorf("parsing the API server's advertise address: %w", err)
	}
	service, err := cfg.Networking.ServiceIP(config.KubernetesServiceIndex)
	if err != nil {
		return nil, err
	}

	api := sans{
		names: []string{node, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + cfg.Networking.DNSDomain},
		ips: []netip.Addr{service, own},
	}
	if cfg.ControlPlaneEndpoint != "" {
		host, _, err := config.SplitEndpoint(cfg.ControlPlaneEndpoint, 0)
		if err != nil {
			return nil, fmt.Errorf("reading the control-plane endpoint: %w", err)
		}
		if err := api.add("the control-plane endpoint", host); err != nil {
			return nil, err
		}
	}
	if err := api.add("the API server's certSANs", cfg.APIServer.CertSANs...); err != nil {
		return nil, err
	}

	local := []netip.Addr{own, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	server := sans{names: []string{node, "localhost"}, ips: local}
	if err := server.add("etcd's serverCertSANs", cfg.Etcd.Local.ServerCertSANs...); err != nil {
		return nil, err
	}
	peer := sans{names: []string{node, "localhost"}, ips: local}
	if err := peer.add("etcd's peerCertSANs", cfg.Etcd.Local.PeerCertSANs...); err != nil {
		return nil, err
	}
	kubeletClients := []string{ClusterAdminsGroup}
	if KubeletClientByName(cfg.KubernetesVersion) {
		kubeletClients = nil
	}

	profiles := map[string]Certificate{
		"ca":                       {CommonName: "kubernetes"},
		"apiserver":                {CommonName: "kube-apiserver", DNSNames: api.dnsNames(), IPs: api.addresses(), Usages: serverAuth},
		"apiserver-kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Organizations: kubeletClients, Usages: clientAuth},
		"front-proxy-ca":           {CommonName: "front-proxy-ca"},
		"front-proxy-client":       {CommonName: "front-proxy-client", Usages: clientAuth},
		"etcd-ca":                  {CommonName: "etcd-ca"},
		"etcd-server":              {CommonName: node, DNSNames: server.dnsNames(), IPs: server.addresses(), Usages: bothAuth},
		"etcd-peer":                {CommonName: node, DNSNames: peer.dnsNames(), IPs: peer.addresses(), Usages: bothAuth},
		"etcd-healthcheck-client":  {CommonName: "kube-etcd-healthcheck-client", Usages: clientAuth},
		"apiserver-etcd-client":    {CommonName: "kube-apiserver-etcd-client", Usages: clientAuth},
	}
	table := fixed(cfg)
	for i, c := range table {
		p := profiles[c.Name]
		p.Name, p.Doc, p.Base, p.CA = c.Name, c.Doc, c.Base, c.CA
		table[i] = p
	}
	return table, nil
}

func (c Certificate) certPath(cfg *config.Config) string {
	return path.Join(cfg.CertificatesDir, c.Base+".crt")
}

func (c Certificate) keyPath(cfg *config.Config) string {
	return path.Join(cfg.CertificatesDir, c.Base+".key")
}

// sans collects subject alternative names.
type sans struct {
	names []string
	ips   []netip.Addr
}

// add adds values as addresses or DNS names; origin is the field they come from.
func (s *sans) add(origin string, values ...string) error {
	for _, v := range values {
		if ip, err := netip.ParseAddr(v); err == nil {
			s.ips = append(slices.Clip(s.ips), ip)
			continue
		}
		if len(validation.IsDNS1123Subdomain(v)) > 0 && len(validation.IsWildcardDNS1123Subdomain(v)) > 0 {
			return fault.New(fault.Usage, "%s contain %q, which is neither an IP address nor a DNS name", origin, v).
				Hint("use an IP address, a lower-case DNS name or a wildcard such as *.example.com")
		}
		s.names = append(slices.Clip(s.names), v)
	}
	return nil
}

func (s sans) dnsNames() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.names)))
}

func (s sans) addresses() []netip.Addr {
	var once []netip.Addr
	for _, ip := range s.ips {
		if !slices.Contains(once, ip) {
			once = append(once, ip)
		}
	}
	return once
}
