package pki

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// Renew renews a certificate of RenewableNames, expired or not, with a new key and
// the same subject, names, addresses and usages. A kubeconfig keeps its other
// contents, but gets the current CA.
//
// The key has cfg's algorithm, or, unlike in kubeadm, the old key's algorithm: v1beta3 has no field
// for the algorithm, so a cluster with ECDSA keys would get RSA keys one by one.
//
// A missing file, a CA without its key, and an expired CA are errors.
func Renew(cfg *config.Config, host fs.FS, now time.Time, name string) (Result, error) {
	return renew(cfg, host, now, name, func(*Certificate) bool { return true })
}

// Rename renews a serving certificate, "apiserver", "etcd-server" or "etcd-peer", with the names and addresses that cfg gives
// it in addition to what it has, and without those to remove, which cfg does not give it, in any spelling. The result is empty
// if it has exactly these, and its key: a run that was killed may have written only the key.
func Rename(cfg *config.Config, host fs.FS, now time.Time, name string, remove ...string) (Result, error) {
	table, err := Certificates(cfg)
	if err != nil {
		return Result{}, err
	}
	var removed []netip.Addr
	for _, one := range remove {
		if ip, err := netip.ParseAddr(one); err == nil {
			removed = append(removed, ip.Unmap())
		}
	}
	wanted := table[slices.IndexFunc(table, func(c Certificate) bool { return c.Name == name })]
	return renew(cfg, host, now, name, func(c *Certificate) bool {
		before := *c
		c.DNSNames = slices.DeleteFunc(slices.Clone(c.DNSNames), func(name string) bool { return slices.Contains(remove, name) })
		c.IPs = slices.DeleteFunc(slices.Clone(c.IPs), func(ip netip.Addr) bool { return slices.Contains(removed, ip) })
		for _, name := range wanted.DNSNames {
			if !slices.Contains(c.DNSNames, name) {
				c.DNSNames = append(c.DNSNames, name)
			}
		}
		for _, ip := range wanted.IPs {
			if !slices.Contains(c.IPs, ip) {
				c.IPs = append(c.IPs, ip)
			}
		}
		slices.Sort(c.DNSNames)
		slices.SortFunc(c.IPs, netip.Addr.Compare)
		return !hasItsKey(cfg, host, wanted) || !sameElements(before.DNSNames, c.DNSNames, strings.Compare) || !sameElements(before.IPs, c.IPs, netip.Addr.Compare)
	})
}

// hasItsKey reports whether the file with the key of a certificate has that key.
func hasItsKey(cfg *config.Config, host fs.FS, c Certificate) bool {
	cert, err := read(host, c.certPath(cfg))
	if err != nil {
		return false
	}
	key, err := read(host, c.keyPath(cfg))
	if err != nil {
		return false
	}
	_, err = tls.X509KeyPair(cert, key)
	return err == nil
}

// sameElements reports whether a list, sorted, equals a sorted one.
func sameElements[T comparable](list, sorted []T, compare func(a, b T) int) bool {
	return slices.Equal(slices.SortedFunc(slices.Values(list), compare), sorted)
}

// renew is Renew with a change of the old certificate's profile. If change returns false, the certificate stays.
func renew(cfg *config.Config, host fs.FS, now time.Time, name string, change func(*Certificate) bool) (Result, error) {
	if err := known([]string{name}, RenewableNames()); err != nil {
		return Result{}, err
	}
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	all := expiring(cfg)
	i := slices.IndexFunc(all, func(h Expiration) bool { return h.Name == name })
	if i < 0 {
		return Result{}, fault.New(fault.Failure, "%s does not belong to this cluster: etcd is external", name).Hint("renew it where etcd's certificates are managed")
	}
	h := all[i]
	data, err := read(host, h.File)
	if err != nil {
		return Result{}, err
	}
	if data == nil {
		return Result{}, fault.New(fault.Failure, "%s does not exist", h.File).
			Hint("create missing files with './install init phase' or './install join phase'")
	}
	old, err := h.parse(data)
	if err != nil {
		return Result{}, err
	}
	c := renewed(cfg, name, old)
	if !change(&c) {
		return Result{}, nil
	}
	ca, err := loadAuthority(cfg, host, row(h.CA), now)
	switch {
	case err != nil:
		return Result{}, err
	case ca.cert == nil:
		return Result{}, fault.New(fault.Failure, "%s cannot be renewed: its CA, %s, does not exist", h.File, row(h.CA).certPath(cfg)).Hint("set the correct directory with --cert-dir")
	case ca.external():
		return Result{}, fault.New(fault.Failure, "%s cannot be renewed here: the key of the CA %s is not on this host, it is managed externally", h.File, ca.path).
			Hint("have that CA sign a new one ('./install certs generate-csr' creates the requests), or provide the CA's key")
	}

	key, err := newKey(cmp.Or(cfg.EncryptionAlgorithm, algorithmOf(old.PublicKey)))
	if err != nil {
		return Result{}, fmt.Errorf("renewing %s: %w", h.File, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Result{}, fmt.Errorf("renewing %s: %w", h.File, err)
	}
	cert, err := ca.issue(cfg, c, key, now)
	if err != nil {
		return Result{}, fmt.Errorf("renewing %s: %w", h.File, err)
	}
	certPEM := encodePEM(certType, cert.Raw)
	if h.isKubeconfig() {
		data, err := withClient(data, ca.trusted(), certPEM, keyPEM)
		if err != nil {
			return Result{}, unusable(h.File, err)
		}
		return Result{Files: []File{{Path: h.File, Data: data, Mode: keyMode}}}, nil
	}
	return Result{Files: []File{
		{Path: row(name).keyPath(cfg), Data: keyPEM, Mode: keyMode},
		{Path: h.File, Data: certPEM, Mode: certMode},
	}}, nil
}

// renewed is the profile of a renewed certificate: as in kubeadm, the old certificate's profile.
func renewed(cfg *config.Config, name string, old *x509.Certificate) Certificate {
	c := Certificate{
		Name:          name,
		CommonName:    old.Subject.CommonName,
		Organizations: slices.Clone(old.Subject.Organization),
		DNSNames:      old.DNSNames,
		Usages:        old.ExtKeyUsage,
	}
	for _, ip := range old.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			c.IPs = append(c.IPs, addr.Unmap())
		}
	}
	if _, err := version.ParseSemantic(cfg.KubernetesVersion); err != nil || KubeletClientByName(cfg.KubernetesVersion) {
		return c
	}
	// In clusters from before v1.29, these clients are in system:masters.
	switch name {
	case "apiserver-kubelet-client":
		c.Organizations = slices.DeleteFunc(c.Organizations, func(o string) bool { return o == systemPrivilegedGroup })
		if !slices.Contains(c.Organizations, ClusterAdminsGroup) {
			c.Organizations = append(c.Organizations, ClusterAdminsGroup)
		}
	case "apiserver-etcd-client", "etcd-healthcheck-client":
		c.Organizations = slices.DeleteFunc(c.Organizations, func(o string) bool { return o == systemPrivilegedGroup })
	}
	return c
}

// withClient sets the CA, unless that is nil, and the client certificate and key in the current context
// of a valid kubeconfig.
func withClient(data, caPEM, certPEM, keyPEM []byte) ([]byte, error) {
	return editKubeconfig(data, func(doc, ctx map[string]any) error {
		user, err := named(doc, "users", "user", ctx["user"])
		if err != nil {
			return err
		}
		user["client-certificate-data"] = base64.StdEncoding.EncodeToString(certPEM)
		user["client-key-data"] = base64.StdEncoding.EncodeToString(keyPEM)
		delete(user, "client-certificate")
		delete(user, "client-key")
		if caPEM == nil {
			return nil
		}
		return setTrust(doc, ctx, caPEM)
	})
}

// editKubeconfig edits the current context of a valid kubeconfig, and keeps everything else.
func editKubeconfig(data []byte, edit func(doc, ctx map[string]any) error) ([]byte, error) {
	var doc map[string]any
	if err := documents.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	ctx, err := named(doc, "contexts", "context", doc["current-context"])
	if err == nil {
		err = edit(doc, ctx)
	}
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(doc)
}

// setTrust sets the CA of a context's cluster, unless the cluster names a file.
func setTrust(doc, ctx map[string]any, caPEM []byte) error {
	cluster, err := named(doc, "clusters", "cluster", ctx["cluster"])
	if err != nil {
		return err
	}
	if _, byFile := cluster["certificate-authority"]; !byFile {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(caPEM)
	}
	return nil
}

// named returns the entry of a kubeconfig's list with this name.
func named(doc map[string]any, list, field string, name any) (map[string]any, error) {
	entries, _ := doc[list].([]any)
	for _, entry := range entries {
		if e, ok := entry.(map[string]any); ok && e["name"] == name {
			if value, ok := e[field].(map[string]any); ok {
				return value, nil
			}
		}
	}
	return nil, fmt.Errorf("its %s have no %q", list, name)
}

// Restart returns the static pods, sorted, that use the old certificates until
// they are restarted after a renewal of the named ones. There is none for the
// administrators' kubeconfigs and for the certificate of etcd's health checks.
func Restart(names ...string) []string {
	var pods []string
	for _, name := range names {
		switch name {
		case "apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "front-proxy-client":
			pods = append(pods, "kube-apiserver")
		case "etcd-server", "etcd-peer":
			pods = append(pods, "etcd")
		case "controller-manager.conf", "scheduler.conf":
			pods = append(pods, "kube-"+strings.TrimSuffix(name, ".conf"))
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// ReadAtStart returns the renewable file that a static pod reads only when it starts, or "": a kubeconfig
// that contains its certificate. The API server and etcd read renewed certificates while they run.
func ReadAtStart(pod string) string {
	switch pod {
	case "kube-controller-manager", "kube-scheduler":
		return path.Join(config.KubernetesDir, strings.TrimPrefix(pod, "kube-")+".conf")
	}
	return ""
}
