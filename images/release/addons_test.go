package release_test

import (
	"slices"
	"strings"
	"testing"

	"airlift/images/release"
	"airlift/internal/fault"
)

// metrics-server's README lists the Kubernetes versions that each of its minor versions supports:
// 0.7 from 1.27, 0.8 from 1.31, 0.9 from 1.34.
func TestAddOnsFitTheRelease(t *testing.T) {
	for version, want := range map[string]string{
		"v1.29.15": "v0.7.2", "v1.30.4": "v0.7.2", "v1.31.0": "v0.8.0", "v1.33.13": "v0.8.0", "v1.34.0": "v0.9.0", "v1.37.1": "v0.9.0", "v1.99.0": "v0.9.0",
	} {
		list, err := release.AddOns(version)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range list {
			names = append(names, a.Name)
			if a.Name == release.MetricsServer && a.Version != want {
				t.Errorf("%s: metrics-server %s, want %s", version, a.Version, want)
			}
			if normal, err := release.Normalize(a.Image); err != nil || normal != a.Image || a.Name != release.LoadBalancer && !strings.HasSuffix(a.Image, ":"+a.Version) || a.About == "" {
				t.Errorf("%s: %+v (%v)", version, a, err)
			}
		}
		all := slices.DeleteFunc(release.AddOnNames(), func(name string) bool {
			return name == release.Ingress && (version == "v1.29.15" || version == "v1.30.4")
		})
		if !slices.Equal(names, all) {
			t.Errorf("%s: %v, want %v", version, names, all)
		}
	}
	if _, err := release.AddOns("v1"); err == nil {
		t.Error("v1 is not a release")
	}
}

func TestCheckAddOns(t *testing.T) {
	if err := release.CheckAddOns(release.AddOnNames(), release.Flannel); err != nil {
		t.Error(err)
	}
	if err := release.CheckAddOns([]string{release.MetricsServer}, release.NoCNI); err != nil {
		t.Error(err)
	}
	for name, cni := range map[string]string{"metrics": release.Flannel, release.NetworkPolicy: release.NoCNI} {
		err := release.CheckAddOns([]string{name}, cni)
		if fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with %s: %v (%s)", name, cni, err, fault.Hint(err))
		}
	}
}
