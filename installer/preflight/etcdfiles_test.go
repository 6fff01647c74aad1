package preflight

import (
	"encoding/pem"
	"strings"
	"testing"

	"airlift/installer/config"
)

func TestFilesOfAnExternalEtcd(t *testing.T) {
	block := func(kind string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("x")}))
	}
	for name, c := range map[string]struct{ path, content, message, fix string }{
		"encrypted key":      {"/etcd/key", block("ENCRYPTED PRIVATE KEY"), "etcd.external.keyFile: /etcd/key: it is an encrypted private key", "openssl pkey -in /etcd/key"},
		"certificate as key": {"/etcd/key", block("CERTIFICATE"), "a certificate, not a private key", "the private key"},
		"key as CA":          {"/etcd/ca", block("EC PRIVATE KEY"), "etcd.external.caFile: /etcd/ca: it is a private key", "the certificate"},
		"PKCS#12":            {"/etcd/cert", "\x30\x82\x0a\x00\x02\x01\x03\x30", "it is a PKCS#12 file", "openssl pkcs12 -nokeys -in /etcd/cert"},
		"something else":     {"/etcd/cert", "hello", "it contains no PEM certificate", "PEM"},
	} {
		s := healthy(t)
		s.Config.Etcd.External = &config.ExternalEtcd{CAFile: "/etcd/ca", CertFile: "/etcd/cert", KeyFile: "/etcd/key"}
		write(t, s.Root, c.path, c.content)
		var found bool
		for _, f := range s.externalEtcdCertificates(t.Context()) {
			found = found || strings.Contains(f.Message, c.message) && strings.Contains(f.Fix, c.fix)
		}
		if !found {
			t.Errorf("%s: %+v", name, s.externalEtcdCertificates(t.Context()))
		}
	}
}
