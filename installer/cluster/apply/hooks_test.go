package apply

import (
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster"
)

// Hooks of a chart are kept apart from its objects, and run in Helm's order, except that what pods read precedes Jobs.
func TestHooksOfAChart(t *testing.T) {
	const text = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: object}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: b, annotations: {helm.sh/hook: "pre-install, PRE-UPGRADE", helm.sh/hook-weight: "1"}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: a, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "1"}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: z, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "1"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: first, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "-3", helm.sh/hook-delete-policy: "hook-succeeded,hook-failed"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: tested, annotations: {helm.sh/hook: "test, test-success"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: both, annotations: {helm.sh/hook: "test,post-install", helm.sh/hook-weight: x}}}
`
	m := testcluster.Must(Parse(Manifest{Name: "app", Chart: "app 1"}, []byte(text)))(t)
	hooks := func(event string) (names []string) {
		for _, h := range m.hooksFor(event) {
			names = append(names, h.object.GetName())
		}
		return names
	}
	for event, want := range map[string]string{"pre-install": "first z a b", "pre-upgrade": "b", "post-install": "both", "post-delete": "", "test": ""} {
		if got := strings.Join(hooks(event), " "); got != want {
			t.Errorf("%s: %q, want %q", event, got, want)
		}
	}
	if m.Objects() != 1 || len(m.hooks) != 5 {
		t.Errorf("%d objects, %d hooks", m.Objects(), len(m.hooks))
	}
	if got := m.eventsOf(install); !slices.Equal(got, []string{"pre-install", "post-install"}) {
		t.Errorf("events of an installation: %q", got)
	}
	if h := m.hooksFor("pre-install")[0]; !slices.Equal(h.policies, []string{"hook-succeeded", "hook-failed"}) {
		t.Errorf("policies: %q", h.policies)
	}
	if plain := testcluster.Must(Parse(Manifest{Name: "app"}, []byte(text)))(t); plain.Objects() != 7 {
		t.Errorf("a manifest that is no chart has %d objects", plain.Objects())
	}
}

func TestImagesOfAManifest(t *testing.T) {
	const text = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    spec:
      initContainers: [{name: i, image: init:1}]
      containers: [{name: c, image: "web:1", env: [{name: OPERAND, value: "registry.example.com/operand:1"}]}]
      volumes: [{name: v, image: {reference: "volume:1"}}]
---
{apiVersion: batch/v1, kind: Job, metadata: {name: h, annotations: {helm.sh/hook: pre-delete}}, spec: {template: {spec: {containers: [{name: c, image: "hook:1"}]}}}}
---
{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {podTemplate: {containers: [{name: c, image: "custom:1"}]}}}
`
	m := testcluster.Must(Parse(Manifest{Name: "app", Chart: "app 1", SiteImages: []string{"registry.example.com/operand:1", "registry.example.com/other:1"}}, []byte(text)))(t)
	if got, want := m.Images(), []string{"custom:1", "hook:1", "init:1", "registry.example.com/operand:1", "volume:1", "web:1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An undo leads to the newest version before the present one that ran and that differs from it.
func TestVersionBefore(t *testing.T) {
	r := func(number int, sha string, complete bool) Revision {
		return Revision{Manifest: "web", Number: number, SHA256: sha, Complete: complete}
	}
	for name, c := range map[string]struct {
		list []Revision
		want int
	}{
		"the one before":           {[]Revision{r(1, "a", true), r(2, "b", true), r(3, "c", true)}, 2},
		"the newest that ran":      {[]Revision{r(1, "a", true), r(2, "b", false), r(3, "c", false)}, 1},
		"an undo of an undo":       {[]Revision{r(1, "a", true), r(2, "b", true), r(3, "a", true)}, 2},
		"of one that did not run":  {[]Revision{r(1, "a", true), r(2, "b", false), r(3, "a", true)}, 2},
		"none ran":                 {[]Revision{r(1, "a", false), r(2, "b", false), r(3, "c", false)}, 2},
		"only the same":            {[]Revision{r(1, "c", true), r(3, "c", true)}, 0},
		"none":                     {[]Revision{r(3, "c", true)}, 0},
		"begun and never recorded": {[]Revision{r(1, "a", true), r(3, "c", true), r(4, "d", false)}, 1},
	} {
		present := c.list[slices.IndexFunc(c.list, func(r Revision) bool { return r.Number == 3 })]
		got := 0
		if to := versionBefore(c.list, "web", Entry{SHA256: present.SHA256, Revision: present.Number}); to != nil {
			got = to.Number
		}
		if got != c.want {
			t.Errorf("%s: version %d, want %d", name, got, c.want)
		}
	}
}
