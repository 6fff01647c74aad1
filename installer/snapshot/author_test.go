package snapshot

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// newCA returns a new CA's certificate and key in PEM.
func newCA(t *testing.T, algorithm string) (cert, key []byte) {
	t.Helper()
	made, err := pki.Ensure(testhost.Config(func(c *config.Config) { c.EncryptionAlgorithm = algorithm }), fstest.MapFS{}, time.Now(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		switch f.Path {
		case "/etc/kubernetes/pki/ca.crt":
			cert = f.Data
		case "/etc/kubernetes/pki/ca.key":
			key = f.Data
		}
	}
	return cert, key
}

// claimed returns another key that claims to have the public key of a certificate.
func claimed(t *testing.T, cert, key []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(key)
	parsed, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	certBlock, _ := pem.Decode(cert)
	certificate, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	parsed.PublicKey = *certificate.PublicKey.(*ecdsa.PublicKey)
	der, err := x509.MarshalECPrivateKey(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der})
}

// TestBackupOfAnotherAuthor: who has the public key and the drive can write a backup, and knows the CA's
// certificate. Only its key proves who wrote the file.
func TestBackupOfAnotherAuthor(t *testing.T) {
	for _, algorithm := range []string{"ECDSA-P256", "RSA-2048"} {
		ours, oursKey := newCA(t, algorithm)
		theirs, theirsKey := newCA(t, algorithm)
		hash, err := node.CAHash(ours)
		if err != nil {
			t.Fatal(err)
		}
		otherHash, err := node.CAHash(theirs)
		if err != nil {
			t.Fatal(err)
		}
		type test struct {
			name      string
			cert, key []byte
			hashes    []string
			code      fault.Code
			want      string
		}
		tests := []test{
			{"ours", ours, oursKey, []string{hash}, 0, ""},
			{"in capitals", ours, oursKey, []string{strings.ToUpper(hash)}, 0, ""},
			{"one of two hashes", ours, oursKey, []string{otherHash, hash}, 0, ""},
			{"during a rotation", slices.Concat(ours, theirs), oursKey, []string{hash}, 0, ""},
			{"without a hash", theirs, theirsKey, nil, 0, ""},
			{"another cluster", theirs, theirsKey, []string{hash}, fault.Preflight, "is of another cluster"},
			{"our certificate with their key", ours, theirsKey, []string{hash}, fault.Preflight, "does not have the key of the CA"},
			{"our certificate without a key", ours, nil, []string{hash}, fault.Preflight, "nothing proves who wrote it"},
			{"our certificate after theirs", slices.Concat(theirs, ours), theirsKey, []string{hash}, fault.Preflight, "is of another cluster"},
			{"no certificate", []byte("x"), oursKey, []string{hash}, fault.Bundle, "reading the cluster's CA"},
			{"no hash", ours, oursKey, []string{"sha256:12"}, fault.Usage, `"sha256:12" is not a CA certificate hash`},
			{"a hash without its name", ours, oursKey, []string{strings.TrimPrefix(hash, "sha256:")}, fault.Usage, "is not a CA certificate hash"},
		}
		if algorithm == "ECDSA-P256" {
			tests = append(tests, test{"a key that claims to be ours", ours, claimed(t, ours, theirsKey), []string{hash}, fault.Preflight, "does not have the key of the CA"})
		}
		for _, c := range tests {
			f := &File{Path: "cluster.tar", Backup: &backup.Backup{Files: map[string][]byte{backup.PKIDir + "ca.crt": c.cert}}}
			if c.key != nil {
				f.Files[backup.PKIDir+"ca.key"] = c.key
			}
			f.Manifest.CACertHash, _ = node.CAHash(c.cert)
			err := f.CheckCA(c.hashes)
			if (err == nil) != (c.code == 0) || err != nil && (fault.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "") {
				t.Errorf("%s, %s: %v (exit code %d), want %q", algorithm, c.name, err, fault.ExitCode(err), c.want)
			}
			f.Manifest.CACertHash = "sha256:" + strings.Repeat("0", 64)
			if err := f.CheckCA(nil); err == nil || fault.ExitCode(err) != fault.Bundle {
				t.Errorf("%s: a manifest with another hash: %v", c.name, err)
			}
		}
	}
}

// TestOpenDirectory: a directory is not a damaged backup.
func TestOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), dir, nil); err == nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is a directory") || !strings.Contains(fault.Hint(err), "name a file") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
