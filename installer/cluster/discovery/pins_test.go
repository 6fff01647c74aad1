package discovery

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// An attacker who knows a join token can sign a cluster-info with two CAs: the
// real CA, so that a pinned hash matches, and the attacker's CA, which signed
// the certificate of the server.
func TestDiscoveryTrustsOnlyPinnedCAs(t *testing.T) {
	ctx := context.Background()
	real, _ := newCA(t)
	other, _ := newCA(t)
	for name, list := range map[string]func(own *x509.Certificate) []*x509.Certificate{
		"the real CA first":   func(own *x509.Certificate) []*x509.Certificate { return []*x509.Certificate{real, own} },
		"the real CA last":    func(own *x509.Certificate) []*x509.Certificate { return []*x509.Certificate{own, real} },
		"the real CA between": func(own *x509.Certificate) []*x509.Certificate { return []*x509.Certificate{own, real, own} },
	} {
		t.Run(name, func(t *testing.T) {
			i := newImpostor(t)
			i.answer = clusterInfoAnswer(t, list(i.ca)...)
			d := i.serve(t)
			d.CACertHashes = []string{pinOf(other), pinOf(real)}
			found, err := Find(ctx, d, nil)
			if found != nil || err == nil {
				t.Fatalf("the impostor was trusted: %+v", found)
			}
			expect(t, err, CertificateInvalid, "is not signed by the cluster's CA", pinOf(i.ca))
			if strings.Contains(err.Error(), pinOf(real)) || !strings.Contains(fault.Hint(err), "token create --print-join-command") {
				t.Errorf("%v; hint: %s", err, fault.Hint(err))
			}
		})
	}
}

// While a cluster replaces its CA, cluster-info lists the old and the new one.
func TestDiscoveryWhileTheCAIsReplaced(t *testing.T) {
	ctx := context.Background()
	i := newImpostor(t) // the real cluster: i.ca signed its server certificate
	next, _ := newCA(t)
	absent, _ := newCA(t)
	i.answer = clusterInfoAnswer(t, next, i.ca)
	good := i.serve(t)
	for name, c := range map[string]struct {
		pins    []*x509.Certificate
		trusted []*x509.Certificate
	}{
		"one hash":                    {[]*x509.Certificate{i.ca}, []*x509.Certificate{i.ca}},
		"both hashes":                 {[]*x509.Certificate{i.ca, next}, []*x509.Certificate{next, i.ca}},
		"a hash of no CA in the list": {[]*x509.Certificate{absent, i.ca}, []*x509.Certificate{i.ca}},
		"no hash, the check given up": {nil, []*x509.Certificate{next, i.ca}},
		"the hash of the new CA only": {[]*x509.Certificate{next}, nil},
		"only a hash of no CA":        {[]*x509.Certificate{absent}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := good
			d.CACertHashes, d.UnsafeSkipCAVerification = nil, c.pins == nil
			for _, ca := range c.pins {
				d.CACertHashes = append(d.CACertHashes, pinOf(ca))
			}
			found, err := Find(ctx, d, nil)
			if c.trusted == nil {
				if found != nil || err == nil {
					t.Errorf("found %+v, %v", found, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := bundleOf(c.trusted...); string(found.CA) != string(want) {
				t.Errorf("trusted:\n%swant:\n%s", found.CA, want)
			}
			// Read the CAs that the kubelet will trust with Kubernetes' own
			// library.
			kubeconfig, err := clientcmd.Load(found.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			for _, cluster := range kubeconfig.Clusters {
				if string(cluster.CertificateAuthorityData) != string(found.CA) {
					t.Errorf("the bootstrap kubeconfig trusts:\n%s", cluster.CertificateAuthorityData)
				}
			}
			// One warning if a listed CA is not trusted, and the usual one if no
			// CA was verified.
			if want := len(c.trusted) == 1 || c.pins == nil; (len(found.Warnings) == 1) != want {
				t.Errorf("warnings: %q", found.Warnings)
			}
			if len(c.trusted) == 1 && !strings.Contains(found.Warnings[0], pinOf(next)) {
				t.Errorf("%q does not name the CA that is not trusted", found.Warnings[0])
			}
		})
	}
}

// With a discovery file, the user vouches for all CAs in it.
func TestDiscoveryFileWithTwoCAs(t *testing.T) {
	i := newImpostor(t)
	next, _ := newCA(t)
	i.answer = clusterInfoAnswer(t, i.ca)
	d := i.serve(t)
	file := writeTemp(t, pki.BootstrapKubeconfig("https://"+d.APIServerEndpoint, bundleOf(next, i.ca), impostorToken))
	found, err := Find(context.Background(), config.Discovery{File: file, Timeout: d.Timeout}, nil)
	if err != nil || string(found.CA) != string(bundleOf(next, i.ca)) {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestPinsMatchAnyCertificateOfABundle(t *testing.T) {
	old, _ := newCA(t)
	renewed, _ := newCA(t)
	bundle := bundleOf(old, renewed, old)
	for _, ca := range []*x509.Certificate{old, renewed} {
		if trusted, err := (Pins{pinOf(ca)}).Trusted(bundle); err != nil || strings.ReplaceAll(string(trusted), string(certPEM(ca)), "") != "" {
			t.Errorf("trusted %s, %v", trusted, err)
		}
	}
	other, _ := newCA(t)
	expect(t, testcluster.Error(Pins{pinOf(other)}.Trusted(bundle)), CAMismatch, pinOf(old), pinOf(renewed))
	got := testcluster.Must(pki.CAHashes(bundle))(t)
	if want := []string{pinOf(old), pinOf(renewed)}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("pins %s, pki returns %s", want, got)
	}
}

func writeTemp(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
