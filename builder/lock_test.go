package builder_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/builder/lock"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// lockedSite returns the options of a build with all that a lock pins, from sites with an
// image and a chart of the user.
func lockedSite(t *testing.T) (*fakesites.Upstream, builder.Options) {
	t.Helper()
	u := siteUpstream(t)
	putChart(t, u)
	o := options(t, u)
	o.Version = "v1.29"
	o.Site = site(t)
	dir := t.TempDir()
	values := filepath.Join(dir, "values.yaml")
	fakesites.WriteFiles(t, dir, map[string]string{"values.yaml": "image: nginx:1.27\n"})
	o.Site.Written = map[string]string{values: "values.yaml"}
	o.Site.Manifests = append(o.Site.Manifests, builder.Manifest{Name: "chart", Namespace: "late",
		Chart: &builder.Chart{Source: "https://github.com/site/charts", Name: "web", Version: "1.2.3", Release: "late", Values: []string{values}}})
	o.LockPath = filepath.Join(dir, "bundle.lock")
	return u, o
}

// requestsOfTags are requests whose answer may change: tags, lists and published checksums.
var requestsOfTags = regexp.MustCompile(`/manifests/[^s]|/tags/|index\.yaml|stable|sha256sum|\.sha256$|SHA256SUMS`)

func asked(u *fakesites.Upstream) (list []string) {
	for _, r := range u.Requests() {
		if requestsOfTags.MatchString(r) && !strings.Contains(r, "/manifests/sha256:") {
			list = append(list, r)
		}
	}
	return list
}

func TestLockedBuilds(t *testing.T) {
	t.Parallel()
	u, o := lockedSite(t)
	var l *lock.Lock
	o.Resolved = func(got *lock.Lock) error { l = got; return lock.Write(o.LockPath, got) }
	run(t, o)
	if len(asked(u)) < 10 {
		t.Fatalf("the pattern of requests for tags and checksums finds only %q", asked(u))
	}
	if n := len(l.Components); n != 6 || len(l.Images) != 9 || len(l.Charts) != 1 || len(l.Manifests) != 3 || len(l.Sources) != 4 {
		t.Errorf("%d components, or other numbers of items, in %+v", n, l)
	}
	if !slices.ContainsFunc(l.Sources, func(s lock.Source) bool { return s.Path == "values.yaml" }) {
		t.Errorf("%+v", l.Sources)
	}
	pinned, err := lock.Read(o.LockPath)
	if err != nil {
		t.Fatal(err)
	}

	// Since then, the channel, a tag and a published checksum changed.
	u.Put("dl.k8s.io/release/stable-1.29.txt", []byte("v1.29.16\n"))
	u.Push("docker.io/library/nginx:1.27", fakesites.Image(t, "amd64", "a new nginx"))
	u.Put("dl.k8s.io/release/"+version+"/bin/linux/amd64/kubelet.sha256", []byte(strings.Repeat("0", 64)))
	var first []byte
	for range 2 {
		u.Forget()
		o := o
		dir := t.TempDir()
		o.CacheDir, o.Output = filepath.Join(dir, "cache"), filepath.Join(dir, "install")
		o.Lock, o.Resolved = pinned.Of("linux/amd64"), nil
		r := run(t, o)
		if list := asked(u); len(list) > 0 {
			t.Errorf("a locked build requested %q", list)
		}
		content, err := os.ReadFile(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = content
		}
		if !bytes.Equal(first, content) {
			t.Error("two locked builds differ")
		}
		text, err := os.ReadFile(r.Provenance)
		if err != nil || !strings.Contains(string(text), `"vouchedBy": "lock"`) || strings.Contains(string(text), `"vouchedBy": "site"`) {
			t.Errorf("%v: %s", err, text)
		}
	}

	u.Put("dl.k8s.io/release/stable-1.29.txt", []byte(version+"\n"))
	u.Put("dl.k8s.io/release/"+version+"/bin/linux/amd64/kubelet", []byte("another kubelet"))
	o.Lock, o.CacheDir = pinned[0], t.TempDir()
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "kubelet") || !strings.Contains(err.Error(), o.LockPath) {
		t.Errorf("a changed kubelet: %v", err)
	}
}

func TestLockDrift(t *testing.T) {
	t.Parallel()
	u, o := lockedSite(t)
	pinned, _, err := builder.Resolve(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	u.Push("docker.io/team/tool:v1", fakesites.Image(t, "amd64", "tool"))
	o.Lock = pinned
	o.Images = []string{"docker.io/team/tool:v1"}
	o.Without = []string{"crictl"}
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{"motd": "changed\n", "config/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"})
	u.Forget()
	_, err = runOne(context.Background(), o)
	if fault.ExitCode(err) != fault.Failure || !strings.Contains(fault.Hint(err), "bundle update") {
		t.Fatalf("%v; hint %q", err, fault.Hint(err))
	}
	for _, want := range []string{"image docker.io/team/tool:v1\n    pinned: none\n    now:    added", "component crictl version\n    pinned: v1", "manifest config sha256", "motd sha256"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "pinned:"); n != 4 {
		t.Errorf("%d differences: %v", n, err)
	}
	if list := asked(u); len(list) > 0 {
		t.Errorf("requested %q", list)
	}

	o.Version = "v1.30"
	if _, err = runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "pinned: v1.29.15\n    now:    v1.30") {
		t.Error(err)
	}
	o.Version, o.Refresh = "v1.29", true
	if _, err = runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage {
		t.Error(err)
	}
}

// A component that its site does not have is left out of all builds with the lock.
func TestLockedComponentsThatWereLeftOut(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.Answer = noCrictl
	o := options(t, u)
	l, _, err := builder.Resolve(context.Background(), o)
	if err != nil || len(l.LeftOut) != 1 || l.LeftOut[0].Name != "crictl" {
		t.Fatalf("%+v, %v", l, err)
	}
	u.Answer = nil
	o.Lock, o.LockPath = l, "bundle.lock"
	r := run(t, o)
	if len(r.LeftOut) != 1 || len(r.Manifest.Components) != 5 {
		t.Errorf("%+v", r.LeftOut)
	}
	o.Require = []string{"crictl"}
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "crictl") {
		t.Errorf("--require crictl: %v", err)
	}
}
