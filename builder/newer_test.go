package builder_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// The manifest and the provenance record what was assumed about a version that is newer than
// the known ones.
func TestNewerVersionsAreRecorded(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version, "v1.36.50")
	r := run(t, options(t, u))
	p, text := provenanceOf(t, r)
	if r.Manifest.NearestKnown != "" || p.NearestKnown != "" || strings.Contains(string(text), "assumed") {
		t.Errorf("of a known version: manifest %q, provenance %s", r.Manifest.NearestKnown, text)
	}

	o := options(t, u)
	o.Version = "v1.36"
	r = run(t, o)
	p, _ = provenanceOf(t, r)
	assumed := []string{"etcd 3.6.8-0", "coredns v1.14.2", "pause 3.10.2", "crictl v1.35.0"}
	if r.Manifest.KubernetesVersion != "v1.36.50" || r.Manifest.NearestKnown != "v1.36.3" || p.NearestKnown != "v1.36.3" || !slices.Equal(p.Assumed, assumed) {
		t.Errorf("manifest: %s, nearest %s; provenance: %s, %q", r.Manifest.KubernetesVersion, r.Manifest.NearestKnown, p.NearestKnown, p.Assumed)
	}

	o = options(t, u)
	given := release.Versions{Etcd: "3.7.0-0", CoreDNS: "v1.14.6", Pause: "3.10.2", Crictl: "v1.38.0"}
	u.Release("v1.38.0", given)
	o.Version, o.Versions = "v1.38.0", given
	r = run(t, o)
	p, _ = provenanceOf(t, r)
	if r.Manifest.NearestKnown != release.NewestOf("stable") || len(p.Assumed) != 0 {
		t.Errorf("nearest %s, assumed %q", r.Manifest.NearestKnown, p.Assumed)
	}
}

// If an assumed version does not exist, the hint shows how to give another version.
func TestAssumedVersionThatDoesNotExist(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.Version = "v1.36.4"
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "registry.k8s.io/etcd:3.6.8-0") || !strings.Contains(fault.Hint(err), "assumed as in v1.36.3: etcd 3.6.8-0") || !strings.Contains(fault.Hint(err), "--etcd-version") {
		t.Errorf("%v\nhint: %s", err, fault.Hint(err))
	}
}

// A given version that contradicts a known release is found before the network is used, or, with a
// channel, when the release is known.
func TestContradictingVersions(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	for _, v := range []string{version, "v1.29"} {
		o := options(t, u)
		o.Version, o.Versions.Etcd = v, "3.5.17-0"
		u.Forget()
		_, err := runOne(context.Background(), o)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "remove --etcd-version") {
			t.Errorf("%s: %v", v, err)
		}
		if v == version && len(u.Requests()) > 0 {
			t.Errorf("requests: %v", u.Requests())
		}
	}
}
