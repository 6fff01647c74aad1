package spec_test

import (
	"os"
	"regexp"
	"testing"

	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Whatever is in the file: no panic, and every error names a line.
func FuzzRead(f *testing.F) {
	const head = "apiVersion: airlift/v1\nkind: Cluster\n"
	for _, text := range []string{"", whole, spec.Example(), head, head + "hosts:\n- &a {name: a, role: worker}\n- *a\n", head + "ssh: &s {jump: [{}]}\nhosts: [{ssh: {<<: *s}}]\n",
		head + "hosts: [[]]\ngroups: [1]\n", head + "name: a\n---\n- a\n", head + "---\n{}\n---\nkind: x\n", "{\"apiVersion\": \"airlift/v1\", \"kind\": \"Cluster\", \"hosts\": [{\"labels\": {\"a\": 1}}]}",
		"a: &a [*a]\n", "? [a]\n: b\n", "- a\n", "---\n---\n"} {
		f.Add([]byte(text))
	}
	place := regexp.MustCompile(`\.yaml:[1-9][0-9]*: `)
	path := directory(f, "")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := spec.Read(path)
		if err == nil {
			for _, h := range c.Hosts {
				if h.Name == "" || h.Role != spec.ControlPlane && h.Role != spec.Worker || h.SSH.Address == "" || h.Group == "" {
					t.Errorf("the host is not complete: %+v", h)
				}
			}
			return
		}
		if fault.ExitCode(err) != fault.Usage || !place.MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
	})
}
