package release_test

import (
	"slices"
	"strings"
	"testing"

	"airlift/images/release"
	"airlift/internal/fault"
)

// versionsIn returns the versions of a catalog's components, and its kubelet's URL.
func versionsIn(c *release.Catalog) (v release.Versions, kubelet string) {
	for _, i := range c.Images {
		_, tag, _ := strings.Cut(i.Reference, ":")
		switch i.Name {
		case release.Etcd:
			v.Etcd = tag
		case release.CoreDNS:
			v.CoreDNS = tag
		case release.Pause:
			v.Pause = tag
		}
	}
	for _, b := range c.Binaries {
		switch b.Name {
		case "crictl":
			v.Crictl = b.Version
		case "kubelet":
			kubelet = b.URL
		}
	}
	return v, kubelet
}

func TestVersionsNewerThanTheCatalog(t *testing.T) {
	v136 := release.Versions{Etcd: "3.6.8-0", CoreDNS: "v1.14.2", Pause: "3.10.2", Crictl: "v1.35.0"}
	given := release.Versions{Etcd: "3.7.2-0", CoreDNS: "v1.15.0", Pause: "3.11"}
	withCrictl := given
	withCrictl.Crictl = "v1.38.1"
	for name, c := range map[string]struct {
		version       string
		given, want   release.Versions
		nearest, says string
		assumed       []string
	}{
		"a known patch":                        {version: "v1.36.3", want: v136},
		"a known patch, with its own versions": {version: "v1.36.3", given: v136, want: v136},
		"a newer patch": {version: "v1.36.4", want: v136, nearest: "v1.36.3", says: "newest known patch of v1.36",
			assumed: []string{"etcd 3.6.8-0", "coredns v1.14.2", "pause 3.10.2", "crictl v1.35.0"}},
		"a newer patch with another etcd": {version: "v1.36.4", given: release.Versions{Etcd: "3.6.9-0"},
			want:    release.Versions{Etcd: "3.6.9-0", CoreDNS: v136.CoreDNS, Pause: v136.Pause, Crictl: v136.Crictl},
			nearest: "v1.36.3", says: "components without a given version are assumed to be as in v1.36.3",
			assumed: []string{"coredns v1.14.2", "pause 3.10.2", "crictl v1.35.0"}},
		"a newer patch with everything": {version: "v1.37.9", given: withCrictl, want: withCrictl, nearest: "v1.37.2", says: "v1.37.9 is newer than v1.37.2"},
		"a newer minor version": {version: "v1.38.0", given: given,
			want:    release.Versions{Etcd: given.Etcd, CoreDNS: given.CoreDNS, Pause: given.Pause, Crictl: "v1.36.0"},
			nearest: "v1.37.2", says: "the rules of v1.37 apply", assumed: []string{"crictl v1.36.0"}},
		"a much newer minor version": {version: "1.40.12", given: withCrictl, want: withCrictl, nearest: "v1.37.2", says: "the rules of v1.37 apply"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := release.For(c.version, "amd64", release.Flannel, c.given)
			if err != nil {
				t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
			}
			v, kubelet := versionsIn(got)
			if v != c.want || !strings.Contains(kubelet, "/v"+strings.TrimPrefix(c.version, "v")+"/") {
				t.Errorf("%+v, %s, want %+v", v, kubelet, c.want)
			}
			if got.Nearest != c.nearest || !slices.Equal(got.Assumed, c.assumed) {
				t.Errorf("nearest %q, assumed %q; want %q, %q", got.Nearest, got.Assumed, c.nearest, c.assumed)
			}
			says := strings.Join(got.Assumptions(), "\n")
			if (says == "") != (c.nearest == "") || !strings.Contains(says, c.says) || !strings.Contains(says, strings.Join(c.assumed, ", ")) {
				t.Errorf("assumptions: %q", says)
			}
		})
	}
}

func TestGivenVersionsThatCannotBe(t *testing.T) {
	good := release.Versions{Etcd: "3.7.0-0", CoreDNS: "v1.14.6", Pause: "3.10.2"}
	with := func(change func(v *release.Versions)) release.Versions {
		v := good
		change(&v)
		return v
	}
	for name, c := range map[string]struct {
		version   string
		given     release.Versions
		err, hint string
	}{
		"nothing":          {"v1.38.0", release.Versions{}, "needs --etcd-version, --coredns-version, --pause-version", "the versions of v1.37.2 are --etcd-version 3.7.0-0 --coredns-version v1.14.6 --pause-version 3.10.2"},
		"only one":         {"v1.38.0", release.Versions{Etcd: "3.7.0-0"}, "needs --coredns-version, --pause-version", "--coredns-version v1.14.6 --pause-version 3.10.2."},
		"etcd without -0":  {"v1.38.0", with(func(v *release.Versions) { v.Etcd = "3.7.0" }), `--etcd-version "3.7.0"`, "--etcd-version 3.7.0-0"},
		"etcd with v":      {"v1.38.0", with(func(v *release.Versions) { v.Etcd = "v3.7.0-0" }), `--etcd-version "v3.7.0-0"`, "--etcd-version 3.7.0-0"},
		"CoreDNS no v":     {"v1.38.0", with(func(v *release.Versions) { v.CoreDNS = "1.14.6" }), `--coredns-version "1.14.6"`, "--coredns-version v1.14.6"},
		"a line break":     {"v1.38.0", with(func(v *release.Versions) { v.Pause = "3.10\n" }), "--pause-version", "--pause-version 3.10.2"},
		"a reference":      {"v1.38.0", with(func(v *release.Versions) { v.Pause = "pause:3.10" }), "--pause-version", "--pause-version 3.10.2"},
		"an old etcd":      {"v1.38.0", with(func(v *release.Versions) { v.Etcd = "3.6.8-0" }), "too old", "bundle versions"},
		"another major":    {"v1.38.0", with(func(v *release.Versions) { v.Etcd = "4.0.0-0" }), "another major version", "bundle versions"},
		"an old crictl":    {"v1.37.3", with(func(v *release.Versions) { v.Crictl = "v1.35.0" }), "--crictl-version v1.35.0 is too old", "bundle versions"},
		"a contradiction":  {"v1.36.3", release.Versions{Etcd: "3.6.9-0"}, "kubernetes v1.36.3 uses etcd 3.6.8-0, but --etcd-version is 3.6.9-0", "remove --etcd-version"},
		"too old, given":   {"v1.28.15", good, "not supported", "v1.29, v1.30"},
		"too old, nothing": {"v1.28.15", release.Versions{}, "not supported", "v1.29, v1.30"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := release.For(c.version, "amd64", release.Flannel, c.given)
			if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), c.err) || !strings.Contains(fault.Hint(err), c.hint) {
				t.Errorf("err = %v\nhint = %s", err, fault.Hint(err))
			}
		})
	}
}

func TestChannelOfAnUnknownMinorVersion(t *testing.T) {
	given := release.Versions{Etcd: "3.7.0-0", CoreDNS: "v1.14.6", Pause: "3.10.2"}
	if _, url, err := release.Channel("v1.38", given); err != nil || url != "https://dl.k8s.io/release/stable-1.38.txt" {
		t.Errorf("%s, %v", url, err)
	}
	for version, v := range map[string]release.Versions{"v1.38": {}, "stable-1.38": {Etcd: "3.7.0-0"}, "v1.28": given, "v1.36": {Etcd: "new"}} {
		if _, _, err := release.Channel(version, v); fault.ExitCode(err) != fault.Usage {
			t.Errorf("Channel(%q, %v): %v", version, v, err)
		}
	}
}
