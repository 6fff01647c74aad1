package model

import (
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
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"airlift/installer/config"
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

// caHash returns the hash of the CA of a control plane, for join.
func (h *Host) caHash() (string, error) {
	cert, err := parseCert(h.read(config.CertificatesDir + "/ca.crt"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(cert.RawSubjectPublicKeyInfo)), nil
}

func parseCert(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("there is no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
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
	for _, h := range w.hosts {
		p := h.pods["kube-controller-manager"]
		if p == nil || p.container == nil || p.container.process == nil {
			continue
		}
		ca, err := tls.LoadX509KeyPair(h.hostPath(p.flags["cluster-signing-cert-file"]), h.hostPath(p.flags["cluster-signing-key-file"]))
		if err != nil {
			return "", err
		}
		issuer, err := x509.ParseCertificate(ca.Certificate[0])
		if err != nil {
			return "", err
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", err
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: issuer.NotBefore, NotAfter: time.Now().AddDate(1, 0, 0),
			Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), ca.PrivateKey)
		if err != nil {
			return "", err
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return "", err
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})), nil
	}
	return "", errors.New("no controller manager signs")
}
