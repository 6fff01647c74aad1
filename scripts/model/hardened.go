package model

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/profile"
	"airlift/installer/serving"
)

// Commands of the profile hardened.
const (
	initHardened = "init --profile hardened"
	harden       = "reconfigure --profile hardened"
	soften       = "reconfigure --profile none"
	// recordAddress records the address of the host Command.Target for its node, on a control plane.
	recordAddress = "node addresses"
	// otherAddress gives a host that is no control plane another address.
	otherAddress = "the host gets another address"
)

// profiles are the values of --profile, by command.
var profiles = map[string]string{initHardened: "hardened", harden: "hardened", soften: "none"}

// isHardened reports whether the API server of a host has the profile.
func (h *Host) isHardened() bool {
	return strings.Contains(h.read("etc/kubernetes/manifests/kube-apiserver.yaml"), profile.Dir)
}

// accounts are how the hosts know the user etcd, by number: not at all, in their files, in LDAP, and only the group.
func accounts(number int) (users, groups string, ldap bool) {
	const user, group = "etcd:x:52:53:of a package:/:/sbin/nologin\n", "etcd:x:53:\n"
	switch number % 5 {
	case 2:
		return user, group, false
	case 3:
		return "", "", true
	case 4:
		return "", group, false
	}
	return "", "", false
}

// inLDAP is in the directory of a host whose systemd-sysusers finds the user etcd in LDAP.
const inLDAP = "opt/user/ldap"

// accountTools are the commands that the installer runs, in the directory of PATH. They get the root directory of a host.
const accountTools = "/var/lib/tools"

// installTools lets the installer find the real tools for accounts, if this machine has them, and dpkg, and no other command.
func installTools() error {
	if err := os.Mkdir(accountTools, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"systemd-sysusers", "userdel", "groupdel", "groupadd"} {
		script := "#!/bin/sh\n[ -e \"${1#--root=}/" + inLDAP + "\" ] || PATH=/usr/sbin:/usr/bin:/sbin:/bin exec " + name + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(accountTools, name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"dpkg", "dpkg-deb", "dpkg-query"} { // with --root
		if err := os.Symlink("/usr/bin/"+name, filepath.Join(accountTools, name)); err != nil {
			return err
		}
	}
	return os.Setenv("PATH", accountTools)
}

// copyAccount copies the user etcd from LDAP to the files of the host, as the hint asks.
func (s *Site) copyAccount(h *Host, hint string) error {
	if !strings.Contains(hint, "getent passwd "+host.EtcdAccount) {
		return nil
	}
	users, groups, _ := accounts(2)
	err := errors.Join(os.Remove(filepath.Join(h.Root, inLDAP)), h.put("etc/passwd", h.read("etc/passwd")+users, 0o644), h.put("etc/group", h.read("etc/group")+groups, 0o644))
	is := h.files()
	for _, list := range []map[string]string{s.before[h.Name], h.asAdopted, h.unchanged, h.former} {
		for _, name := range []string{"/etc/passwd", "/etc/group"} {
			if list[name] != "" {
				list[name] = is[name]
			}
		}
		delete(list, "/"+inLDAP)
	}
	return err
}

// createGroup does what systemd-sysusers does first: it creates the group.
func (h *Host) createGroup() error {
	for line := range strings.Lines(h.read(host.AccountFile)) {
		fields := strings.Fields(line)
		if fields[0] == "g" && !strings.Contains(h.read("etc/group"), fields[1]+":") {
			return h.put("etc/group", h.read("etc/group")+fields[1]+":x:"+fields[2]+":\n", 0o644)
		}
	}
	return nil
}

// A kubeletPort is where the kubelet serves API servers. World.mu guards it.
type kubeletPort struct {
	signed  bool              // its configuration lets the cluster sign its certificate
	cert    *tls.Certificate  // nil while it has none
	key     *ecdsa.PrivateKey // of the request
	request string
	lacks   time.Time // since when it has no valid one, and an API server verifies it
	since   time.Time // when the kubelet started
	stop    func()
}

const servingRequests = "certificatesigningrequests/"

// serveAPI gives the kubelet a certificate, as its configuration had it when it started. The caller holds w.mu.
func (h *Host) serveAPI() error {
	s := h.port
	if s == nil {
		s = &kubeletPort{since: time.Now(), signed: strings.Contains(h.read(config.KubeletConfigFile), "serverTLSBootstrap: true")}
		if !s.signed {
			own, err := ownCertificate()
			if err != nil {
				return err
			}
			s.cert = &own
		} else if pair, err := tls.LoadX509KeyPair(h.hostPath(servingFile), h.hostPath(servingFile)); err == nil {
			s.cert = &pair
		}
		l := h.world.listen(net.JoinHostPort(h.IP, strconv.Itoa(config.KubeletPort)))
		server := &http.Server{ErrorLog: quiet}
		h.world.done.Go(func() {
			_ = server.Serve(tls.NewListener(l, &tls.Config{SessionTicketsDisabled: true, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				h.world.mu.Lock()
				defer h.world.mu.Unlock()
				if s.cert == nil {
					return nil, errors.New("no serving certificate available for the kubelet")
				}
				return s.cert, nil
			}}))
		})
		h.port, s.stop = s, func() { _ = server.Close() }
	}
	c := h.world.api()
	if !s.signed || c == nil || s.isFor(h.addresses()) {
		return nil
	}
	o := c.object(servingRequests + s.request)
	if data := fromBase64(text(o, "status", "certificate")); data != "" && s.key != nil {
		private, err := x509.MarshalECPrivateKey(s.key)
		if err != nil {
			return err
		}
		data += string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
		s.key = nil
		dated := strings.Replace(servingFile, "current", time.Now().Format("2006-01-02-15-04-05"), 1)
		_ = os.Remove(h.hostPath(servingFile))
		pair, err := tls.X509KeyPair([]byte(data), []byte(data))
		s.cert = &pair
		return errors.Join(err, h.put(dated, data, 0o600), os.Symlink(filepath.Base(dated), h.hostPath(servingFile)))
	}
	if o != nil && s.key != nil && time.Since(createdAt(o)) < 15*time.Minute || !h.registers(c) { // a kubelet waits as long
		return nil
	}
	return h.requestServing(c, s)
}

var servingFile = filepath.Join(config.KubeletPKIDir, serving.CertificateName)

func createdAt(o map[string]any) time.Time {
	at, _ := time.Parse(time.RFC3339, text(o, "metadata", "creationTimestamp"))
	return at
}

// addresses are what the kubelet reports.
func (h *Host) addresses() (list []net.IP) {
	for _, a := range []string{h.IP, h.claims} {
		if a != "" {
			list = append(list, net.ParseIP(a))
		}
	}
	return list
}

// isFor reports whether the certificate is for exactly these addresses, and is not about to expire.
func (s *kubeletPort) isFor(list []net.IP) bool {
	return s.cert != nil && slices.EqualFunc(s.cert.Leaf.IPAddresses, list, net.IP.Equal) && time.Until(s.cert.Leaf.NotAfter) > 100*24*time.Hour
}

// requestServing creates the request of the kubelet. The API server names the certificate with which it was made.
func (h *Host) requestServing(c *etcdCluster, s *kubeletPort) (err error) {
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	user := "system:node:" + h.Name
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}, DNSNames: []string{h.Name}, IPAddresses: h.addresses(),
	}, s.key)
	if err != nil {
		return err
	}
	spec := map[string]any{
		"request": toBase64(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))), "username": user, "groups": []any{"system:nodes"},
		"signerName": certificatesv1.KubeletServingSignerName, "usages": []any{"digital signature", "server auth"},
	}
	if block, _ := pem.Decode([]byte(h.read(kubeletCert))); block != nil {
		spec["extra"] = map[string]any{"authentication.kubernetes.io/credential-id": []any{fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))}}
	}
	h.nextID++
	s.request = fmt.Sprintf("csr-%s-%d", h.Name, h.nextID)
	c.store(servingRequests+s.request, map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": s.request}, "spec": spec})
	return nil
}

// approve runs what the service for serving certificates does, if the host has it and a request waits.
func (h *Host) approve() {
	w := h.world
	w.mu.Lock()
	var waiting []string
	u := h.unit(serving.Unit)
	if c := w.api(); c != nil && u.active && !h.off && (h.current == nil || !h.current.dead) {
		for key := range c.data {
			if strings.HasPrefix(key, servingRequests) && !strings.Contains(c.data[key], `"conditions"`) {
				waiting = append(waiting, key)
			}
		}
	}
	if u.invocation != h.approverOf {
		h.approver, h.approverOf = nil, u.invocation
	}
	slices.Sort(waiting)
	waits := strings.Join(waiting, " ")
	if waits == "" || waits == h.refused && time.Since(h.judged) < 20*time.Second { // it judges what it refused again then
		w.mu.Unlock()
		return
	}
	h.judged, h.refused = time.Now(), waits
	w.mu.Unlock()
	r, err := h.process(0)
	if err != nil {
		return
	}
	defer r.cancel()
	if h.approver == nil {
		h.approver, err = serving.NewApprover(os.DirFS(h.Root), func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.ParseIP(h.IP), Mask: net.CIDRMask(24, 32)}}, nil
		}, slog.New(slog.NewTextHandler(noteWriter{h}, nil)))
	}
	again := false
	if err == nil {
		again, err = h.approver.Round(r.ctx)
	}
	if err != nil {
		h.approver = nil
	}
	if again || err != nil {
		h.refused = ""
	}
}

// A noteWriter adds what a service of a host prints to the log of the world.
type noteWriter struct{ host *Host }

func (n noteWriter) Write(line []byte) (int, error) {
	n.host.world.mu.Lock()
	defer n.host.world.mu.Unlock()
	n.host.world.note("%s: %s", n.host.Name, strings.TrimSpace(string(line)))
	return len(line), nil
}

// approved records an approval for an address that the host of the node does not have, and that another node, an API server or the endpoint
// has. The caller holds w.mu.
func (w *World) approved(c *etcdCluster, o map[string]any) {
	block, _ := pem.Decode([]byte(fromBase64(text(o, "spec", "request"))))
	if block == nil || text(o, "spec", "signerName") != certificatesv1.KubeletServingSignerName {
		return
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return
	}
	node := strings.TrimPrefix(request.Subject.CommonName, "system:node:")
	for _, ip := range request.IPAddresses {
		if a := ip.String(); a == Endpoint || a == otherEndpoint {
			w.violateLocked("%s gets a certificate for the endpoint %s", node, a)
		}
		for _, h := range w.hosts {
			if h.Name != node && h.IP == ip.String() && (c.data["nodes/"+h.Name] != "" && h.registered == c.id || h.apiServer() != nil) {
				w.violateLocked("%s gets a certificate for %s, the address of %s", node, ip, h.Name)
			}
		}
	}
}

// distrusts returns why an API server that verifies kubelets does not reach the one of a node that is Ready, "" if it reaches each. of selects
// the hosts. The caller holds w.mu.
func (w *World) distrusts(s *apiServer, c *etcdCluster, of func(h *Host) bool) string {
	if s == nil || s.kubeletCA == "" || c == nil || s.host.outdated() {
		return ""
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.kubeletCA))
	for _, h := range w.hosts {
		if !strings.Contains(c.data["nodes/"+h.Name], `"status":"True","type":"Ready"`) || h.port == nil || h.off || h.registered != c.id || h.mayLack() || !of(h) {
			continue
		}
		if h.port.cert == nil || !h.port.signed {
			return fmt.Sprintf("the API server of %s verifies kubelets, and the one of %s has no signed certificate", s.host.Name, h.Name)
		}
		if _, err := h.port.cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: h.IP}); err != nil {
			return fmt.Sprintf("the API server of %s does not trust the kubelet of %s: %v", s.host.Name, h.Name, err)
		}
	}
	return ""
}

// verifyKubelets records that an API server cannot reach the kubelet of a node that has had the time to get a certificate. The caller holds w.mu.
func (w *World) verifyKubelets(c *etcdCluster) {
	for _, h := range w.hosts {
		why := ""
		for _, plane := range w.hosts {
			if plane.apiServer() != nil && why == "" {
				why = w.distrusts(plane.apiServer(), c, func(o *Host) bool { return o == h })
			}
		}
		switch {
		case why == "" && h.port != nil:
			h.port.lacks = time.Time{}
		case why != "" && h.port.lacks.IsZero():
			h.port.lacks = time.Now()
		case why != "" && time.Since(h.port.lacks) > servingTime:
			w.violateLocked("%s, for %s", why, servingTime)
		}
	}
}

// servingTime is enough for the approval, also if a control plane starts again meanwhile.
const servingTime = 5 * time.Minute

// outdated reports whether the certificate of the API server of a host has expired, which the model uses all the same.
func (h *Host) outdated() bool {
	block, _ := pem.Decode([]byte(h.read(apiServerCert)))
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && time.Now().After(cert.NotAfter)
}

// mayLack reports whether nobody can approve a request of a host: its kubelet reports an address of another host, or another one reports that
// of this host, or its address has changed and is not recorded, or its join was not finished, or its own API server does not answer.
func (h *Host) mayLack() bool {
	return h.moved || h.half || h.controlPlane() && (h.apiServer() == nil || h.outdated()) || slices.ContainsFunc(h.world.hosts, func(o *Host) bool { return o.claims != "" && (o == h || o.claims == h.IP) })
}

// settles reports whether a command begins or ends the membership of a host.
func settles(command string) bool {
	for _, name := range []string{"init", "join", "reset", "etcd restore", "the way back"} {
		if strings.HasPrefix(command, name) {
			return true
		}
	}
	return false
}

// reachesKubelets fails if API servers verify kubelets, and one that is Ready gets no certificate.
func (s *Site) reachesKubelets() error {
	why := ""
	if verifies := func(h *Host) bool { return h.verified }; slices.ContainsFunc(s.hosts, verifies) {
		time.Sleep(10 * kubeletPeriod) // the kubelet starts
	}
	if !s.wait(func() bool {
		why = ""
		if c := s.api(); c != nil {
			for _, h := range s.hosts {
				why = cmp.Or(why, s.distrusts(h.apiServer(), c, func(*Host) bool { return true }))
			}
		}
		return why == ""
	}) {
		return errors.New(why)
	}
	return nil
}

// initHardened makes the host the first control plane of a hardened cluster.
func (r *run) initHardened(b *payload.Bundle) (string, error) {
	r.profile = profiles[initHardened]
	return r.init(b)
}

// recordAddress records the address of a host for its node.
func (r *run) recordAddress(target *Host) (string, error) {
	client, err := cluster.Load(filepath.Join(r.root, config.KubernetesDir, "admin.conf"), "")
	if err == nil {
		_, err = serving.SetAddresses(r.ctx, client, os.DirFS(r.root), target.Name, []string{target.IP})
	}
	if err == nil {
		target.moved = false
	}
	return "", err
}

// move gives the host another address. Its kubelet starts again.
func (h *Host) move() error {
	a := netip.MustParseAddr(h.IP).As4()
	a[3] = (a[3]+4)%10 + 1 // host1 has 10.0.0.1 or 10.0.0.6
	ran := h.unit("kubelet.service").active
	err := h.stop("kubelet.service")
	h.world.mu.Lock()
	h.IP, h.moved = netip.AddrFrom4(a).String(), h.exists(kubeletConf)
	h.world.mu.Unlock()
	if ran {
		err = errors.Join(err, h.start("kubelet.service"))
	}
	return err
}
