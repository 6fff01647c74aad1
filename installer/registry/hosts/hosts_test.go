package hosts_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	hostsconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	_ "airlift/scripts/fixtures/seed"
)

// A site is a host with the kubelet's certificate and the cluster's CA.
type site struct {
	*host.Host
	node hosts.Node
}

type fataler interface {
	Helper()
	Fatal(...any)
}

var certificate = create()

// create creates a certificate that is its own CA, with its key.
func create() (pair []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:one"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})...)
}

// open returns a host at root. containerd reads the CA and the certificate there.
func open(t fataler, root string, controlPlanes ...string) site {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	s := site{Host: h, node: hosts.Node{Name: "one", CA: filepath.Join(root, "ca.crt"), Client: filepath.Join(root, "kubelet.pem")}}
	for _, file := range []string{s.node.CA, s.node.Client} {
		if err := os.WriteFile(file, certificate, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range controlPlanes {
		s.node.ControlPlanes = append(s.node.ControlPlanes, netip.AddrPortFrom(netip.MustParseAddr(a), config.RegistryPort))
	}
	return s
}

// apply makes the files current, and checks that nothing is left to do.
func (s site) apply(t fataler, registries ...string) hosts.Change {
	t.Helper()
	c, err := s.node.Change(s.Host, registries)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(s.Host); err != nil {
		t.Fatal(err)
	}
	if again, err := s.node.Change(s.Host, registries); err != nil || !again.Empty() {
		t.Fatal("a repeated run changes", again, err)
	}
	return c
}

// asks returns what containerd asks for the images of a registry, in its order.
func (s site) asks(t fataler, registry string) (urls []string, list []docker.RegistryHost) {
	t.Helper()
	read := hostsconfig.ConfigureHosts(context.Background(), hostsconfig.HostOptions{HostDir: hostsconfig.HostDirFromRoot(s.Path(render.RegistriesDir))})
	list, err := read(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		urls = append(urls, h.Scheme+"://"+h.Host+h.Path)
	}
	return urls, list
}

// put writes a file of the site, which Airlift does not know.
func (s site) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.Path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s site) text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(s.Path(name))
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestContainerdReadsTheFiles: for any node, control planes and registries, containerd's own code asks each control plane once,
// with the cluster's CA, the kubelet's certificate and a short limit for the connection, and nobody else. It only pulls.
func TestContainerdReadsTheFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "hosts")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		addresses := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "192.0.2.30", "fd00::1", "2001:db8::7", "2001:db8:1:2:3:4:5:6"}), 1, 6, rapid.ID).Draw(t, "control planes")
		registries := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"registry.k8s.io", "docker.io", "quay.io", "site.example:5000", "[fd00::9]:5000", "localhost:5000"}), 1, 4, rapid.ID).Draw(t, "registries")
		s := open(t, root, addresses...)
		s.node.Name = rapid.StringMatching(`[a-z0-9][a-z0-9.-]{0,20}`).Draw(t, "node")
		if c := s.apply(t, registries...); len(c.Left) > 0 {
			t.Fatal("left", c.Left)
		}
		for _, registry := range registries {
			urls, list := s.asks(t, registry)
			var want []string
			for _, a := range s.node.ControlPlanes {
				want = append(want, "https://"+a.String()+"/v2")
			}
			if is := slices.Sorted(slices.Values(urls)); !slices.Equal(is, slices.Sorted(slices.Values(want))) {
				t.Fatalf("%s: containerd asks %v, want %v", registry, is, want)
			}
			for _, h := range list {
				tls := h.Client.Transport.(*http.Transport).TLSClientConfig
				if h.Capabilities != docker.HostCapabilityPull|docker.HostCapabilityResolve || tls.RootCAs == nil || len(tls.Certificates) != 1 || tls.InsecureSkipVerify || len(h.Header) > 0 {
					t.Fatalf("%s at %s: capabilities %b, CA %t, %d certificates, header %v", registry, h.Host, h.Capabilities, tls.RootCAs != nil, len(tls.Certificates), h.Header)
				}
			}
			if n := strings.Count(string(read(t, s, registry)), `dial_timeout = "1s"`); n != len(addresses) {
				t.Fatalf("%s: %d limits for connections", registry, n)
			}
		}
	})
}

// read returns the hosts.toml that containerd uses.
func read(t fataler, s site, registry string) []byte {
	dir, err := hostsconfig.HostDirFromRoot(s.Path(render.RegistriesDir))(registry)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "hosts.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestNodesAreSpread: of ten nodes with one kind of names, three control planes are the first one for three or four each.
func TestNodesAreSpread(t *testing.T) {
	for _, form := range []string{"node%d", "worker-%02d", "n%d.site.example", "ip-10-0-0-%d"} {
		first := map[string]int{}
		root := t.TempDir()
		s := open(t, root, "10.0.0.1", "10.0.0.2", "10.0.0.3")
		for i := range 10 {
			s.node.Name = fmt.Sprintf(form, i+1)
			s.apply(t, "quay.io")
			urls, _ := s.asks(t, "quay.io")
			first[urls[0]]++
		}
		for _, a := range s.node.ControlPlanes {
			if n := first["https://"+a.String()+"/v2"]; n < 3 || n > 4 {
				t.Errorf("%s: %v", form, first)
			}
		}
	}
}

// A registry with an own configuration, of --registry-mirror and others, keeps it: its mirrors come first, then the control
// planes, and then the registry itself.
func TestMirrorsOfTheSiteComeFirst(t *testing.T) {
	s := open(t, t.TempDir(), "10.0.0.1", "10.0.0.2")
	mirror := func(raw string) config.RegistryMirror {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return config.RegistryMirror{URL: u, RegistryAccess: config.RegistryAccess{Authorization: "Basic secret"}}
	}
	write := func(r config.Registry) (hostsToml pki.File) {
		dirs := render.RegistryDirs(r.Host)
		for _, f := range render.RegistryFiles(r, dirs[len(dirs)-1]) {
			present, _ := os.ReadFile(s.Path(f.Path))
			f.Data = hosts.Keep(f.Data, present)
			if _, err := s.WriteFile(f.Path, f.Data, f.Mode); err != nil {
				t.Fatal(err)
			}
			hostsToml = f
		}
		return hostsToml
	}
	own := config.Registry{Host: "quay.io", Mirrors: []config.RegistryMirror{mirror("https://m.example")}}
	before := write(own)
	write(config.Registry{Host: config.DefaultRegistry, Mirrors: []config.RegistryMirror{mirror("https://all.example")}})

	s.apply(t, "quay.io", "docker.io")
	want := map[string][]string{
		"quay.io":       {"https://m.example/v2", "https://10.0.0.1:7444/v2", "https://10.0.0.2:7444/v2", "https://quay.io/v2"},
		"docker.io":     {"https://all.example/v2", "https://10.0.0.1:7444/v2", "https://10.0.0.2:7444/v2", "https://registry-1.docker.io/v2"},
		"other.example": {"https://all.example/v2", "https://other.example/v2"},
	}
	for registry, want := range want {
		urls, list := s.asks(t, registry)
		if !slices.Equal(urls, want) {
			t.Errorf("%s: %v, want %v", registry, urls, want)
		}
		if registry != "other.example" && (list[0].Header.Get("Authorization") == "" || list[1].Header.Get("Authorization") != "") {
			t.Errorf("%s: the credentials of the mirror go to a control plane", registry)
		}
	}
	for _, name := range []string{"quay.io", "docker.io"} {
		if info, err := os.Stat(s.Path(render.RegistriesDir + "/" + name + "/hosts.toml")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the credentials are not only for root: %v %v", name, info.Mode(), err)
		}
	}
	// init again keeps the control planes.
	write(own)
	if c, err := s.node.Change(s.Host, []string{"quay.io", "docker.io"}); err != nil || !c.Empty() {
		t.Errorf("after a repeated init: %v %v", c, err)
	}
	// Without the embedded registry, all is as before.
	s.apply(t)
	if text := s.text(t, before.Path); text != string(before.Data) {
		t.Errorf("the site's configuration is now %q", text)
	}
	if urls, _ := s.asks(t, "docker.io"); !slices.Equal(urls, []string{"https://all.example/v2", "https://registry-1.docker.io/v2"}) {
		t.Errorf("docker.io: %v", urls)
	}
}

func first(urls []string, _ []docker.RegistryHost) []string { return urls }

// What Airlift did not write stays, and is named: files, directories with certificates, a default, and the site's own files in a
// bundle. A private registry works as before.
func TestOtherFilesStay(t *testing.T) {
	const certs = render.RegistriesDir
	for name, c := range map[string]struct {
		files map[string]string
		left  string
	}{
		"a file":        {map[string]string{certs + "/quay.io/hosts.toml": "server = \"https://m.example\"\n"}, certs + "/quay.io/hosts.toml"},
		"an empty file": {map[string]string{certs + "/quay.io/hosts.toml": ""}, certs + "/quay.io/hosts.toml"},
		"certificates":  {map[string]string{certs + "/quay.io/ca.crt": string(certificate)}, certs + "/quay.io"},
		"a default":     {map[string]string{certs + "/_default/hosts.toml": "[host.\"https://m.example\"]\n"}, certs + "/_default/hosts.toml"},
		"an own name":   {map[string]string{certs + "/site.example:5000/hosts.toml": "server = \"https://m.example\"\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), "10.0.0.1")
			for file, text := range c.files {
				s.put(t, file, text)
			}
			before := first(s.asks(t, "quay.io"))
			change := s.apply(t, "quay.io")
			if c.left != "" && (!slices.Equal(change.Left, []string{c.left}) || !slices.Equal(first(s.asks(t, "quay.io")), before)) {
				t.Errorf("left %v, containerd asks %v", change.Left, first(s.asks(t, "quay.io")))
			}
			if c.left == "" && (len(change.Left) > 0 || !slices.Equal(first(s.asks(t, "site.example:5000")), []string{"https://m.example/v2"})) {
				t.Errorf("left %v", change.Left)
			}
			s.apply(t)
			for file, text := range c.files {
				if s.text(t, file) != text {
					t.Errorf("%s changed", file)
				}
			}
		})
	}
}

// A file that a user edited after Airlift wrote it belongs to the user.
func TestEditedFileStays(t *testing.T) {
	s := open(t, t.TempDir(), "10.0.0.1")
	s.apply(t, "quay.io")
	name := render.RegistriesDir + "/quay.io/hosts.toml"
	s.put(t, name, s.text(t, name)+"# mine\n")
	s.node.ControlPlanes = append(s.node.ControlPlanes, netip.MustParseAddrPort("10.0.0.2:7444"))
	if c := s.apply(t, "quay.io"); !slices.Equal(c.Left, []string{name}) || !strings.HasSuffix(s.text(t, name), "# mine\n") {
		t.Errorf("left %v", c.Left)
	}
	// Without the embedded registry, it names control planes that serve nothing: that is reported.
	if c, err := (hosts.Node{}).Change(s.Host, nil); err != nil || !slices.Equal(c.Edited, []string{name}) || !c.Empty() {
		t.Errorf("%+v, %v", c, err)
	}
	s.put(t, name, "# only mine\n")
	if c, err := (hosts.Node{}).Change(s.Host, nil); err != nil || len(c.Edited) > 0 || !c.Empty() {
		t.Errorf("%+v, %v", c, err)
	}
}

// Control planes and registries come and go. Nothing is left at the end, not even a directory: containerd would use it, and not
// _default.
func TestFilesFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "hosts")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		s := open(t, root, "10.0.0.1")
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			s.node.ControlPlanes = nil
			for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "fd00::1"}), 1, 3, rapid.ID).Draw(t, "control planes") {
				s.node.ControlPlanes = append(s.node.ControlPlanes, netip.AddrPortFrom(netip.MustParseAddr(a), config.RegistryPort))
			}
			registries := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"docker.io", "quay.io", "site.example:5000"}), 0, 3, rapid.ID).Draw(t, "registries")
			s.apply(t, registries...)
			states, err := hosts.States(s.Host, registries)
			if err != nil {
				t.Fatal(err)
			}
			for _, state := range states {
				if len(state.ControlPlanes) != len(s.node.ControlPlanes) || state.Left != "" {
					t.Fatalf("%+v", state)
				}
			}
			dirs, _ := os.ReadDir(s.Path(render.RegistriesDir))
			if len(dirs) != len(registries) {
				t.Fatalf("%d directories for %v", len(dirs), registries)
			}
		}
	})
}

// TestEmptyDirectory: containerd uses an empty directory, and not _default. So one of a run that was killed goes later.
func TestEmptyDirectory(t *testing.T) {
	for name, forgotten := range map[string]bool{"before the ledger": false, "before the directory": true} {
		s := open(t, t.TempDir(), "10.0.0.1")
		s.apply(t, "quay.io")
		file := render.RegistriesDir + "/quay.io/hosts.toml"
		err := os.Remove(s.Path(file))
		if forgotten && err == nil {
			err = s.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.apply(t)
		if _, err := os.Stat(filepath.Dir(s.Path(file))); !os.IsNotExist(err) {
			t.Errorf("killed %s: %v", name, err)
		}
		if change := s.apply(t); !change.Empty() {
			t.Errorf("killed %s: then %+v", name, change)
		}
	}
}

// TestCheck: with a missing or damaged file, containerd would refuse every pull of a registry.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, "10.0.0.1")
	s.node.CA, s.node.Client = "/ca.crt", "/kubelet.pem"
	if err := s.node.Check(s.Host); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"/ca.crt", "/kubelet.pem"} {
		for _, text := range []string{"", "damaged"} {
			s.put(t, file, text)
			if err := s.node.Check(s.Host); err == nil {
				t.Errorf("%s is %q: accepted", file, text)
			}
		}
		s.put(t, file, string(certificate))
	}
	if err := os.Remove(s.Path("/kubelet.pem")); err != nil {
		t.Fatal(err)
	}
	if err := s.node.Check(s.Host); err == nil {
		t.Error("no certificate: accepted")
	}
}
