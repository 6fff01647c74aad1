package builder_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const (
	kubelet = "dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet"
	crictl  = "github.com/kubernetes-sigs/cri-tools/releases/download/v1.28.0/crictl-v1.28.0-linux-amd64.tar.gz"
)

// evil serves other contents than New, with matching checksums.
func evil(t *testing.T) *fakesites.Upstream {
	t.Helper()
	u := fakesites.New(t, version)
	u.Put(kubelet, []byte("\x7fELF, but not upstream's"))
	u.Put(kubelet+".sha256", fmt.Appendf(nil, "%x\n", sha256.Sum256(u.Get(kubelet))))
	u.PushIndex("registry.k8s.io/kube-apiserver:v1.29.15", indexOf(t, "amd64", "arm64"))
	u.Forget()
	return u
}

// Facts from one mirror are not used with another, in either order, and shared contents are
// downloaded once.
func TestCacheDoesNotLaunderMirrors(t *testing.T) {
	t.Parallel()
	good, bad := fakesites.New(t, version), evil(t)
	clean := options(t, good)
	want := run(t, clean)
	good.Forget()

	o := options(t, bad)
	poisoned := run(t, o)
	if poisoned.SHA256 == want.SHA256 {
		t.Fatal("the bad mirror is not bad")
	}
	o.Mirrors = mirrors(t, good)
	got := run(t, o)
	if got.SHA256 != want.SHA256 {
		t.Error("the bundle has content of the bad mirror")
	}
	asked := good.Requests()
	for _, q := range []string{"GET " + kubelet + ".sha256", "GET " + kubelet, "GET registry.k8s.io/v2/kube-apiserver/manifests/v1.29.15", "GET registry.k8s.io/v2/pause/manifests/3.9"} {
		if !slices.Contains(asked, q) {
			t.Errorf("not requested: %s", q)
		}
	}
	for _, q := range asked {
		if strings.HasSuffix(q, "/kubectl") || strings.HasSuffix(q, ".tgz") {
			t.Errorf("downloaded again, although its checksum is the same: %s", q)
		}
	}
	o.Mirrors = mirrors(t, bad)
	if got := run(t, o); got.SHA256 != poisoned.SHA256 {
		t.Error("the bundle has content of the good mirror")
	}
}

// Facts of the first cache layout have no source.
func TestOldFactsAreNotRead(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	run(t, o)
	if err := os.Rename(filepath.Join(o.CacheDir, "facts-2"), filepath.Join(o.CacheDir, "facts")); err != nil {
		t.Fatal(err)
	}
	u.Forget()
	run(t, o)
	if !slices.Contains(u.Requests(), "GET "+kubelet+".sha256") {
		t.Error("an old fact was believed")
	}
}

func provenanceOf(t *testing.T, r *builder.Result) (p builder.Provenance, raw []byte) {
	t.Helper()
	raw, err := os.ReadFile(r.Provenance)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return p, raw
}

func TestProvenance(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.PushIndex("docker.io/library/web:1", indexOf(t, "amd64"))
	o := options(t, u)
	o.Version, o.Images = "v1.29", []string{"web:1"}
	r := run(t, o)
	p, first := provenanceOf(t, r)
	file, err := os.ReadFile(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(file)); p.BundleSHA256 != want || p.BundleSize != int64(len(file)) {
		t.Errorf("it names %s of %d bytes, the bundle is %s", p.BundleSHA256, p.BundleSize, want)
	}
	if p.Release == nil || p.Release.URL != u.URL()+"/dl.k8s.io/release/stable-1.29.txt" || !slices.Equal(p.Release.Redirects, []string{u.URL() + "/cdn.dl.k8s.io"}) {
		t.Errorf("release: %+v", p.Release)
	}
	if len(p.Components) != len(r.Manifest.Components) || len(p.Images) != len(r.Manifest.Images) || len(p.Mirrors) != len(fakesites.Hosts) || len(p.LeftOut) != 0 {
		t.Errorf("%s", first)
	}
	for n, c := range r.Manifest.Components {
		got := p.Components[n]
		if got.Name != c.Name || got.URL != c.URL || got.Checksum != c.Checksum || got.VouchedBy != "site" || got.Source == nil || !strings.HasPrefix(got.Source.URL, got.FetchedFrom+"/") || !strings.HasPrefix(got.FetchedFrom, u.URL()) {
			t.Errorf("%+v, for %+v", got, c)
		}
	}
	for _, i := range r.Manifest.Images {
		at := slices.IndexFunc(p.Images, func(p builder.ProvenanceImage) bool { return p.Reference == i.Reference })
		if got := p.Images[at]; got.Digest != i.Target.Digest || got.VouchedBy != "registry" || got.Source == nil || !strings.Contains(got.Source.URL, "/manifests/") {
			t.Errorf("%+v, for %+v", got, i)
		}
	}
	// The same build has the same provenance with another cache and with the same one.
	again := options(t, u)
	again.Version, again.Images = o.Version, o.Images
	for _, o := range []builder.Options{again, again} {
		if _, second := provenanceOf(t, run(t, o)); !bytes.Equal(first, second) {
			t.Errorf("it differs:\n%s\n%s", first, second)
		}
	}
}

// A bundle through an honest mirror has the same bytes, and its provenance names the mirror.
func TestHonestMirrorsMakeTheSameBundle(t *testing.T) {
	t.Parallel()
	one, two := fakesites.New(t, version), fakesites.New(t, version)
	r1, r2 := run(t, options(t, one)), run(t, options(t, two))
	_, p1 := provenanceOf(t, r1)
	_, p2 := provenanceOf(t, r2)
	if r1.SHA256 != r2.SHA256 || bytes.Equal(p1, p2) {
		t.Errorf("bundles %s and %s; provenances the same: %v", r1.SHA256, r2.SHA256, bytes.Equal(p1, p2))
	}
}

// The provenance next to a bundle always belongs to it, even after a failed build.
func TestProvenanceNeverNamesAnotherBundle(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	run(t, o)
	before, err := os.ReadFile(builder.ProvenancePath(o.Output))
	if err != nil {
		t.Fatal(err)
	}
	// A failed build changes neither file.
	bad := o
	bad.Images = []string{"example/none:v1"}
	if _, err := runOne(context.Background(), bad); err == nil {
		t.Fatal("no error")
	}
	if after, err := os.ReadFile(builder.ProvenancePath(o.Output)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a build that failed changed it: %v", err)
	}
	// Another bundle replaces both files.
	o.CNI = "none"
	r := run(t, o)
	if p, _ := provenanceOf(t, r); p.BundleSHA256 != r.SHA256 {
		t.Errorf("it names %s, the bundle is %s", p.BundleSHA256, r.SHA256)
	}
	left, err := os.ReadDir(filepath.Dir(o.Output))
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
	// A provenance that cannot be replaced is found before the downloads.
	o.Output += "-2"
	if err := os.Mkdir(builder.ProvenancePath(o.Output), 0o755); err != nil {
		t.Fatal(err)
	}
	u.Forget()
	if _, err := runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage || len(u.Requests()) > 0 {
		t.Errorf("%d requests, err = %v", len(u.Requests()), err)
	}
}

func TestMirrorsAreWarnedAbout(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	r := run(t, options(t, u))
	for _, want := range []string{
		"mirror " + u.URL() + "/dl.k8s.io of dl.k8s.io supplied the checksums of 2 files.",
		"mirror " + u.URL() + "/github.com of github.com supplied the checksums of 4 files.",
		"mirror " + u.URL() + "/registry.k8s.io of registry.k8s.io supplied the digests of 7 images.",
	} {
		if n := strings.Count(strings.Join(r.Warnings, "\n"), want); n != 1 {
			t.Errorf("%d times %q in %q", n, want, r.Warnings)
		}
	}
	for _, w := range r.Warnings {
		if !strings.Contains(w, "plain http") || !strings.Contains(w, "--checksum") {
			t.Errorf("%q", w)
		}
	}
}

// An optional component is left out only if its site answers 404 or 410.
func TestOnlyNotFoundLeavesOut(t *testing.T) {
	t.Parallel()
	answers := map[string]func(w http.ResponseWriter, r *http.Request){
		"404": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"410": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusGone) },
		"403": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"500": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"name that does not resolve": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://no-such-host.invalid/", http.StatusFound)
		},
		"connection refused": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"connection cut":    func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"an empty document": func(w http.ResponseWriter, r *http.Request) {},
		"a checksum of other files": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s  other.tar.gz\n", strings.Repeat("a", 64))
		},
	}
	for _, file := range []string{crictl + ".sha256", crictl} {
		for name, answer := range answers {
			// Retries take seconds until they fail.
			if file == crictl && name != "404" && name != "403" {
				continue
			}
			t.Run(name+" for "+file[len(crictl)-7:], func(t *testing.T) {
				t.Parallel()
				u := fakesites.New(t, version)
				u.Answer = func(w http.ResponseWriter, r *http.Request, target string) bool {
					if target != file {
						return false
					}
					answer(w, r)
					return true
				}
				o := options(t, u)
				r, err := runOne(context.Background(), o)
				if name != "404" && name != "410" {
					if err == nil || !strings.Contains(err.Error(), "crictl") {
						t.Errorf("err = %v", err)
					}
					if _, err := os.Stat(o.Output); err == nil {
						t.Error("a bundle was written")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := r.Manifest.Entry("bin/crictl"); ok {
					t.Error("crictl is there")
				}
				p, _ := provenanceOf(t, r)
				if len(r.LeftOut) != 1 || len(p.LeftOut) != 1 || p.LeftOut[0] != r.LeftOut[0] ||
					p.LeftOut[0].Name != "crictl" || p.LeftOut[0].URL != "https://"+crictl || !strings.Contains(p.LeftOut[0].Why, "not found: https://"+file) {
					t.Errorf("left out: %+v, %+v", r.LeftOut, p.LeftOut)
				}
				o.Require = []string{"crictl"}
				if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "crictl v1.28.0") {
					t.Errorf("--require: %v", err)
				}
			})
		}
	}
}

func TestWithoutAsksForNothing(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Without = []string{"crictl"}
	r := run(t, o)
	if _, ok := r.Manifest.Entry("bin/crictl"); ok {
		t.Error("crictl is there")
	}
	for _, q := range u.Requests() {
		if strings.Contains(q, "cri-tools") {
			t.Errorf("asked: %s", q)
		}
	}
	if p, _ := provenanceOf(t, r); len(p.LeftOut) != 1 || p.LeftOut[0].Why != "--without crictl" {
		t.Errorf("left out: %+v", p.LeftOut)
	}
	for _, o := range []builder.Selection{{Without: []string{"kubelet"}}, {Require: []string{"crictI"}}, {Without: []string{"crictl"}, Require: []string{"crictl"}}} {
		full := options(t, u)
		full.Without, full.Require = o.Without, o.Require
		if _, err := runOne(context.Background(), full); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "--") {
			t.Errorf("%v, %v: %v", o.Without, o.Require, err)
		}
	}
}

func pin(t *testing.T, name string, content []byte) builder.Pin {
	t.Helper()
	p, err := builder.ParsePin(fmt.Sprintf("%s=sha256:%x", name, sha256.Sum256(content)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A pinned file needs no published checksum, and a wrong published one has no effect.
func TestPinnedFiles(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	apiserver := indexDigest(t, u, "kube-apiserver/manifests/v1.29.15")
	names := map[string]string{ // by file
		kubelet: "kubelet",
		"dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubectl":                 "linux/amd64/kubectl",
		"github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64": "runc.amd64",
		crictl: "https://" + crictl,
	}
	o := options(t, u)
	for file, name := range names {
		o.Pins = append(o.Pins, pin(t, name, u.Get(file)))
	}
	o.Pins = append(o.Pins, builder.Pin{Name: "registry.k8s.io/kube-apiserver:v1.29.15", SHA256: apiserver})
	u.Remove(kubelet + ".sha256")
	u.Put(crictl+".sha256", []byte(strings.Repeat("0", 64)))
	u.Forget()
	r := run(t, o)
	for _, q := range u.Requests() {
		for file := range names {
			if strings.HasPrefix(q, "GET "+file) && q != "GET "+file {
				t.Errorf("a checksum was requested: %s", q)
			}
		}
		if strings.HasSuffix(q, "runc.sha256sum") || strings.HasSuffix(q, "kube-apiserver/manifests/v1.29.15") {
			t.Errorf("requested: %s", q)
		}
	}
	p, _ := provenanceOf(t, r)
	byUser := 0
	for _, c := range p.Components {
		if c.VouchedBy == "--checksum" && c.Source == nil {
			byUser++
		}
	}
	for _, i := range p.Images {
		if i.VouchedBy == "--checksum" && i.Source == nil && i.Digest == "sha256:"+apiserver {
			byUser++
		}
	}
	if byUser != 5 || len(r.Pinned) != 5 {
		t.Errorf("%d are vouched for by the user: %+v; %q", byUser, p, r.Pinned)
	}
	if all := strings.Join(r.Warnings, "\n"); !strings.Contains(all, "/github.com of github.com supplied the checksums of 2 files") || strings.Contains(all, "of dl.k8s.io supplied") || !strings.Contains(all, "digests of 6 images") {
		t.Errorf("warnings: %s", all)
	}
	// The pins were correct, so the bundle is the same without them.
	plain := options(t, fakesites.New(t, version))
	if want := run(t, plain); want.SHA256 != r.SHA256 {
		t.Error("the bundle differs from one without pins")
	}
}

func indexDigest(t *testing.T, u *fakesites.Upstream, path string) string {
	t.Helper()
	resp, err := http.Head(u.URL() + "/registry.k8s.io/v2/" + path)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return strings.TrimPrefix(resp.Header.Get("Docker-Content-Digest"), "sha256:")
}

func TestWrongPinsWriteNothing(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	// Already in the cache, with the site's checksum.
	o := options(t, u)
	run(t, o)
	if err := os.Remove(o.Output); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"kubelet": "pinned by --checksum", "crictl": "pinned by --checksum", "pause": "registry.k8s.io/pause:3.9"} {
		o.Pins = []builder.Pin{pin(t, name, []byte("something else"))}
		_, err := runOne(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), o.Pins[0].SHA256) || fault.ExitCode(err) != fault.Failure {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(o.Output); err == nil {
			t.Errorf("%s: a bundle was written", name)
		}
	}
	// A pinned optional component is required.
	u.Remove(crictl)
	fresh := options(t, u)
	fresh.Pins = []builder.Pin{pin(t, "crictl", []byte("x"))}
	if _, err := runOne(context.Background(), fresh); err == nil || !strings.Contains(err.Error(), "crictl") {
		t.Errorf("a pinned file that is not there: %v", err)
	}
}

func TestPinsThatNameNothing(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	list := func(text string) []builder.Pin {
		path := filepath.Join(t.TempDir(), "SHA256SUMS")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		pins, err := builder.ReadPins(path)
		if err != nil {
			t.Fatal(err)
		}
		return pins
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(u.Get(kubelet)))
	other := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		pins       []builder.Pin
		want, hint string
	}{
		"misspelt":           {[]builder.Pin{pin(t, "kublet", nil)}, `"kublet"`, "did you mean kubelet?"},
		"other architecture": {[]builder.Pin{pin(t, "linux/arm64/kubelet", nil)}, "linux/arm64/kubelet", "cni-plugins, containerd, coredns"},
		"two for one":        {[]builder.Pin{pin(t, "kubelet", nil), pin(t, "linux/amd64/kubelet", u.Get(kubelet))}, "two checksums", "one checksum"},
		"list of others":     {list(other + "  kubeadm\n"), "SHA256SUMS", "kubelet"},
	} {
		o := options(t, u)
		o.Pins = c.pins
		_, err := runOne(context.Background(), o)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
	// A list may also have checksums of other files.
	o := options(t, u)
	o.Pins = list("# from upstream\n" + sum + "  bin/linux/amd64/kubelet\n" + other + " *bin/linux/arm64/kubelet\nSHA256 (kubeadm) = " + other + "\n\n")
	if r := run(t, o); !slices.Equal(r.Pinned, []string{"kubelet"}) {
		t.Errorf("pinned: %q", r.Pinned)
	}
}

// With several architectures, the name of a component means several files. A pin must name one of
// them. A pin of an image is for all architectures.
func TestPinsOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	list := bothOptions(t, u)
	build := func(pins ...builder.Pin) ([]*builder.Result, error) {
		both := slices.Clone(list)
		for n := range both {
			both[n].Pins = pins
		}
		return builder.Run(t.Context(), both)
	}
	sums := filepath.Join(t.TempDir(), "SHA256SUMS")
	if err := os.WriteFile(sums, fmt.Appendf(nil, "%x  kubelet\n", sha256.Sum256(u.Get(kubelet))), 0o644); err != nil {
		t.Fatal(err)
	}
	fromList, err := builder.ReadPins(sums)
	if err != nil {
		t.Fatal(err)
	}
	u.Forget()
	for name, c := range map[string]struct {
		pin        builder.Pin
		want, hint string
	}{
		"component":         {pin(t, "kubelet", u.Get(kubelet)), `--checksum has one checksum for "kubelet", which is another file for each architecture: https://` + kubelet, "the names amd64/kubelet and arm64/kubelet,"},
		"archive":           {pin(t, "crictl", nil), `"crictl"`, "the names crictl-v1.28.0-linux-amd64.tar.gz and crictl-v1.28.0-linux-arm64.tar.gz,"},
		"component in list": {fromList[0], sums + ` has one checksum for "kubelet"`, "amd64/kubelet"},
		"none of both":      {pin(t, "runc.riscv64", nil), "which is not in this bundle", "runc"},
	} {
		_, err := build(c.pin)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
	if requests := u.Requests(); len(requests) > 0 {
		t.Errorf("requests: %q", requests)
	}
	const runc = "github.com/opencontainers/runc/releases/download/v1.5.2/runc."
	other := strings.Replace(kubelet, "amd64", "arm64", 1)
	results, err := build(pin(t, "amd64/kubelet", u.Get(kubelet)), pin(t, "linux/arm64/kubelet", u.Get(other)), pin(t, "runc.arm64", u.Get(runc+"arm64")),
		builder.Pin{Name: "pause", SHA256: u.Digest("registry.k8s.io/pause:3.9").Hex})
	if err != nil {
		t.Fatalf("%v, hint %q", err, fault.Hint(err))
	}
	for n, want := range [][]string{{"kubelet", "pause"}, {"kubelet", "pause", "runc"}} {
		if got := slices.Sorted(slices.Values(results[n].Pinned)); !slices.Equal(got, want) {
			t.Errorf("pinned for %s: %q", list[n].Arch, got)
		}
	}
	if _, err := build(pin(t, "arm64/kubelet", []byte("something else"))); err == nil || !strings.Contains(err.Error(), "pinned by --checksum") {
		t.Errorf("a wrong checksum for the second: %v", err)
	}
	o := list[0]
	o.Pins = []builder.Pin{pin(t, "arm64/kubelet", u.Get(other))}
	if _, _, err := builder.Resolve(t.Context(), o); err != nil {
		t.Errorf("an update: %v", err)
	}
}

func TestImagesNamedByDigestAreHeldToIt(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.PushIndex("docker.io/library/web:1", indexOf(t, "amd64"))
	digest := indexDigest(t, u, "library/web/manifests/1")
	u.Forget()
	o := options(t, u)
	o.Images = []string{"web:1@sha256:" + digest}
	r := run(t, o)
	p, _ := provenanceOf(t, r)
	last := p.Images[0]
	if last.Reference != "docker.io/library/web@sha256:"+digest || last.VouchedBy != "reference" || last.Digest != "sha256:"+digest {
		t.Errorf("%+v", last)
	}
	for _, q := range u.Requests() {
		if strings.HasSuffix(q, "library/web/manifests/1") {
			t.Errorf("the tag was asked for: %s", q)
		}
	}
}

func TestParsePin(t *testing.T) {
	sum := strings.Repeat("aB", 32)
	for _, s := range []string{"kubelet=sha256:" + sum, "kubelet=" + sum} {
		if p, err := builder.ParsePin(s); err != nil || p.Name != "kubelet" || p.SHA256 != strings.ToLower(sum) {
			t.Errorf("%s: %+v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "kubelet", "kubelet=", "=sha256:" + sum, "kubelet=sha256:" + sum[1:], "kubelet=md5:" + sum, "kubelet=sha256:" + sum + "0"} {
		if _, err := builder.ParsePin(s); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "NAME=sha256:HEX") {
			t.Errorf("%q: %v", s, err)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "words": "these are words\n", "md5": strings.Repeat("a", 32) + "  file\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := builder.ReadPins(path); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
