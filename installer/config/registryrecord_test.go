package config_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"net/url"

	"pgregory.net/rapid"

	"airlift/installer/config"
	_ "airlift/scripts/fixtures/seed"
)

// TestRecordTellsSetsApart: two sets of registries have the same record if and only if they are equal, and neither a record nor what a
// plan prints of it has a secret. A plan has no key with which a password could be guessed.
func TestRecordTellsSetsApart(t *testing.T) {
	draw := func(t *rapid.T) (list []config.Registry) {
		// As RegistryFlags.Read has it, what belongs to a host is the same wherever it is.
		access := map[string]config.RegistryAccess{}
		of := func(host string) config.RegistryAccess {
			if _, known := access[host]; !known {
				access[host] = config.RegistryAccess{
					CA:            rapid.SampledFrom([][]byte{nil, []byte("one"), []byte("two")}).Draw(t, "ca of "+host),
					Authorization: rapid.SampledFrom([]string{"", "Basic hunter2", "Basic hunter3"}).Draw(t, "credentials of "+host),
				}
			}
			return access[host]
		}
		for _, name := range []string{config.DefaultRegistry, "docker.io", "quay.io"} {
			r := config.Registry{Host: name, RegistryAccess: of(name)}
			for _, host := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"m1.example", "quay.io"}), 0, 2, rapid.ID).Draw(t, "mirrors of "+name) {
				r.Mirrors = append(r.Mirrors, config.RegistryMirror{URL: &url.URL{Scheme: "https", Host: host}, RegistryAccess: of(host)})
			}
			if r.Mirrors != nil || r.CA != nil || r.Authorization != "" {
				list = append(list, r)
			}
		}
		return list
	}
	rapid.Check(t, func(t *rapid.T) {
		one, two := draw(t), draw(t)
		if rapid.Bool().Draw(t, "the same") {
			two = one
		}
		empty := (*config.RegistryRecord)(nil)
		r := config.RecordRegistries(one, nil)
		if (len(empty.Changes(one)) == 0) != (len(one) == 0) {
			t.Fatalf("a host without a record, and %v: %q", one, empty.Changes(one))
		}
		if changes := r.Changes(two); (len(changes) == 0) != reflect.DeepEqual(one, two) {
			t.Fatalf("%v\n%v\n%q", one, two, changes)
		}
		if again := config.RecordRegistries(one, &r); !reflect.DeepEqual(again, r) {
			t.Fatalf("a repeated run records %+v after %+v", again, r)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		all := string(text) + r.String() + fmt.Sprint(&r, r.Changes(two))
		if strings.Contains(all, "hunter") {
			t.Fatalf("a secret: %s", all)
		}
		if plan := r.String() + fmt.Sprint(r.Changes(two)); r.Key != "" && strings.Contains(plan, r.Key) {
			t.Fatalf("the key: %s", plan)
		}
	})
}
