package model

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"airlift/installer/config"
	"airlift/installer/pki"
)

const (
	bootstrapConf = config.KubernetesDir + "/bootstrap-kubelet.conf"
	kubeletConf   = config.KubernetesDir + "/kubelet.conf"
	kubeletCert   = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// signClusterInfo signs cluster-info for each bootstrap token, as the controller manager does.
func (c *etcdCluster) signClusterInfo() {
	c.update("configmaps/kube-public/cluster-info", func(o map[string]any) {
		for key := range c.data {
			if !strings.HasPrefix(key, "secrets/kube-system/bootstrap-token-") {
				continue
			}
			secret := c.object(key)
			id := fromBase64(text(secret, "data", "token-id"))
			if signature, err := jws.ComputeDetachedSignature(text(o, "data", "kubeconfig"), id, fromBase64(text(secret, "data", "token-secret"))); err == nil {
				set(o, signature, "data", "jws-kubeconfig-"+id)
			}
		}
	})
}

// renewToken makes the token of the model valid for a day, as 'token create' on a control plane does. The
// caller holds w.mu.
func (c *etcdCluster) renewToken() {
	id, secret, _ := strings.Cut(token, ".")
	data := map[string]any{"expiration": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339), "token-id": id, "token-secret": secret,
		"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"}
	for k, v := range data {
		data[k] = toBase64(v.(string))
	}
	c.store("secrets/kube-system/bootstrap-token-"+id, map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]any{"name": "bootstrap-token-" + id, "namespace": "kube-system"}, "data": data})
}

// caHashes returns the hashes of the CAs of a control plane, for join.
func (h *Host) caHashes() ([]string, error) {
	return pki.CAHashes([]byte(h.read(config.CertificatesDir + "/ca.crt")))
}

// bootstrap gets the certificate of the kubelet with its bootstrap token. The caller holds w.mu.
func (h *Host) bootstrap() error {
	if h.exists(kubeletConf) || !h.exists(bootstrapConf) {
		return nil
	}
	if h.world.api() == nil {
		return errors.New("no API server answers")
	}
	kubeconfig, err := clientcmd.Load([]byte(h.read(bootstrapConf)))
	if err != nil {
		return err
	}
	cert, err := h.world.sign(h.Name)
	if err != nil {
		return err
	}
	dated := strings.Replace(kubeletCert, "current", time.Now().Format("2006-01-02-15-04-05"), 1)
	if err := h.put(dated, cert, 0o600); err != nil {
		return err
	}
	link := h.hostPath(kubeletCert)
	_ = os.Remove(link)
	if err := os.Symlink(filepath.Base(dated), link); err != nil {
		return err
	}
	for name := range kubeconfig.AuthInfos {
		kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: kubeletCert, ClientKey: kubeletCert}
	}
	data, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return err
	}
	return h.put(kubeletConf, string(data), 0o600)
}

// sign returns a certificate and key of a kubelet, which a controller manager signs.
func (w *World) sign(node string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	cert, err := w.signPublic(pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, key.Public())
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalECPrivateKey(key)
	return cert + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})), err
}

// signPublic returns a client certificate that the leading controller manager signs.
func (w *World) signPublic(subject pkix.Name, key any) (string, error) {
	return w.signTemplate(&x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, key)
}

// signTemplate returns a certificate that the leading controller manager signs.
func (w *World) signTemplate(template *x509.Certificate, key any) (string, error) {
	leader := w.leader()
	if leader == nil {
		return "", errors.New("no controller manager signs")
	}
	f := leader.flags
	ca, err := tls.LoadX509KeyPair(leader.host.hostPath(f["cluster-signing-cert-file"]), leader.host.hostPath(f["cluster-signing-key-file"]))
	if err != nil {
		return "", err
	}
	issuer, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return "", err
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), issuer.NotBefore, time.Now().AddDate(1, 0, 0)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key, ca.PrivateKey)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}

// leader returns the controller manager that is the leader, nil if none runs.
func (w *World) leader() *client {
	for _, h := range w.hosts {
		if p := h.pods["kube-controller-manager"]; p != nil && p.container != nil {
			if c, ok := p.container.process.(*client); ok {
				return c
			}
		}
	}
	return nil
}

// signRequests approves and signs the certificate signing requests. It approves none for the serving certificate of a kubelet, and removes
// those that are a day old.
func (c *etcdCluster) signRequests(w *World) {
	for _, key := range slices.Sorted(maps.Keys(c.data)) {
		if !strings.HasPrefix(key, servingRequests) {
			continue
		}
		if time.Since(createdAt(c.object(key))) > 24*time.Hour {
			c.remove(key)
			continue
		}
		c.update(key, func(o map[string]any) {
			block, _ := pem.Decode([]byte(fromBase64(text(o, "spec", "request"))))
			if block == nil || text(o, "status", "certificate") != "" {
				return
			}
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				return
			}
			template := &x509.Certificate{Subject: request.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
			serves := text(o, "spec", "signerName") == certificatesv1.KubeletServingSignerName
			if serves {
				if _, approved, _ := unstructured.NestedSlice(o, "status", "conditions"); !approved {
					return
				}
				template.ExtKeyUsage, template.DNSNames, template.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, request.DNSNames, request.IPAddresses
			}
			if cert, err := w.signTemplate(template, request.PublicKey); err == nil {
				set(o, toBase64(cert), "status", "certificate")
				if !serves {
					set(o, []any{map[string]any{"type": "Approved", "status": "True"}}, "status", "conditions")
				}
			}
		})
	}
}

// publishCA publishes the CAs to all pods.
func (c *etcdCluster) publishCA(bundle string) {
	for _, key := range slices.Sorted(maps.Keys(c.data)) {
		namespace, ok := strings.CutPrefix(key, "namespaces/")
		if !ok {
			continue
		}
		at := "configmaps/" + namespace + "/kube-root-ca.crt"
		if c.data[at] == "" {
			c.store(at, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "kube-root-ca.crt", "namespace": namespace}, "data": map[string]any{}})
		}
		c.update(at, func(o map[string]any) { set(o, bundle, "data", "ca.crt") })
	}
}
