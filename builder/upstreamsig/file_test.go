package upstreamsig_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
)

var kubelet = []byte("\x7fELF, a kubelet")

// signer is who signs binaries, as an account of the test's CA.
func signer(t *testing.T) (upstreamsig.Identity, fakesigstore.Account) {
	t.Helper()
	who, ok := upstreamsig.OfFile("https://dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")
	if !ok {
		t.Fatal("the table does not have kubelet")
	}
	return who, fakesigstore.Account{Name: who.Name, Issuer: who.Issuer}
}

// verifyFile verifies a file as a build does: with the entries that the log returns.
func verifyFile(t *testing.T, s *fakesigstore.Sigstore, root, content, sig, cert []byte, who upstreamsig.Identity) error {
	t.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	d, err := upstreamsig.ParseFiles(sig, cert, sum)
	if err != nil {
		return err
	}
	if err := d.Check(); err != nil {
		return err
	}
	query, err := d.Query()
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(s.Mirror(), "=")
	resp, err := http.Post(url+strings.TrimPrefix(upstreamsig.LogURL, "https://rekor.sigstore.dev"), "application/json", bytes.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	list, err := d.WithLog(answer)
	if err != nil {
		return err
	}
	_, err = verifier(t, root).Any(list, "sha256:"+sum, who)
	return err
}

func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		account func(*fakesigstore.Account)
		sigstore,
		trusted func(*fakesigstore.Sigstore)
		change func(content, sig, cert []byte) ([]byte, []byte, []byte)
		want   error
	}{
		"valid":                  {},
		"without inclusion":      {sigstore: func(s *fakesigstore.Sigstore) { s.WithoutProofs = true }},
		"other account":          {account: func(a *fakesigstore.Account) { a.Name = "me@example.com" }, want: upstreamsig.ErrIdentity},
		"other issuer":           {account: func(a *fakesigstore.Account) { a.Issuer = "https://github.com/login/oauth" }, want: upstreamsig.ErrIssuer},
		"certificate too old":    {account: func(a *fakesigstore.Account) { a.Late = time.Hour }, want: upstreamsig.ErrExpired},
		"CA too old":             {trusted: func(s *fakesigstore.Sigstore) { s.ValidUntil = s.ValidUntil.Add(-2 * time.Hour) }, want: upstreamsig.ErrExpired},
		"not in certificate log": {sigstore: func(s *fakesigstore.Sigstore) { s.WithoutCTLogEntry = true }, want: upstreamsig.ErrCertificate},
		"changed file": {change: func(content, sig, cert []byte) ([]byte, []byte, []byte) {
			return append(content[:len(content):len(content)], 1), sig, cert
		}, want: upstreamsig.ErrContent},
		"changed signature": {change: func(content, sig, cert []byte) ([]byte, []byte, []byte) {
			return content, append([]byte("MEUC"), sig[4:len(sig)-8]...), cert
		}, want: upstreamsig.ErrContent},
		"cut signature":  {change: func(content, sig, cert []byte) ([]byte, []byte, []byte) { return content, sig[:5], cert }, want: upstreamsig.ErrForm},
		"no certificate": {change: func(content, sig, cert []byte) ([]byte, []byte, []byte) { return content, sig, []byte("<html>") }, want: upstreamsig.ErrForm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakesigstore.New(t)
			if c.sigstore != nil {
				c.sigstore(s)
			}
			who, account := signer(t)
			if c.account != nil {
				c.account(&account)
			}
			sig, cert := s.Files(kubelet, account)
			content := kubelet
			if c.change != nil {
				content, sig, cert = c.change(content, sig, cert)
			}
			if c.trusted != nil {
				c.trusted(s)
			}
			err := verifyFile(t, s, s.TrustedRoot(), content, sig, cert, who)
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// The log of one sigstore does not have the signature, and the trusted root of another does
// not have the CA.
func TestFilesOfAnotherSigstore(t *testing.T) {
	a, b := fakesigstore.New(t), fakesigstore.New(t)
	who, account := signer(t)
	sig, cert := a.Files(kubelet, account)
	if err := verifyFile(t, b, a.TrustedRoot(), kubelet, sig, cert, who); !errors.Is(err, upstreamsig.ErrLog) {
		t.Errorf("err = %v", err)
	}
	if err := verifyFile(t, a, b.TrustedRoot(), kubelet, sig, cert, who); !errors.Is(err, upstreamsig.ErrCertificate) {
		t.Errorf("err = %v", err)
	}
}

func TestSigners(t *testing.T) {
	for _, url := range []string{"https://dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubectl", "https://dl.k8s.io/release/v1.37.1/bin/linux/arm64/kubelet"} {
		if who, ok := upstreamsig.OfFile(url); !ok || who.Name != "krel-staging@k8s-releng-prod.iam.gserviceaccount.com" {
			t.Errorf("%s: %v, %v", url, who, ok)
		}
	}
	for _, name := range []string{"https://dl.k8s.io.example.com/release/v1.29.15/kubectl", "http://dl.k8s.io/release/v1.29.15/kubectl",
		"https://github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64"} {
		if _, ok := upstreamsig.OfFile(name); ok {
			t.Errorf("%s is in the table", name)
		}
	}
	for _, reference := range []string{"registry.k8s.io.example.com/pause:3.9", "ghcr.io/flannel-io/flannel:v0.28.4", "docker.io/library/nginx:1.27"} {
		if _, ok := upstreamsig.OfImage(reference); ok {
			t.Errorf("%s is in the table", reference)
		}
	}
}

func TestTrustedRootNeedsAllParts(t *testing.T) {
	for _, text := range []string{"", "{}", `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`} {
		if _, err := upstreamsig.NewVerifier([]byte(text)); err == nil {
			t.Errorf("%q is a trusted root", text)
		}
	}
}
