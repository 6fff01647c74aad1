package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
)

var release = components.Release{Kubernetes: "v1.29.15", Etcd: "3.5.16-0", CoreDNS: "v1.11.1", Pause: "3.9", Agnhost: "2.47"}

// start serves small random images and files in the real layout, and returns the URL of
// each site and the path of the access log.
func start(t *testing.T) (sites map[string]string, access string) {
	t.Helper()
	cache := t.TempDir()
	blobs := filepath.Join(cache, "blobs")
	blob := func(h v1.Hash) string { return filepath.Join(blobs, h.Hex) }
	files, err := Files(fillCache(t, cache), release)
	if err != nil {
		t.Fatal(err)
	}
	access = filepath.Join(cache, "access")
	log, err := os.Create(access)
	if err != nil {
		t.Fatal(err)
	}
	content := Content{
		Manifests: map[string][]image.Manifest{
			"registry.k8s.io": append(randomImage(t, blob, "pause", "3.9"), randomImage(t, blob, "coredns/coredns", "v1.11.1", "v1.11.3")...),
			"ghcr.io":         randomImage(t, blob, "flannel-io/flannel", "v0.28.2", "v0.28.4"),
			"docker.io":       randomImage(t, blob, "rancher/local-path-provisioner", "v0.0.30"),
		},
		Files: files,
		Blob:  blob,
	}
	server, err := Start("127.0.0.1:0", content, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range server.servers {
			s.Close()
		}
		log.Close()
	})
	sites = make(map[string]string)
	for _, m := range server.Mirrors {
		sites[m.Host] = m.URL
	}
	return sites, access
}

func arm64(t *testing.T) components.Release {
	t.Helper()
	r, err := release.For("arm64")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The files of two architectures are served together, and runc's list of checksums has both.
func TestTwoArchitectures(t *testing.T) {
	files, err := Files(fillCache(t, t.TempDir()), release, arm64(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if path := "/release/v1.29.15/bin/linux/" + arch + "/kubelet"; files["dl.k8s.io"][path].Path == "" {
			t.Errorf("no %s", path)
		}
		if sums := string(files["github.com"][runcURL+"runc.sha256sum"].Data); strings.Count(sums, "  runc."+arch+"\n") != 1 {
			t.Errorf("runc's list of checksums does not have %s once:\n%s", arch, sums)
		}
	}
}

// fillCache fills a cache with one small file per binary.
func fillCache(t *testing.T, cache string) string {
	t.Helper()
	for _, r := range append(release.Recipes(), arm64(t).Recipes()...) {
		if err := os.MkdirAll(r.Dir(cache), 0o755); err != nil {
			t.Fatal(err)
		}
		names := r.Binaries()
		for name := range r.Files {
			names = append(names, name)
		}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(r.Dir(cache), n), []byte("the program "+n), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cache
}

// randomImage stores an image and returns its index, which lists a platform that does not
// exist, and its manifest.
func randomImage(t *testing.T, blob func(v1.Hash) string, repository string, tags ...string) []image.Manifest {
	t.Helper()
	img, err := random.Image(2000, 3)
	if err != nil {
		t.Fatal(err)
	}
	put := func(h v1.Hash, data []byte) {
		if err := os.MkdirAll(filepath.Dir(blob(h)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blob(h), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		h, _ := l.Digest()
		rc, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		put(h, data)
	}
	config, _ := img.RawConfigFile()
	configName, _ := img.ConfigName()
	put(configName, config)

	raw, _ := img.RawManifest()
	digest, _ := img.Digest()
	mediaType, _ := img.MediaType()
	index := []byte(`{"schemaVersion":2,"mediaType":"` + string(types.DockerManifestList) + `","manifests":[` +
		`{"mediaType":"` + string(mediaType) + `","size":` + strconv.Itoa(len(raw)) + `,"digest":"` + digest.String() + `","platform":{"os":"linux","architecture":"amd64"}},` +
		`{"mediaType":"` + string(mediaType) + `","size":100,"digest":"sha256:` + strings.Repeat("a", 64) + `","platform":{"os":"linux","architecture":"arm64"}}]}`)
	indexDigest, _, err := v1.SHA256(bytes.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	return []image.Manifest{
		{Repository: repository, Tags: tags, Digest: indexDigest, MediaType: types.DockerManifestList, Data: index},
		{Repository: repository, Digest: digest, MediaType: mediaType, Data: raw},
	}
}

func reference(t *testing.T, site, ref string) name.Reference {
	t.Helper()
	r, err := name.ParseReference(strings.TrimPrefix(site, "http://")+"/"+ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every byte of an image arrives through the redirects and matches its digest.
func TestPullsThroughRedirects(t *testing.T) {
	sites, access := start(t)
	for site, ref := range map[string]string{
		"registry.k8s.io": "coredns/coredns:v1.11.1",
		"ghcr.io":         "flannel-io/flannel:v0.28.4",
		"docker.io":       "rancher/local-path-provisioner:v0.0.30",
	} {
		img, err := remote.Image(reference(t, sites[site], ref), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		if err := validate.Image(img); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	log, err := os.ReadFile(access)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"GET registry.k8s.io /v2/coredns/coredns/manifests/v1.11.1 307",
		"GET " + artifactRegistry + " /v2/k8s-artifacts-prod/images/coredns/coredns/manifests/v1.11.1 200",
		"GET " + imageBucket + " /containers/images/sha256:",
		"GET ghcr.io /v2/ 401",
		"GET ghcr.io /token 200",
		"GET " + packageCDN + " /ghcr1/blobs/sha256:",
		"GET docker.io /token 200",
		"GET " + hubCDN + " /registry-v2/blobs/sha256:",
	} {
		if !strings.Contains(string(log), want) {
			t.Errorf("no request %q in the access log:\n%s", want, log)
		}
	}
}

func TestIndexListsPlatformsThatAreAbsent(t *testing.T) {
	sites, _ := start(t)
	ref := reference(t, sites["registry.k8s.io"], "pause:3.9")
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 {
		t.Fatalf("index lists %d platforms, want 2", len(manifest.Manifests))
	}
	_, err = remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	var answer *transport.Error
	if !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound || answer.Errors[0].Code != transport.ManifestUnknownErrorCode {
		t.Errorf("arm64: got %v, want 404 MANIFEST_UNKNOWN", err)
	}
}

func TestTags(t *testing.T) {
	sites, _ := start(t)
	for _, c := range []struct {
		site, repository string
		page             int
		want             []string
	}{
		{"registry.k8s.io", "coredns/coredns", 1000, []string{"v1.11.1", "v1.11.3"}},
		// The client does not follow pages across registry.k8s.io's redirect.
		{"ghcr.io", "flannel-io/flannel", 1, []string{"v0.28.2", "v0.28.4"}},
	} {
		got, err := remote.List(reference(t, sites[c.site], c.repository).Context(), remote.WithPageSize(c.page))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: tags %q, want %q", c.site, got, c.want)
		}
	}
}

func TestUnknownNamesAreErrorsOfTheSpecification(t *testing.T) {
	sites, _ := start(t)
	for ref, code := range map[string]transport.ErrorCode{
		"nothing:1":            transport.NameUnknownErrorCode,
		"pause:no-such-tag":    transport.ManifestUnknownErrorCode,
		"kube-apiserver:v1.29": transport.NameUnknownErrorCode,
	} {
		_, err := remote.Get(reference(t, sites["registry.k8s.io"], ref))
		var answer *transport.Error
		if !errors.As(err, &answer) || len(answer.Errors) != 1 || answer.Errors[0].Code != code {
			t.Errorf("%s: got %v, want %s", ref, err, code)
		}
	}
}

// ask sends one request and does not follow redirects.
func ask(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// get follows redirects, as curl -L does.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	return string(body)
}

func TestObjectStoresRefuseOtherCredentials(t *testing.T) {
	sites, _ := start(t)
	resp, _ := ask(t, "GET", sites["registry.k8s.io"]+"/v2/pause/blobs/sha256:"+strings.Repeat("b", 64))
	location := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusTemporaryRedirect || !strings.Contains(location, redirectedHost) {
		t.Fatalf("blob: %s to %q, want 307 to another host", resp.Status, location)
	}
	if resp, _ = ask(t, "GET", location); resp.StatusCode != http.StatusForbidden {
		t.Errorf("missing blob: %s, want 403 as from a bucket without listing", resp.Status)
	}
	if resp, _ = ask(t, "GET", location, "Authorization", "Bearer x"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("with a registry's token: %s, want 400", resp.Status)
	}
}

func TestGHCRWantsATokenForTheRepository(t *testing.T) {
	sites, _ := start(t)
	url := sites["ghcr.io"] + "/v2/flannel-io/flannel/manifests/v0.28.4"
	other := strings.Split(get(t, sites["ghcr.io"]+"/token?scope=repository:other/image:pull"), `"`)[3]
	for _, header := range [][]string{nil, {"Authorization", "Bearer " + other}} {
		resp, _ := ask(t, "GET", url, header...)
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %q: %s, want 401", header, resp.Status)
		}
		if got := resp.Header.Get("Www-Authenticate"); !strings.Contains(got, `scope="repository:flannel-io/flannel:pull"`) {
			t.Errorf("challenge %q does not name the scope", got)
		}
	}
}

func TestKubernetesDownloads(t *testing.T) {
	sites, _ := start(t)
	site := sites["dl.k8s.io"]
	if got := get(t, site+"/release/stable-1.29.txt"); got != "v1.29.15" {
		t.Errorf("stable-1.29.txt is %q", got)
	}
	url := site + "/release/v1.29.15/bin/linux/amd64/kubelet"
	resp, _ := ask(t, "GET", url)
	if resp.StatusCode != http.StatusFound || !strings.HasPrefix(resp.Header.Get("Location"), "http://"+redirectedHost) {
		t.Errorf("kubelet: %s to %q, want 302 to another host", resp.Status, resp.Header.Get("Location"))
	}
	kubelet := sha256.Sum256([]byte(get(t, url)))
	if got, want := get(t, url+".sha256"), hex.EncodeToString(kubelet[:]); got != want {
		t.Errorf("kubelet.sha256 is %q, want %q and no newline", got, want)
	}
	resp, body := ask(t, "GET", resp.Header.Get("Location"), "Range", "bytes=4-")
	if resp.StatusCode != http.StatusPartialContent || body != "program kubelet" {
		t.Errorf("a resumed download: %s %q", resp.Status, body)
	}
	// dl.k8s.io redirects everything to its CDN, which answers 404.
	resp, _ = ask(t, "GET", site+"/release/v1.29.15/bin/linux/arm64/kubelet")
	if resp.StatusCode != http.StatusFound {
		t.Errorf("arm64: %s, want 302", resp.Status)
	}
	if resp, _ = ask(t, "GET", resp.Header.Get("Location")); resp.StatusCode != http.StatusNotFound {
		t.Errorf("arm64 at the CDN: %s, want 404", resp.Status)
	}
}

// coreutils must accept the checksum files.
func TestGitHubReleases(t *testing.T) {
	sites, _ := start(t)
	site := sites["github.com"]
	dir := t.TempDir()
	for _, c := range []struct{ dir, file, sums, tool string }{
		{"/containerd/containerd/releases/download/v2.4.2/", "containerd-2.4.2-linux-amd64.tar.gz", "containerd-2.4.2-linux-amd64.tar.gz.sha256sum", "sha256sum"},
		{"/containernetworking/plugins/releases/download/v1.9.1/", "cni-plugins-linux-amd64-v1.9.1.tgz", "cni-plugins-linux-amd64-v1.9.1.tgz.sha256", "sha256sum"},
		{"/containernetworking/plugins/releases/download/v1.9.1/", "cni-plugins-linux-amd64-v1.9.1.tgz", "cni-plugins-linux-amd64-v1.9.1.tgz.sha512", "sha512sum"},
		{"/opencontainers/runc/releases/download/v1.5.2/", "runc.amd64", "runc.sha256sum", "sha256sum"},
	} {
		for _, name := range []string{c.file, c.sums} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(get(t, site+c.dir+name)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), c.tool, "--check", c.sums)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.file+": OK") {
			t.Errorf("%s --check %s: %v\n%s", c.tool, c.sums, err, out)
		}
	}
	for archive, want := range map[string][]string{
		"containerd-2.4.2-linux-amd64.tar.gz": {"bin/", "bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		"cni-plugins-linux-amd64-v1.9.1.tgz":  {"./", "./LICENSE", "./bridge", "./host-local", "./portmap"},
	} {
		out, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(dir, archive)).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(string(out), "\n")
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s has no %s, only %q", archive, name, got)
			}
		}
	}
	for _, missing := range []string{
		"/kubernetes-sigs/cri-tools/releases/download/v1.29.0/crictl-v1.29.0-linux-amd64.tar.gz",
		"/opencontainers/runc/releases/download/v1.5.2/runc.arm64",
	} {
		resp, body := ask(t, "GET", site+missing)
		if resp.StatusCode != http.StatusNotFound || strings.TrimSpace(body) != "Not Found" {
			t.Errorf("%s: %s %q, want 404 Not Found", missing, resp.Status, body)
		}
	}
	resp, _ := ask(t, "GET", site+"/opencontainers/runc/releases/download/v1.5.2/runc.amd64")
	unsigned, _, _ := strings.Cut(resp.Header.Get("Location"), "?")
	if resp, _ = ask(t, "GET", unsigned); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the CDN's URL without its query: %s, want 403", resp.Status)
	}
}

func TestListenAddress(t *testing.T) {
	for _, bad := range []string{"0.0.0.0:0", "192.0.2.1:80", "localhost", "127.0.0.1:http"} {
		if _, err := spread(bad, 9); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	got, err := spread("127.0.0.1:5000", 9)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 9 || got[0] != "127.0.0.1:5000" || got[8] != "127.0.0.1:5008" {
		t.Errorf("addresses are %q", got)
	}
}
