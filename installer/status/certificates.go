package status

import (
	"cmp"
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/serving"
	"airlift/internal/fault"
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
	now := time.Now()
	var list []Certificate
	if r.node.Role == node.ControlPlane {
		certs, authorities, failed := pki.Expirations(r.node.PKI(), os.DirFS(r.Host.Path("/")))
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
	if r.waitsForServing() {
		found.warn("on a control plane, see why the request waits: kubectl get csr; journalctl -u "+serving.Unit,
			"the kubelet has no serving certificate: kubectl logs and exec do not work on this node")
	}
	slices.SortStableFunc(list, func(a, b Certificate) int { return cmp.Compare(a.Seconds, b.Seconds) })
	found.set = func(s *Status) { s.Certificates = list }
	rotation := path.Join(r.node.PKI().CertificatesDir, pki.RotationDir)
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

// requestsServing reports whether the kubelet requests its serving certificate.
func (r *Reader) requestsServing() bool {
	settings, err := node.KubeletConfiguration(r.Host)
	return err == nil && settings.ServerTLSBootstrap && settings.TLSCertFile == ""
}

// findUnrecorded warns of nodes whose next serving certificate no control plane would approve.
func (r *Reader) findUnrecorded(ctx context.Context, client *cluster.Client, found *result) error {
	if !node.FileExists(r.Host, serving.SettingsPath) || !r.requestsServing() {
		return nil
	}
	names, err := serving.Unrecorded(ctx, client)
	for _, name := range names {
		found.warn("./install node addresses "+fault.Word(name)+" ADDRESS",
			"the addresses of the node %s are not recorded: the next serving certificate of its kubelet will not be approved", name)
	}
	return err
}

// waitsForServing reports whether the kubelet has requested a serving certificate, and has none.
func (r *Reader) waitsForServing() bool {
	if !r.requestsServing() {
		return false
	}
	client := cmp.Or(pki.KubeletClientFile(os.DirFS(r.Host.Path("/"))), path.Join(config.KubeletPKIDir, "kubelet-client-current.pem"))
	return !node.FileExists(r.Host, path.Join(path.Dir(client), serving.CertificateName))
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
				External: r.node.Role == node.Worker,
			})
		}
	}
	return list
}
