package pki

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/installer/config"
)

// Renew makes a certificate of RenewableNames anew, with a new key: for the
// same subject, names, addresses and usages, whether it has expired or not.
// A kubeconfig keeps all else that is in it, but trusts the CA of now.
//
// The key is of the kind that cfg asks for and otherwise, unlike kubeadm's, of
// the old one's: v1beta3 has no field for the kind, so that a cluster of ECDSA
// keys would turn into one of RSA keys file by file.
//
// Without the CA's key, without the file, or under a CA that has itself
// expired, the error says so.
func Renew(cfg *config.Config, host fs.FS, now time.Time, name string) (Result, error) {
	if err := known([]string{name}, RenewableNames()); err != nil {
		return Result{}, err
	}
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	all := held(cfg)
	i := slices.IndexFunc(all, func(h Held) bool { return h.Name == name })
	if i < 0 {
		return Result{}, fault.New(fault.Failure, "renew it where etcd's certificates are made", "%s is not this cluster's: etcd is an external one", name)
	}
	h := all[i]
	data, err := read(host, h.File)
	if err != nil {
		return Result{}, err
	}
	if data == nil {
		return Result{}, fault.New(fault.Failure, "'install init phase' and 'install join phase' make files that are missing",
			"%s does not exist", h.File)
	}
	old, err := h.parse(data)
	if err != nil {
		return Result{}, err
	}
	ca, err := loadAuthority(cfg, host, row(h.CA), now)
	switch {
	case err != nil:
		return Result{}, err
	case ca.cert == nil:
		return Result{}, fault.New(fault.Failure, "name the right folder with --cert-dir", "%s cannot be renewed: its CA, %s, does not exist", h.File, row(h.CA).certPath(cfg))
	case ca.external():
		return Result{}, fault.New(fault.Failure, "have a new one signed where that CA is kept ('install certs generate-csr' makes the requests), or provide the CA's key",
			"%s cannot be renewed here: the CA %s has no key here, it is managed externally", h.File, ca.path)
	}

	c := likeness(cfg, name, old)
	kind := cfg.EncryptionAlgorithm
	if kind == "" {
		kind = algorithmOf(old.PublicKey)
	}
	key, err := newKey(kind)
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
		data, err := withClient(data, encodePEM(certType, ca.cert.Raw), certPEM, keyPEM)
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

// likeness is what a renewed certificate takes over from the old one: what
// kubeadm takes over.
func likeness(cfg *config.Config, name string, old *x509.Certificate) Certificate {
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
	// Clusters made before v1.29 gave these clients all rights, for want of
	// a better group.
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

// withClient puts a CA and a client's certificate and key into the current
// context of a kubeconfig, which must have been parsed before, and leaves
// everything else in it as it is.
func withClient(data, caPEM, certPEM, keyPEM []byte) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	ctx, err := named(doc, "contexts", "context", doc["current-context"])
	if err != nil {
		return nil, err
	}
	cluster, err := named(doc, "clusters", "cluster", ctx["cluster"])
	if err != nil {
		return nil, err
	}
	user, err := named(doc, "users", "user", ctx["user"])
	if err != nil {
		return nil, err
	}
	if _, byFile := cluster["certificate-authority"]; !byFile {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(caPEM)
	}
	user["client-certificate-data"] = base64.StdEncoding.EncodeToString(certPEM)
	user["client-key-data"] = base64.StdEncoding.EncodeToString(keyPEM)
	delete(user, "client-certificate")
	delete(user, "client-key")
	return yaml.Marshal(doc)
}

// named returns what a kubeconfig's list holds under a name.
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

// Restart names the static pods that go on with what they had read until they
// are restarted after a renewal of the named certificates, sorted. For the
// administrators' kubeconfigs and the health checks' certificate there is none.
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
