package builder_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder"
	"airlift/builder/lock"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/siteregistry"
)

// The lock pins charts of a real registry, with a private CA and token authentication: one by
// its version, and one that a range of a dependency means.
func TestLockedChartsOfARegistry(t *testing.T) {
	r := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	config := t.TempDir()
	fakesites.WriteFiles(t, config, map[string]string{"config.json": fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`,
		r.Host, base64.StdEncoding.EncodeToString([]byte(siteregistry.User+":"+siteregistry.Password)))})
	t.Setenv("DOCKER_CONFIG", config)
	push := func(tag string, archive []byte) {
		t.Helper()
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.cncf.helm.config.v1+json")
		image, err := mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")})
		if err != nil {
			t.Fatal(err)
		}
		r.Push("charts/web:"+tag, image)
	}
	archive := chartArchive(t)
	push("1.2.3_b1", archive) // a tag cannot have the + of the version
	push("1.2.3", archive)

	u := siteUpstream(t)
	o := options(t, u)
	o.CAs = []string{r.CA} // of the registry and of its token service
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{
		"parent/Chart.yaml": "apiVersion: v2\nname: parent\nversion: 0.1.0\ndependencies: [{name: web, version: '>=1', repository: 'oci://" + r.Host + "/charts'}]\n",
	})
	source := "oci://" + r.Host + "/charts/web"
	o.Site.Manifests = []builder.Manifest{
		{Name: "one", Namespace: "one", Chart: &builder.Chart{Source: source, Version: "1.2.3+b1", Release: "one"}},
		{Name: "two", Namespace: "two", Chart: &builder.Chart{Source: filepath.Join(dir, "parent"), Release: "two"}},
	}
	o.LockPath = filepath.Join(dir, "bundle.lock")
	o.Resolved = func(got *lock.Lock) error { return lock.Write(o.LockPath, got) }
	run(t, o)
	resolving := regexp.MustCompile(`"(?:GET|HEAD) /v2/charts/web/(?:manifests|tags)/[^ "]*`)
	if asked := resolving.FindAllString(r.Log(), -1); len(asked) < 3 {
		t.Fatalf("a build without a lock requested only %q", asked)
	}
	all, err := lock.Read(o.LockPath)
	if err != nil {
		t.Fatal(err)
	}
	pinned := all[0]
	digest := "sha256:" + fmt.Sprintf("%x", sha256.Sum256(archive))
	want := []lock.Chart{
		{Source: source, Wanted: "1.2.3+b1", Version: "1.2.3+b1", URL: source + ":1.2.3_b1", Digest: digest},
		{Source: source, Wanted: ">=1", Version: "1.2.3", URL: source + ":1.2.3", Digest: digest},
	}
	if len(pinned.Charts) != 2 || pinned.Charts[0] != want[0] || pinned.Charts[1] != want[1] {
		t.Errorf("pinned %+v, want %+v", pinned.Charts, want)
	}

	// Since then, both tags moved and a newer version appeared.
	old := chart["templates/web.yaml"]
	chart["templates/web.yaml"] = old + "# another chart\n"
	other := chartArchive(t)
	chart["templates/web.yaml"] = old
	for _, tag := range []string{"1.2.3_b1", "1.2.3", "2.0.0"} {
		push(tag, other)
	}
	var first []byte
	for range 2 {
		before := len(r.Log())
		o := o
		o.Lock, o.Resolved = pinned, nil
		o.CacheDir, o.Output = t.TempDir(), filepath.Join(t.TempDir(), "install")
		b := run(t, o)
		log := r.Log()[before:]
		if asked := resolving.FindAllString(log, -1); len(asked) > 0 {
			t.Errorf("a locked build requested %q", asked)
		}
		if !strings.Contains(log, `"GET /v2/charts/web/blobs/`+digest) {
			t.Errorf("a locked build did not request the pinned archive:\n%s", log)
		}
		content, err := os.ReadFile(b.Path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = content
		}
		if !bytes.Equal(first, content) {
			t.Error("two locked builds differ")
		}
	}

	// bundle update finds the changes.
	after, _, err := builder.Resolve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range lock.Differences(pinned, after) {
		lines = append(lines, d.String())
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"chart " + source + " 1.2.3+b1 digest: " + digest + " → sha256:", "chart " + source + " >=1 version: 1.2.3 → 2.0.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}

	// The registry has no such archive: the error names the chart and the pinned digest.
	lost := *pinned
	lost.Charts = append([]lock.Chart{}, pinned.Charts...)
	lost.Charts[0].Digest = "sha256:" + strings.Repeat("0", 64)
	o.Lock, o.Resolved = &lost, nil
	_, err = runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), source+":1.2.3_b1") || !strings.Contains(err.Error(), strings.Repeat("0", 64)) || fault.Hint(err) == "" {
		t.Errorf("%v; hint %q", err, fault.Hint(err))
	}
}
