package reconfiguration

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/oracle"
)

func encryption(t interface {
	Helper()
	Fatal(...any)
}, text string) *Encryption {
	t.Helper()
	if text == "" {
		return nil
	}
	e, err := ParseEncryption([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRounds: the order of the documentation has only safe steps, in both directions, and each shorter way is refused.
func TestRounds(t *testing.T) {
	none, second, first, only := "", oracle.Keys("identity", "key1"), oracle.Keys("key1", "identity"), oracle.Keys("key1")
	next, both := oracle.Keys("key1", "key2", "identity"), oracle.Keys("key2", "key1")
	for _, step := range [][2]string{{none, second}, {second, none}, {second, first}, {first, second}, {first, next}, {only, oracle.Keys("key1", "key2")}, {oracle.Keys("key1", "key2"), both}} {
		got := CheckStep(encryption(t, step[0]), encryption(t, step[1]))
		got = slices.DeleteFunc(got, func(u Unsafe) bool { return u.MayBeUnused && step[1] == none }) // nothing was written with the key
		if len(got) > 0 {
			t.Errorf("%s\nto\n%s: %v", step[0], step[1], got)
		}
	}
	for _, c := range []struct {
		from, to string
		want     string
		unused   bool // it is refused only while data is left
	}{
		{none, first, "writes with aescbc key1", false},
		{none, only, "writes with aescbc key1", false},
		{first, none, "still write with it", false},
		{first, only, "identity is removed, and data", true},
		{only, oracle.Keys("key2", "key1"), "writes with aescbc key2", false},
		{both, oracle.Keys("key2"), "aescbc key1 is removed, and data", true},
		{only, strings.Replace(only, "MDEy", "YWJj", 1), "writes with aescbc key1", false}, // the same name, another key
	} {
		got := CheckStep(encryption(t, c.from), encryption(t, c.to))
		found := slices.ContainsFunc(got, func(u Unsafe) bool {
			return strings.Contains(u.String(), c.want) && u.MayBeUnused == c.unused && u.Resource == "secrets"
		})
		if !found || slices.ContainsFunc(got, func(u Unsafe) bool { return !u.MayBeUnused }) == c.unused {
			t.Errorf("%s\nto\n%s: %v", c.from, c.to, got)
		}
	}
}

// TestSafeSteps: whatever the configurations are, after a step that is called safe, each API server reads what the others write
// and what was written before; and if one is called unsafe, there is such data.
func TestSafeSteps(t *testing.T) {
	providers := []Provider{identity, {"aescbc", "a", "1"}, {"aescbc", "a", "2"}, {"aesgcm", "a", "1"}, {"secretbox", "b", "3"}, {"kms", "p", "v2"}}
	resources := []string{"secrets", "configmaps", "*.", "*.apps", "*.*", "deployments.apps", "pandas.example"}
	draw := rapid.Custom(func(t *rapid.T) *Encryption {
		if rapid.IntRange(0, 4).Draw(t, "none") == 0 {
			return nil
		}
		e := &Encryption{}
		for range rapid.IntRange(1, 2).Draw(t, "groups") {
			e.groups = append(e.groups, providerGroup{
				resources: rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 1, 2, rapid.ID[string]).Draw(t, "resources"),
				providers: rapid.SliceOfNDistinct(rapid.SampledFrom(providers), 1, 3, rapid.ID[Provider]).Draw(t, "providers"),
			})
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		former, next := draw.Draw(t, "former"), draw.Draw(t, "next")
		unsafe := CheckStep(former, next)
		for _, resource := range []string{"secrets", "configmaps", "events", "deployments.apps", "daemonsets.apps", "pandas.example", "koalas.example"} {
			was, is := former.of(resource), next.of(resource)
			// What can be in etcd: what any of the former providers wrote, and what the next API server writes.
			lost := !slices.Contains(was, is[0])
			for _, p := range was {
				lost = lost || !slices.Contains(is, p)
			}
			reported := slices.ContainsFunc(unsafe, func(u Unsafe) bool {
				return u.Resource == resource || strings.HasPrefix(u.Resource, AllOthers)
			})
			if lost && !reported {
				t.Fatalf("%s: %v to %v is called safe: %v", resource, was, is, unsafe)
			}
		}
		if back := CheckStep(next, former); len(unsafe) == 0 && slices.ContainsFunc(back, func(u Unsafe) bool { return !u.MayBeUnused }) {
			t.Fatalf("it cannot be undone: %v", back)
		}
	})
}

func TestParseEncryption(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
	for text, want := range map[string]string{
		"{":  "not YAML",
		head: "no resources",
		head + "resources: [{resources: [secrets], providers: [{identity: {}, kms: {}}]}]":                                 "one of identity",
		head + "resources: [{resources: [secrets], providers: [{aescbc: {}}]}]":                                            "no keys",
		head + "resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: a, secret: top-secret, x: 1}]}}]}]": "unknown",
		head + "resources: [{resources: [secrets], providers: [{rot13: {}}]}]":                                             `unknown provider "rot13"`,
		head + "resources: [{resources: [], providers: [{identity: {}}]}]":                                                 "no resources",
		"kind: Policy\n": "not apiserver.config.k8s.io/v1",
	} {
		_, err := ParseEncryption([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "top-secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	e := encryption(t, head+"resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: p, endpoint: 'unix:///a', timeout: 3s}}, {secretbox: {keys: [{name: k, secret: s}]}}]}]")
	var prefixes []string
	for _, p := range e.of("secrets") {
		prefixes = append(prefixes, p.Prefix())
	}
	if want := []string{"k8s:enc:kms:v2:p:", "k8s:enc:secretbox:v1:k:"}; !slices.Equal(prefixes, want) {
		t.Error(prefixes)
	}
}
