package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestClientVersionIsKubeadms: a script finds in 'version -o json' what it finds in kubeadm's.
func TestClientVersionIsKubeadms(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		path := bundleFile(t, version)
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
		} {
			var want, got struct{ ClientVersion map[string]string }
			must(t, decode([]byte(kubeadmOutput(t, version, "version", "-o", format)), &want))
			out, code := runBundle(t, path, "version", "-o", format)
			if err := decode([]byte(out), &got); err != nil || code != 0 {
				t.Fatalf("%d %v %s", code, err, out)
			}
			for _, field := range []string{"major", "minor", "gitVersion", "compiler", "platform"} {
				if want.ClientVersion[field] == "" || got.ClientVersion[field] != want.ClientVersion[field] {
					t.Errorf("%s: %q, kubeadm's %q", field, got.ClientVersion[field], want.ClientVersion[field])
				}
			}
			names := slices.Sorted(maps.Keys(got.ClientVersion))
			if !slices.Equal(names, slices.Sorted(maps.Keys(want.ClientVersion))) {
				t.Errorf("fields %q, kubeadm's %q", got.ClientVersion, want.ClientVersion)
			}
		}
	}
}
