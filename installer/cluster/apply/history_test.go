package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// keptVersion is the first Secret of a version.
func keptVersion(r Revision) *corev1.Secret {
	facts, _ := yaml.Marshal(r)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName(r.Manifest, r.Number, 0), Namespace: metav1.NamespaceSystem, Labels: map[string]string{manifestLabel: r.Manifest}},
		Type:       historyType, Data: map[string][]byte{factsKey: facts},
	}
}

func inventoryOf(entries map[string]Entry) *corev1.ConfigMap {
	data := map[string]string{}
	for name, e := range entries {
		text, _ := yaml.Marshal(e)
		data[name] = string(text)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: InventoryName, Namespace: metav1.NamespaceSystem}, Data: data}
}

// A version that a newer Airlift kept is not damaged: its facts may have more fields.
func TestVersionOfNewer(t *testing.T) {
	kept := keptVersion(Revision{Manifest: "web", Number: 1, SHA256: "a"})
	kept.Data[factsKey] = append(kept.Data[factsKey], "newer: field\n"...)
	client, _ := testclient.Fake(kept, inventoryOf(map[string]Entry{"web": {SHA256: "a", Revision: 1}}))
	if list := testcluster.Must(New(client, 0, nil).History(t.Context(), "web"))(t); len(list) != 1 || list[0].Damaged || list[0].SHA256 != "a" {
		t.Errorf("%+v", list)
	}
}

// A damaged version blocks only what needs it, and its error has the command that removes it.
func TestDamagedVersion(t *testing.T) {
	damaged := keptVersion(Revision{Manifest: "web.site", Number: 2})
	damaged.Data[factsKey] = []byte("{")
	client, _ := testclient.Fake(damaged,
		keptVersion(Revision{Manifest: "web.site", Number: 1, SHA256: "a", Images: []string{"web:1"}}), keptVersion(Revision{Manifest: "web.site", Number: 3, SHA256: "c", Images: []string{"web:3"}}),
		keptVersion(Revision{Manifest: "db", Number: 1, SHA256: "d", Images: []string{"db:1", "hook:1"}, New: true}),
		inventoryOf(map[string]Entry{"web.site": {SHA256: "c", Revision: 3}, "db": {SHA256: "d", Revision: 1}}))
	site := New(client, 0, nil)
	list := testcluster.Must(site.History(t.Context(), ""))(t)
	if len(list) != 4 || list[2].Manifest != "web.site" || list[2].Number != 2 || !list[2].Damaged {
		t.Fatalf("%+v", list)
	}
	const command = "kubectl delete secret -n kube-system airlift-manifest.web.site.2"
	if _, err := site.Undos(t.Context(), []string{"web.site"}); err == nil || !strings.Contains(err.Error(), `version 2 of manifest "web.site" in the history is damaged`) || !strings.HasSuffix(fault.Hint(err), command) {
		t.Errorf("an undo that needs it: %v (%s)", err, fault.Hint(err))
	}
	if undos, err := site.Undos(t.Context(), []string{"db"}); err != nil || undos[0].To != nil {
		t.Errorf("an undo of another manifest: %+v, %v", undos, err)
	}
	if m, err := site.present(t.Context(), "web.site", Entry{Revision: 4}); m != nil || err != nil {
		t.Errorf("a version that is not kept: %v, %v", m, err)
	}
	images, bad, err := NeededImages(t.Context(), client.API)
	if err != nil || len(bad) != 1 || bad[0].RemoveCommand() != command {
		t.Errorf("%+v, %v", bad, err)
	}
	for _, image := range []string{"web:1", "web:3", "db:1", "hook:1"} { // of a hook: no workload names it
		if images[image] == "" {
			t.Errorf("%s is not needed: %q", image, images)
		}
	}
}

// A damaged entry of the inventory is removed without the others.
func TestDamagedInventory(t *testing.T) {
	client, _ := testclient.Fake(runtime.Object(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: InventoryName, Namespace: metav1.NamespaceSystem}, Data: map[string]string{"web": "{"}}))
	if _, err := ReadInventory(t.Context(), client.API); !strings.Contains(fault.Hint(err), `-p '{"data":{"web":null}}'`) {
		t.Errorf("%v (%s)", err, fault.Hint(err))
	}
}

// An image of the file belongs to a manifest that mentions exactly this image, in any of its forms.
func TestMentionedImages(t *testing.T) {
	names := rapid.SampledFrom([]string{"registry.example.com/a/web", "registry.example.com:5000/web", "docker.io/library/web", "docker.io/team/web"})
	tags := rapid.SampledFrom([]string{":1", ":1.1", ":10", ":1-alpine", "@sha256:" + strings.Repeat("1", 64)})
	rapid.Check(t, func(t *rapid.T) {
		image := names.Draw(t, "name") + tags.Draw(t, "tag")
		mentioned := names.Draw(t, "mentioned name") + tags.Draw(t, "mentioned tag")
		written := mentioned
		if rapid.Bool().Draw(t, "short") {
			written = strings.TrimPrefix(strings.TrimPrefix(mentioned, "docker.io/library/"), "docker.io/")
		}
		form := rapid.SampledFrom([]string{"%s", "--image=%s", "run %s, then stop.", `{"image":"%s"}`, "docker://%s", "(%s)", "a\nb: %s\n"}).Draw(t, "form")
		text := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: %q}}", fmt.Sprintf(form, written))
		m, err := Parse(Manifest{Name: "m", SiteImages: []string{image}}, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(m.Images(), image); got != (image == mentioned) {
			t.Fatalf("%s in %s: %t", image, text, got)
		}
	})
}
