package pki_test

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// TestEqualsKubeadm compares every certificate, key and kubeconfig with the files that real
// kubeadms create from the same configuration.
func TestEqualsKubeadm(t *testing.T) {
	// For this package, the other cases are the same as one of these.
	relevant := []string{"plain", "control-plane endpoint", "control-plane endpoint without a port", "extra names",
		"other ranges and names", "dual-stack", "IPv6", "IPv6 without an endpoint", "external etcd", "external etcd without TLS", "other port", "keys and validity periods"}
	for _, version := range oracle.Versions {
		ran := 0
		for _, c := range oracle.Cases(version) {
			if !slices.Contains(relevant, c.Name) {
				continue
			}
			ran++
			t.Run(version+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				compareCase(t, c)
			})
		}
		want := len(relevant)
		if !oracle.HasKeys(version) {
			want--
		}
		if ran != want {
			t.Errorf("%s: ran %d cases of %d: names have changed", version, ran, want)
		}
	}
}

func compareCase(t *testing.T, c oracle.Case) {
	kubeadm := oracle.Run(t, c)
	cfg := c.Config
	files := make(map[string]pki.File) // by kubeadm's name in its dry-run directory
	for _, f := range makeAll(t, cfg, time.Now()) {
		name := strings.TrimPrefix(strings.TrimPrefix(f.Path, cfg.CertificatesDir+"/"), config.KubernetesDir+"/")
		files[name] = f
	}
	// See oracle.Differences, client keys.
	otherKeys := oracle.Differs(c.Config.KubernetesVersion, "with ECDSA chosen, the kubeconfigs' client keys are ECDSA too") && cfg.EncryptionAlgorithm != "RSA-2048"

	compared := 0
	err := filepath.WalkDir(kubeadm.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(kubeadm.Dir, path)
		if err != nil {
			return err
		}
		theirs := kubeadm.Read(t, name)
		ours, ok := files[name]
		switch ext := filepath.Ext(name); {
		case ext == ".yaml" || ext == ".env":
			return nil // package render tests these
		case !ok:
			t.Errorf("kubeadm makes %s, we do not", name)
			return nil
		case ext == ".crt":
			compareCerts(t, name, certificate(t, theirs), certificate(t, ours.Data), true)
		case ext == ".key" || ext == ".pub":
			compareKeys(t, name, theirs, ours.Data)
		case ext == ".conf":
			compareKubeconfigs(t, name, theirs, ours.Data, files, otherKeys)
		default:
			t.Errorf("kubeadm makes %s, which nobody expects", name)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != ours.Mode {
			t.Errorf("%s has mode %v, kubeadm's %v", name, ours.Mode, info.Mode().Perm())
		}
		compared++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The kubelet's certificate and its link are the only files that are not in
	// kubeadm's dry run.
	if want := len(files) - 2; compared != want {
		t.Errorf("%d files compared, we make %d", compared, want)
	}
}

// makeAll returns what init creates with this package on an empty host.
func makeAll(t *testing.T, cfg *config.Config, now time.Time) []pki.File {
	t.Helper()
	host := fstest.MapFS{}
	var files []pki.File
	for _, build := range builders {
		result, err := build(cfg, host, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Files {
			host[strings.TrimPrefix(f.Path, "/")] = &fstest.MapFile{Data: f.Data, Mode: f.Mode}
		}
		files = append(files, result.Files...)
	}
	return files
}

// profile has the relevant fields of a certificate, except the key and the dates.
type profile struct {
	Subject, Issuer     string
	DNSNames            []string
	IPs                 []string
	KeyUsage            x509.KeyUsage
	Usages              []x509.ExtKeyUsage
	BasicConstraints    bool
	IsCA                bool
	MaxPathLen          int
	Version             int
	HasKeyID, HasIssuer bool
	Extensions          []string
}

func profileOf(c *x509.Certificate) profile {
	p := profile{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(),
		DNSNames: slices.Sorted(slices.Values(c.DNSNames)),
		KeyUsage: c.KeyUsage, Usages: c.ExtKeyUsage,
		BasicConstraints: c.BasicConstraintsValid, IsCA: c.IsCA, MaxPathLen: c.MaxPathLen, Version: c.Version,
		HasKeyID: len(c.SubjectKeyId) > 0, HasIssuer: len(c.AuthorityKeyId) > 0,
	}
	for _, ip := range c.IPAddresses {
		p.IPs = append(p.IPs, ip.String())
	}
	slices.Sort(p.IPs)
	for _, e := range c.Extensions {
		p.Extensions = append(p.Extensions, fmt.Sprintf("%s critical=%v", e.Id, e.Critical))
	}
	return p
}

func compareCerts(t *testing.T, name string, theirs, ours *x509.Certificate, sameKind bool) {
	t.Helper()
	if diff := cmp.Diff(profileOf(theirs), profileOf(ours)); diff != "" {
		t.Errorf("%s differs (-kubeadm +ours):\n%s", name, diff)
	}
	if d := theirs.NotBefore.Sub(ours.NotBefore).Abs(); d > time.Minute {
		t.Errorf("%s begins at %s, kubeadm's at %s", name, ours.NotBefore, theirs.NotBefore)
	}
	if d := theirs.NotAfter.Sub(ours.NotAfter).Abs(); d > time.Minute {
		t.Errorf("%s ends at %s, kubeadm's at %s", name, ours.NotAfter, theirs.NotAfter)
	}
	if sameKind && kindOf(theirs.PublicKey) != kindOf(ours.PublicKey) {
		t.Errorf("%s has a key of kind %s, kubeadm's %s", name, kindOf(ours.PublicKey), kindOf(theirs.PublicKey))
	}
	if theirs.SignatureAlgorithm != ours.SignatureAlgorithm {
		t.Errorf("%s is signed with %s, kubeadm's with %s", name, ours.SignatureAlgorithm, theirs.SignatureAlgorithm)
	}
	if n := ours.SerialNumber.BitLen(); ours.SerialNumber.Sign() <= 0 || n > 63 {
		t.Errorf("%s has the serial number %s", name, ours.SerialNumber)
	}
}

func compareKeys(t *testing.T, name string, theirs, ours []byte) {
	t.Helper()
	a, b := block(t, theirs), block(t, ours)
	if a.Type != b.Type {
		t.Errorf("%s is a PEM %q, kubeadm's a %q", name, b.Type, a.Type)
	}
	if ka, kb := kindOf(parse(t, a)), kindOf(parse(t, b)); ka != kb {
		t.Errorf("%s is %s, kubeadm's %s", name, kb, ka)
	}
}

func compareKubeconfigs(t *testing.T, name string, theirs, ours []byte, files map[string]pki.File, otherKeys bool) {
	t.Helper()
	a, b := kubeconfig(t, theirs), kubeconfig(t, ours)
	userA, userB := a.user(t), b.user(t)
	if diff := cmp.Diff(a.withoutSecrets(t), b.withoutSecrets(t)); diff != "" {
		t.Errorf("%s differs (-kubeadm +ours):\n%s", name, diff)
	}
	cluster := b["clusters"].([]any)[0].(map[string]any)["cluster"].(map[string]any)
	if string(decode64(t, cluster["certificate-authority-data"])) != string(files["ca.crt"].Data) {
		t.Errorf("%s does not hold the cluster's CA", name)
	}
	if name == "kubelet.conf" {
		pem := "/var/lib/kubelet/pki/kubelet-client-current.pem"
		if diff := cmp.Diff(map[string]any{"client-certificate": pem, "client-key": pem}, userB); diff != "" {
			t.Errorf("%s's user (-as kubeadm leaves it after kubelet-finalize +ours):\n%s", name, diff)
		}
		link, ok := files[pem]
		if !ok || link.Link == "" {
			t.Fatalf("%s is no link: %+v", pem, link)
		}
		both := files[link.Link].Data
		compareCerts(t, name, certificate(t, decode64(t, userA["client-certificate-data"])), certificate(t, both), !otherKeys)
		if last := lastBlock(t, both); !strings.HasSuffix(last.Type, "PRIVATE KEY") {
			t.Errorf("%s ends in a %s", link.Link, last.Type)
		}
		return
	}
	compareCerts(t, name, certificate(t, decode64(t, userA["client-certificate-data"])),
		certificate(t, decode64(t, userB["client-certificate-data"])), !otherKeys)
	if !otherKeys {
		compareKeys(t, name, decode64(t, userA["client-key-data"]), decode64(t, userB["client-key-data"]))
	}
}

// TestOpenSSLVerifies verifies every chain with OpenSSL, which shares no code with
// Go, for the purpose of the certificate.
func TestOpenSSLVerifies(t *testing.T) {
	openssl := rig.Tool(t, "openssl")
	for _, algorithm := range []string{"", "RSA-2048", "ECDSA-P384"} {
		t.Run("algorithm="+algorithm, func(t *testing.T) {
			t.Parallel()
			cfg := oracle.Plain(oracle.Version)
			cfg.EncryptionAlgorithm = algorithm
			dir := t.TempDir()
			for _, f := range makeAll(t, cfg, time.Now()) {
				if f.Link == "" {
					put(t, dir, f)
				}
			}
			p := filepath.Join(dir, cfg.CertificatesDir)
			for _, leaf := range []struct{ ca, cert, purpose, name string }{
				{"ca", "apiserver", "sslserver", "kubernetes.default.svc.cluster.local"},
				{"ca", "apiserver-kubelet-client", "sslclient", ""},
				{"front-proxy-ca", "front-proxy-client", "sslclient", ""},
				{"etcd/ca", "etcd/server", "sslserver", "localhost"},
				{"etcd/ca", "etcd/server", "sslclient", ""},
				{"etcd/ca", "etcd/peer", "sslserver", "n1"},
				{"etcd/ca", "etcd/peer", "sslclient", ""},
				{"etcd/ca", "etcd/healthcheck-client", "sslclient", ""},
				{"etcd/ca", "apiserver-etcd-client", "sslclient", ""},
			} {
				args := []string{"verify", "-x509_strict", "-purpose", leaf.purpose, "-CAfile", filepath.Join(p, leaf.ca+".crt")}
				if leaf.name != "" {
					args = append(args, "-verify_hostname", leaf.name)
				}
				out, err := exec.Command(openssl, append(args, filepath.Join(p, leaf.cert+".crt"))...).CombinedOutput()
				if err != nil {
					t.Errorf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				// The key and the certificate must have the same public key.
				fromCert, err1 := exec.Command(openssl, "x509", "-noout", "-pubkey", "-in", filepath.Join(p, leaf.cert+".crt")).Output()
				fromKey, err2 := exec.Command(openssl, "pkey", "-pubout", "-in", filepath.Join(p, leaf.cert+".key")).Output()
				if err1 != nil || err2 != nil || string(fromCert) != string(fromKey) {
					t.Errorf("%s: the key is another one (%v, %v)", leaf.cert, err1, err2)
				}
			}
			sa, err := exec.Command(openssl, "pkey", "-pubout", "-in", filepath.Join(p, "sa.key")).Output()
			if err != nil || string(sa) != read(t, filepath.Join(p, "sa.pub")) {
				t.Errorf("sa.pub is not sa.key's: %v", err)
			}
			// kubeadm's documentation computes the hash with this pipe.
			pipe := "openssl x509 -pubkey -in " + filepath.Join(p, "ca.crt") + " | openssl pkey -pubin -outform der 2>/dev/null | openssl dgst -sha256 -hex | sed 's/^.* //'"
			want, err := exec.Command("sh", "-c", pipe).Output()
			if err != nil {
				t.Fatal(err)
			}
			got, err := pki.CAHashes([]byte(read(t, filepath.Join(p, "ca.crt"))))
			if err != nil || !slices.Equal(got, []string{"sha256:" + strings.TrimSpace(string(want))}) {
				t.Errorf("CAHashes = %q (%v), openssl says %q", got, err, want)
			}
		})
	}
}

func put(t *testing.T, root string, f pki.File) {
	t.Helper()
	path := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if f.Link != "" {
		if err := os.Symlink(filepath.Join(root, f.Link), path); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(path, f.Data, f.Mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func block(t *testing.T, data []byte) *pem.Block {
	t.Helper()
	b, _ := pem.Decode(data)
	if b == nil {
		t.Fatalf("no PEM in %q", data)
	}
	return b
}

func lastBlock(t *testing.T, data []byte) *pem.Block {
	t.Helper()
	last := block(t, data)
	for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
		last = b
	}
	return last
}

func certificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(block(t, data).Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, b *pem.Block) any {
	t.Helper()
	var key any
	var err error
	switch b.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(b.Bytes)
	default:
		t.Fatalf("unexpected PEM type %q", b.Type)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func kindOf(key any) string {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PrivateKey:
		return "ECDSA " + k.Curve.Params().Name
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	}
	return fmt.Sprintf("%T", key)
}

type anyKubeconfig map[string]any

func kubeconfig(t *testing.T, data []byte) anyKubeconfig {
	t.Helper()
	var k anyKubeconfig
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k anyKubeconfig) user(t *testing.T) map[string]any {
	t.Helper()
	users := k["users"].([]any)
	if len(users) != 1 {
		t.Fatalf("%d users", len(users))
	}
	return users[0].(map[string]any)["user"].(map[string]any)
}

// withoutSecrets removes the credentials and the CA, which always differ, and empty
// values. It keeps names, servers and contexts.
func (k anyKubeconfig) withoutSecrets(t *testing.T) anyKubeconfig {
	t.Helper()
	data, err := yaml.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	plain := kubeconfig(t, data)
	for _, u := range plain["users"].([]any) {
		delete(u.(map[string]any), "user")
	}
	for _, c := range plain["clusters"].([]any) {
		delete(c.(map[string]any)["cluster"].(map[string]any), "certificate-authority-data")
	}
	// Newer versions omit this empty field.
	if preferences, ok := plain["preferences"].(map[string]any); ok && len(preferences) == 0 {
		delete(plain, "preferences")
	}
	return plain
}

func decode64(t *testing.T, value any) []byte {
	t.Helper()
	var out []byte
	if err := yaml.Unmarshal(fmt.Appendf(nil, "%v", value), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
