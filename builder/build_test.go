package builder_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const version = "v1.29.15"

func executables(t *testing.T, machine elf.Machine) bundle.Executables {
	return bundle.Executables{Launcher: fakesites.Executable(t, machine), Installer: fakesites.Executable(t, machine)}
}

func options(t *testing.T, u *fakesites.Upstream) builder.Options {
	t.Helper()
	dir := t.TempDir()
	return builder.Options{
		Target:      builder.Target{Version: version, Arch: "amd64", CNI: "flannel"},
		Network:     builder.Network{CacheDir: filepath.Join(dir, "cache"), Mirrors: mirrors(t, u), RetryWait: time.Millisecond},
		Destination: builder.Destination{Output: filepath.Join(dir, "install"), Executables: executables(t, elf.EM_X86_64), Level: bundle.Fastest},
	}
}

func mirrors(t *testing.T, u *fakesites.Upstream) []fetch.Mirror {
	t.Helper()
	var list []fetch.Mirror
	for _, s := range u.Mirrors() {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// runOne builds one bundle.
func runOne(ctx context.Context, o builder.Options) (*builder.Result, error) {
	results, err := builder.Run(ctx, []builder.Options{o})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

func run(t *testing.T, o builder.Options) *builder.Result {
	t.Helper()
	r, err := runOne(context.Background(), o)
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
	}
	return r
}

func TestBuildWritesBootOrder(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Version = "v1.29"
	r := run(t, o)
	if r.Manifest.KubernetesVersion != version {
		t.Errorf("v1.29 became %s", r.Manifest.KubernetesVersion)
	}
	m := r.Manifest
	layer := func(image string, n int) string {
		for _, i := range m.Images {
			if i.Name == image {
				return bundle.BlobName(i.Layers[n].DiffID)
			}
		}
		t.Fatalf("no image %s", image)
		return ""
	}
	config := func(image string) string {
		for _, i := range m.Images {
			if i.Name == image {
				return bundle.BlobName(i.Config.Digest)
			}
		}
		return ""
	}
	want := []string{
		"bin/runc", "bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr",
		"cni/bridge", "cni/host-local", "bin/kubelet", "bin/kubectl", "cni/static", "bin/crictl",
		config("pause"), layer("pause", 0), layer("pause", 1), config("etcd"), layer("etcd", 1),
		config("kube-apiserver"), layer("kube-apiserver", 1),
		layer("kube-controller-manager", 1), layer("kube-scheduler", 1), layer("kube-proxy", 1),
		layer("flannel", 1), layer("coredns", 1),
	}
	last := -1
	for _, name := range want {
		at := slices.IndexFunc(m.Entries, func(e bundle.Entry) bool { return e.Name == name })
		if at <= last {
			t.Errorf("%s is at %d, after %d", name, at, last)
		}
		last = at
	}
	if layer("etcd", 0) != layer("pause", 0) {
		t.Error("the test's images share no layer")
	}
	if slices.ContainsFunc(m.Entries, func(e bundle.Entry) bool { return strings.Contains(e.Name, "README") }) {
		t.Error("a readme is among the CNI plugins")
	}
	for _, i := range m.Images {
		indexed := i.Target.Digest != i.Manifest.Digest
		if want := i.Name != "etcd"; indexed != want {
			t.Errorf("%s: has an index: %v, want %v", i.Name, indexed, want)
		}
	}
}

// The bundle has upstream's bytes: binaries as published, members of archives, images by
// digest.
func TestBundleHoldsUpstreamsBytes(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	r := run(t, options(t, u))
	if got := content(t, r.Path)["bin/kubelet"]; got != string(u.Get("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")) {
		t.Error("kubelet differs from what was published")
	}
	for _, c := range r.Manifest.Components {
		if strings.Contains(c.URL, "127.0.0.1") {
			t.Errorf("%s: the manifest names the mirror: %s", c.Name, c.URL)
		}
	}
}

func TestSameInputsSameBytes(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o1, o2 := options(t, u), options(t, u)
	o1.Level, o2.Level = bundle.Default, bundle.Default
	one, two := run(t, o1), run(t, o2)
	if one.SHA256 != two.SHA256 {
		t.Errorf("two builds from two caches differ: %s, %s", one.SHA256, two.SHA256)
	}
}

func TestSecondBuildNeedsNoNetwork(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	one := run(t, o)
	u.Forget()
	u.Close()
	o.Output += "-2"
	two := run(t, o)
	if got := u.Requests(); len(got) > 0 {
		t.Errorf("requests: %v", got)
	}
	if one.SHA256 != two.SHA256 {
		t.Errorf("the second build differs: %s, %s", one.SHA256, two.SHA256)
	}
}

func TestRefreshAsksAgainButDownloadsNothingTwice(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	run(t, o)
	u.Forget()
	o.Refresh = true
	run(t, o)
	asked := u.Requests()
	if !slices.Contains(asked, "GET dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet.sha256") {
		t.Error("kubelet's checksum was not asked for again")
	}
	if slices.Contains(asked, "GET dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet") {
		t.Error("kubelet was downloaded again")
	}
	for _, r := range asked {
		if strings.Contains(r, "/blobs/") {
			t.Errorf("a blob was downloaded again: %s", r)
		}
	}
}

func TestDamagedCacheIsNoticedAndFetchedAgain(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	one := run(t, o)
	kubelet, _ := one.Manifest.Entry("bin/kubelet")
	layer := one.Manifest.Images[0].Layers[1].DiffID[len("sha256:"):]
	for _, sum := range []string{kubelet.SHA256, layer} {
		path := filepath.Join(o.CacheDir, "sha256", sum)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.Forget()
	two := run(t, o)
	if one.SHA256 != two.SHA256 {
		t.Error("the bundle differs")
	}
	blobs := 0
	for _, r := range u.Requests() {
		if strings.HasPrefix(r, "GET blobs.example.com") {
			blobs++
		}
	}
	if blobs != 1 || !slices.Contains(u.Requests(), "GET cdn.dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet") {
		t.Errorf("want one blob and kubelet fetched again; requests: %v", u.Requests())
	}
}

func TestWrongChecksumWritesNothing(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	const file = "dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubectl"
	u.Put(file, []byte("something else"))
	_, err := runOne(context.Background(), o)
	if err == nil {
		t.Fatal("a wrong checksum went through")
	}
	sum := strings.TrimSpace(string(u.Get(file + ".sha256")))
	got := fmt.Sprintf("%x", sha256.Sum256([]byte("something else")))
	for _, want := range []string{"kubectl v1.29.15", "https://" + file, sum, got} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if _, err := os.Stat(o.Output); err == nil {
		t.Error("a bundle was written")
	}
}

func TestMissingThingsAreReportedTogether(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Images = []string{"example/none:v1"}
	u.Remove("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubectl.sha256")
	u.Remove("github.com/opencontainers/runc/releases/download/v1.5.2/runc.sha256sum")
	_, err := runOne(context.Background(), o)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"missing for Kubernetes v1.29.15 on linux/amd64", "kubectl v1.29.15", "runc v1.5.2", "docker.io/example/none:v1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if hint := fault.Hint(err); !strings.Contains(hint, "mirror") {
		t.Errorf("hint = %q", hint)
	}
}

func TestMissingFilesWithChecksumsAreReportedTogether(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	u.Remove("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubectl")
	u.Remove("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "kubectl v1.29.15") || !strings.Contains(err.Error(), "kubelet v1.29.15") {
		t.Errorf("err = %v", err)
	}
}

func TestTamperedCrictlIsNotMerelyLeftOut(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	u.Put("github.com/kubernetes-sigs/cri-tools/releases/download/v1.28.0/crictl-v1.28.0-linux-amd64.tar.gz", []byte("tampered"))
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "crictl v1.28.0") {
		t.Errorf("err = %v", err)
	}
}

func TestUsersImages(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.PushIndex("docker.io/library/web:1", indexOf(t, "amd64", "arm64"))
	u.Push("docker.io/team/app:latest", fakesites.Image(t, "amd64", "app"))
	o := options(t, u)
	o.Images = []string{"web:1", "team/app", "registry.k8s.io/pause:3.9", "registry.k8s.io/etcd:3.5.16-0"}
	r := run(t, o)
	var got []string
	for _, i := range r.Manifest.Images[len(r.Manifest.Images)-2:] {
		got = append(got, i.Reference)
	}
	if want := []string{"docker.io/library/web:1", "docker.io/team/app:latest"}; !slices.Equal(got, want) {
		t.Errorf("images = %v, want %v", got, want)
	}
	// Workers have no use for etcd unless the user names it.
	for _, i := range r.Manifest.Images {
		if i.EveryNode != (i.Name == "etcd") {
			t.Errorf("%s on every node: %v", i.Name, i.EveryNode)
		}
	}
	// A user's tag may change, so it is resolved again, but nothing is downloaded.
	u.Forget()
	run(t, o)
	for _, r := range u.Requests() {
		if strings.HasPrefix(r, "GET") && strings.Contains(r, "/manifests/") || strings.Contains(r, "/blobs/") {
			t.Errorf("downloaded again: %s", r)
		}
	}
	u.Push("docker.io/team/app:latest", fakesites.Image(t, "amd64", "app, newer"))
	again := run(t, o)
	if again.SHA256 == r.SHA256 {
		t.Error("a tag that moved was not noticed")
	}
}

func TestArm64(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Arch, o.Executables = "arm64", executables(t, elf.EM_AARCH64)
	// etcd and runc are only available for amd64.
	const sums = "github.com/opencontainers/runc/releases/download/v1.5.2/runc.sha256sum"
	both := u.Get(sums)
	u.Put(sums, both[:bytes.IndexByte(both, '\n')+1])
	_, err := runOne(context.Background(), o)
	for _, want := range []string{"registry.k8s.io/etcd:3.5.16-0 has no image for linux/arm64, only for linux/amd64", "no checksum for runc.arm64"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("err = %v", err)
		}
	}
	u.Put(sums, both)
	u.PushIndex("registry.k8s.io/etcd:3.5.16-0", indexOf(t, "amd64", "arm64"))
	r := run(t, o)
	if r.Manifest.Platform != "linux/arm64" {
		t.Errorf("platform = %s", r.Manifest.Platform)
	}
}

func TestExecutablesMustFit(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	other, script := fakesites.Executable(t, elf.EM_AARCH64), []byte("#!/bin/sh\n")
	for name, c := range map[string]struct {
		change func(*bundle.Executables)
		want   string
	}{
		"installer of another architecture": {func(p *bundle.Executables) { p.Installer = other }, "the installer was built for EM_AARCH64"},
		"launcher of another architecture":  {func(p *bundle.Executables) { p.Launcher = other }, "the launcher was built for EM_AARCH64"},
		"installer that is no executable":   {func(p *bundle.Executables) { p.Installer = script }, "reading the installer"},
		"no launcher":                       {func(p *bundle.Executables) { p.Launcher = nil }, "reading the launcher"},
	} {
		o := options(t, u)
		c.change(&o.Executables)
		_, err := runOne(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	if got := u.Requests(); len(got) > 0 {
		t.Errorf("downloads began: %v", got)
	}
}

func TestCancelLeavesNoOutputAndAUsableCache(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	u.Answer = func(w http.ResponseWriter, r *http.Request, target string) bool {
		if !strings.HasSuffix(target, "/kubelet") || !strings.HasPrefix(target, "cdn.") {
			return false
		}
		whole := u.Get(strings.TrimPrefix(target, "cdn."))
		w.Header().Set("Content-Length", "1000000")
		w.Write(whole[:1000])
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		return true
	}
	if _, err := runOne(ctx, o); fault.ExitCode(err) != fault.Interrupted {
		t.Fatalf("err = %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(o.Output))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "cache" {
		t.Errorf("left behind: %v", left)
	}
	u.Answer = nil
	run(t, o)
	partial, err := os.ReadDir(filepath.Join(o.CacheDir, "partial"))
	if err != nil {
		t.Fatal(err)
	}
	if len(partial) > 0 {
		t.Errorf("left in the cache: %v", partial)
	}
}

func TestConcurrentBuildsShareACache(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	type outcome struct {
		r   *builder.Result
		err error
	}
	results := make(chan outcome)
	for n := range 3 {
		o := o
		o.Output += string(rune('a' + n))
		go func() {
			r, err := runOne(context.Background(), o)
			results <- outcome{r, err}
		}()
	}
	sums := map[string]bool{}
	for range 3 {
		got := <-results
		if got.err != nil {
			t.Fatal(got.err)
		}
		sums[got.r.SHA256] = true
	}
	if len(sums) != 1 {
		t.Errorf("the bundles differ: %v", sums)
	}
	downloads := 0
	for _, r := range u.Requests() {
		if r == "GET cdn.dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet" {
			downloads++
		}
	}
	if downloads != 1 {
		t.Errorf("kubelet was downloaded %d times", downloads)
	}
}

func TestUnusedMirrorIsNamed(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	m, err := fetch.ParseMirror("registry.k8s.oi=http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	o.Mirrors = append(o.Mirrors, m)
	r := run(t, o)
	if !slices.Contains(r.UnusedMirrors, "registry.k8s.oi") || slices.Contains(r.UnusedMirrors, "registry.k8s.io") {
		t.Errorf("unused = %v", r.UnusedMirrors)
	}
}

func TestNoNetworkSaysWhatIsNeeded(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Version = "v1.29"
	u.Close()
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "stable-1.29.txt") || !strings.Contains(fault.Hint(err), "v1.29.15") {
		t.Errorf("err = %v, hint = %s", err, fault.Hint(err))
	}
}
