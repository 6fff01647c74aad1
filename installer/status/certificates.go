package status

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
)

// A Certificate is a certificate on this host.
type Certificate struct {
	Name    string    `json:"name"` // kubeadm's, or kubelet-client and kubelet-serving
	File    string    `json:"file"`
	CA      string    `json:"ca,omitempty"` // empty for a CA
	Expires time.Time `json:"expires"`
	// Seconds until then, negative if it has expired.
	Seconds  int64 `json:"seconds"`
	External bool  `json:"external"` // the key of its CA is not on this host
	Missing  bool  `json:"missing"`
}

// expiresSoon is when status warns. kubelets renew their certificates earlier.
const expiresSoon = 30 * 24 * time.Hour

func (r *Reader) readCertificates(context.Context) (found result, err error) {
	if r.node.role == NoNode {
		return found, notHere{"this host is not a node of a cluster"}
	}
	now := time.Now()
	var list []Certificate
	if r.node.role == ControlPlane {
		certs, authorities, failed := pki.Expirations(r.node.pkiConfig(), os.DirFS(r.Host.Path("/")))
		err = failed
		for _, e := range slices.Concat(certs, authorities) {
			c := Certificate{Name: e.Name, File: e.File, CA: e.CA, External: e.External, Missing: e.Missing}
			if !e.Missing {
				c.Expires, c.Seconds = e.NotAfter, int64(e.NotAfter.Sub(now)/time.Second)
			}
			list = append(list, c)
		}
	}
	list = append(list, r.kubeletCertificates(now)...)
	slices.SortStableFunc(list, func(a, b Certificate) int { return cmp.Compare(a.Seconds, b.Seconds) })
	found.set = func(s *Status) { s.Certificates = list }
	rotation := path.Join(r.node.pkiConfig().CertificatesDir, pki.RotationDir)
	if _, err := os.Stat(r.Host.Path(rotation)); err == nil {
		found.warn("./install certs rotate-ca status", "the CAs are being rotated: %s exists", rotation)
	}
	for _, c := range list {
		left := time.Duration(c.Seconds) * time.Second
		fix := "./install certs renew " + c.Name
		switch {
		case c.CA == "":
			fix = "replace it before that, on all nodes: ./install certs rotate-ca --help"
		case strings.HasPrefix(c.Name, "kubelet-"):
			fix = "the kubelet renews it while the API server answers; if it has expired, see ./install docs certificates"
		case c.External:
			fix = "have it signed again by its CA: ./install certs generate-csr"
		}
		switch {
		case c.Missing: // super-admin.conf exists on the first control plane only
		case left <= 0:
			found.problem(fix, "the certificate %s has expired, %s ago", c.Name, days(-left))
		case left < expiresSoon:
			found.warn(fix, "the certificate %s expires in %s", c.Name, days(left))
		}
	}
	return found, err
}

// PKIConfig returns where the certificates of a control plane are, and whether its etcd is external, by
// the flags of its static pods. It has kubeadm's directory for a host without them.
func PKIConfig(h *host.Host) *config.Config {
	n := readNodeFiles(h)
	return n.pkiConfig()
}

// IdentityOf returns which node of which cluster a host is, as its files have it. The error is why the CAs are not known.
func IdentityOf(h *host.Host) (ledger.Identity, error) {
	n := readNodeFiles(h)
	id := ledger.Identity{Node: n.name, Role: n.role}
	if manager := n.pod("kube-controller-manager"); manager != nil {
		id.Cluster = manager.Flags["cluster-name"]
	}
	ca, err := os.ReadFile(h.Path(path.Join(n.pkiConfig().CertificatesDir, "ca.crt")))
	if err == nil {
		id.CAs, err = pki.CAHashes(ca)
	}
	return id, err
}

func (n *nodeFiles) pkiConfig() *config.Config {
	cfg := &config.Config{Cluster: config.Cluster{CertificatesDir: config.CertificatesDir}}
	api := n.pod("kube-apiserver")
	if api == nil || api.Err != nil {
		return cfg
	}
	cfg.Cluster.CertificatesDir = certificatesDir(api.Flags)
	if n.pod("etcd") == nil {
		cfg.Etcd.External = &config.ExternalEtcd{
			Endpoints: strings.Split(api.Flags["etcd-servers"], ","), CAFile: api.Flags["etcd-cafile"], CertFile: api.Flags["etcd-certfile"], KeyFile: api.Flags["etcd-keyfile"],
		}
	}
	return cfg
}

// ownFiles are the files that kubeadm gives to kube-apiserver from its directory of certificates, by their flags. Each flag may be
// set to a file of the site.
var ownFiles = map[string]string{
	"client-ca-file": "ca.crt", "tls-cert-file": "apiserver.crt", "tls-private-key-file": "apiserver.key",
	"service-account-key-file": "sa.pub", "service-account-signing-key-file": "sa.key",
	"kubelet-client-certificate": "apiserver-kubelet-client.crt", "proxy-client-cert-file": "front-proxy-client.crt", "requestheader-client-ca-file": "front-proxy-ca.crt",
}

// certificatesDir returns the directory of most of the files with kubeadm's names. Of two with as many, kubeadm's own counts, else
// the first by name.
func certificatesDir(flags map[string]string) string {
	files := map[string]int{}
	for flag, name := range ownFiles {
		if file := flags[flag]; path.IsAbs(file) && path.Base(file) == name {
			files[path.Dir(file)]++
		}
	}
	best := config.CertificatesDir
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if files[dir] > files[best] {
			best = dir
		}
	}
	return best
}

// kubeletCertificates returns the existing certificates that the kubelet manages.
func (r *Reader) kubeletCertificates(now time.Time) (list []Certificate) {
	for name, file := range map[string]string{"kubelet-client": "kubelet-client-current.pem", "kubelet-serving": "kubelet-server-current.pem"} {
		file = path.Join(config.KubeletPKIDir, file)
		data, err := os.ReadFile(r.Host.Path(file))
		if err != nil {
			continue
		}
		if certs, err := pki.ParseCertificates(data); err == nil {
			list = append(list, Certificate{
				Name: name, File: file, CA: "ca", Expires: certs[0].NotAfter.UTC(), Seconds: int64(certs[0].NotAfter.Sub(now) / time.Second),
				External: r.node.role == Worker,
			})
		}
	}
	return list
}
