// Package fips has the test of docs/fips.md.
package fips

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"
	"k8s.io/cluster-bootstrap/token/jws"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
)

// uses are what our programs do with cryptography, by the names in docs/fips.md.
var uses = map[string]func(dir string) error{
	"checksums of a bundle":              checksums,
	"certificates and keys of a cluster": certificates,
	"TLS":                                transport,
	"bootstrap tokens":                   tokens,
	"certificates in Secrets":            sealedCertificates,
	"files of flags in a Secret":         sealedFiles,
	"SSH":                                remoteShell,
	"signatures of a bundle":             signatures,
	"encrypted backups":                  backups,
}

// TestUses runs each use in a process of its own that refuses what FIPS 140-3 does not approve. The page says of each whether it runs.
func TestUses(t *testing.T) {
	page, err := os.ReadFile("../../docs/fips.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || uses[strings.TrimSpace(cells[1])] == nil {
			continue
		}
		rows++
		name, runs := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]) == "runs"
		t.Run(name, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestOne$")
			c.Env = append(os.Environ(), "GODEBUG=fips140=only", "FIPS_USE="+name)
			out, err := c.CombinedOutput()
			if refused := strings.Contains(string(out), "FIPS 140-only mode"); (err == nil) != runs || refused == runs {
				t.Errorf("runs by docs/fips.md: %v\n%v\n%s", runs, err, out)
			}
		})
	}
	if rows != len(uses) {
		t.Errorf("docs/fips.md has %d of %q", rows, slices.Sorted(maps.Keys(uses)))
	}
}

// TestOne is the process: it works in each mode but the strict one.
func TestOne(t *testing.T) {
	for name, use := range uses {
		if only := os.Getenv("FIPS_USE"); only != "" && only != name {
			continue
		}
		if err := use(t.TempDir()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// golden is a small complete bundle.
const golden = "../../bundle/testdata/v1.bundle"

func checksums(string) error {
	f, err := bundle.Open(golden)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	for _, e := range m.Entries {
		if _, err := f.Read(context.Background(), e.Name); err != nil {
			return err
		}
	}
	return nil
}

// certificates creates all certificates of a control plane: each of them is verified with the CA when it is read again.
func certificates(dir string) error {
	c := &config.Config{}
	c.NodeRegistration.Name, c.LocalAPIEndpoint.AdvertiseAddress = "n1", "10.0.0.11"
	c.CompleteInit()
	for range 2 {
		r, err := pki.Ensure(c, os.DirFS(dir), time.Now())
		if err != nil {
			return err
		}
		for _, f := range r.Files {
			path := filepath.Join(dir, f.Path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o600)); err != nil {
				return err
			}
		}
	}
	return nil
}

func transport(string) error {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()
	r, err := s.Client().Get(s.URL)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

func tokens(string) error {
	token, err := cluster.NewToken()
	if err != nil {
		return err
	}
	id, secret, _ := strings.Cut(token, ".")
	signed, err := jws.ComputeDetachedSignature("content", id, secret)
	if err != nil {
		return err
	}
	if !jws.DetachedTokenIsValid(signed, "content", id, secret) {
		return errors.New("the signature is not valid")
	}
	return nil
}

func sealedCertificates(string) error {
	aead, err := cluster.NewCipher(cluster.NewCertificateKey())
	if err != nil {
		return err
	}
	plain, err := cluster.Unseal(aead, cluster.Seal(aead, []byte("key")))
	if err == nil && string(plain) != "key" {
		err = errors.New("another text")
	}
	return err
}

func sealedFiles(dir string) error {
	if err := certificates(dir); err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(dir, "etc/kubernetes/pki/sa.key"))
	if err == nil {
		_, err = reconfiguration.Seal(key, []reconfiguration.File{{Path: "/a", Data: []byte("b")}})
	}
	return err
}

// remoteShell connects a client with an ECDSA key to a server of the same library.
func remoteShell(string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		defer func() { _ = recover() }() // the client's error is the result
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		c := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
		c.AddHostKey(signer)
		_, _, _, _ = ssh.NewServerConn(conn, c)
	}()
	client, err := ssh.Dial("tcp", listener.Addr().String(), &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(signer.PublicKey())})
	if err != nil {
		return err
	}
	return client.Close()
}

func signatures(dir string) error {
	secret := filepath.Join(dir, "key")
	if _, err := signature.WriteKeyPair(secret, secret+".pub", ""); err != nil {
		return err
	}
	key, err := signature.ReadSecretKey(secret, nil)
	if err != nil {
		return err
	}
	f, err := bundle.Open(golden)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = signature.Of(context.Background(), f, key, func(int64) {})
	return err
}

func backups(string) error {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, identity.Recipient())
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "text"); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	r, err := age.Decrypt(&b, identity)
	if err == nil {
		_, err = io.ReadAll(r)
	}
	return err
}
