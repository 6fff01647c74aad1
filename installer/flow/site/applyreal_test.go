package site

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/bundle"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

// manifestsBundle has manifests, by their names.
func manifestsBundle(t *testing.T, file string, manifests map[string]string) *payload.Bundle {
	t.Helper()
	b := testbundle.NewImages(bundle.OnlyManifests)
	b.Manifest.KubernetesVersion = "v1.37.1"
	for _, name := range []string{"db", "web"} {
		if text, ok := manifests[name]; ok {
			m := bundle.SiteManifest{Name: name, Namespace: "site"}
			b.Manifest.Manifests = append(b.Manifest.Manifests, m)
			b.Manifest.Entries = append(b.Manifest.Entries, bundle.Entry{Name: m.Entry(), Size: int64(len(text)), SHA256: testbundle.Sum([]byte(text))})
			b.Content[m.Entry()] = []byte(text)
		}
	}
	return b.Write(t, file)
}

func someConfigMap(name, value string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {value: %q}}\n", name, value)
}

// TestRealApplyAndBack runs the commands as a user does: what is printed is what is removed, a refusal changes nothing.
func TestRealApplyAndBack(t *testing.T) {
	p := testcluster.StartVersion(t, "v1.37.1")
	api, root := p.API(t), t.TempDir()
	var output strings.Builder
	run := func(b *payload.Bundle, o ApplyOptions) error {
		t.Helper()
		output.Reset()
		o.Kubeconfig = p.Super
		a := NewApply(b, o, testhost.Open(t, root), &workflow.Console{Out: &output})
		defer a.Close()
		return a.Run(testcluster.Within(t))
	}
	ok := func(err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v (%s)\n%s", err, fault.Hint(err), &output)
		}
		for _, w := range want {
			if !strings.Contains(output.String(), w) {
				t.Errorf("%q is not in:\n%s", w, &output)
			}
		}
	}
	live := func(want ...string) {
		t.Helper()
		list := testcluster.Must(api.CoreV1().ConfigMaps("site").List(testcluster.Within(t), metav1.ListOptions{}))(t)
		var is []string
		for _, c := range list.Items {
			is = append(is, c.Name+"="+c.Data["value"])
		}
		if slices.Sort(is); !slices.Equal(is, want) {
			t.Fatalf("the cluster has %q, want %q\n%s", is, want, &output)
		}
	}
	no := func(string) error { return errors.New("no") }
	compare := func(b *payload.Bundle, o ApplyOptions) *Comparison {
		t.Helper()
		o.Kubeconfig = p.Super
		a := NewApply(b, o, testhost.Open(t, root), &workflow.Console{Out: &output})
		defer a.Close()
		return testcluster.Must(a.Compare(testcluster.Within(t)))(t)
	}

	first := manifestsBundle(t, "first", map[string]string{"web": someConfigMap("a", "1") + someConfigMap("old", "1")})
	second := manifestsBundle(t, "second", map[string]string{"web": someConfigMap("a", "2") + someConfigMap("new", "1"), "db": someConfigMap("db", "1")})
	ok(run(first, ApplyOptions{}), "web: 2 objects, 3 created or changed")
	live("a=1", "old=1")
	if c := compare(first, ApplyOptions{}); c.Work() {
		t.Errorf("the same file has something to do: %+v", c)
	}
	c := compare(second, ApplyOptions{})
	if text := strings.Join(PlanLines(c.Plan, "go"), "\n"); !c.Work() || text != "these objects go:\n  - web: ConfigMap site/old" || len(c.Differences) != 2 {
		t.Errorf("%q, %+v", text, c.Differences)
	}
	if err := run(second, ApplyOptions{Prune: true, Confirm: no}); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("a user who says no: %v", err)
	}
	live("a=1", "old=1")
	ok(run(second, ApplyOptions{}), "ConfigMap site/old is no longer in the manifest; it is not deleted", "to remove such objects: ", "apply --prune")
	live("a=2", "db=1", "new=1", "old=1")
	ok(run(second, ApplyOptions{Prune: true}), "  - web: ConfigMap site/old", "1 object removed", "images prune")
	live("a=2", "db=1", "new=1")
	ok(run(second, ApplyOptions{Prune: true, Confirm: no}), "there is nothing to remove")

	undo := ApplyOptions{Undo: true}
	if c := compare(first, undo); len(c.Undos) != 2 || !c.Work() {
		t.Errorf("%+v", c)
	}
	if err := run(first, ApplyOptions{Undo: true, Confirm: no}); err == nil {
		t.Error("an undo was not asked for")
	}
	live("a=2", "db=1", "new=1")
	ok(run(first, undo), "web: version 1 is applied again", "from the file first", "db: it is removed", "ConfigMap site/new", "db: removed from the inventory")
	live("a=1", "old=1")
	ok(run(first, undo), "web: version 2 is applied again")
	live("a=2", "new=1")

	// Another command during the question: the undo would bring back what is not the version before any more.
	during := ApplyOptions{Undo: true, Confirm: func(string) error {
		return run(manifestsBundle(t, "third", map[string]string{"web": someConfigMap("a", "3")}), ApplyOptions{})
	}}
	if err := run(first, during); err == nil || !strings.Contains(err.Error(), `another command changed manifest "web"`) {
		t.Errorf("an undo of a version that was replaced: %v", err)
	}
	live("a=3", "new=1")
	// What an undo keeps is replaced by a command that does not apply this file.
	testcluster.Must(api.CoreV1().ConfigMaps("site").Patch(testcluster.Within(t), "a", types.MergePatchType, []byte(`{"data":{"value":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}))(t)
	ok(run(first, undo), "is kept", "apply undo web@6 --force-conflicts")
	live("a=edited", "new=1")
	ok(run(first, ApplyOptions{Undo: true, Names: []string{"web@6"}, InitOptions: phases.InitOptions{ForceConflicts: true}}))
	live("a=2", "new=1")

	history := func(names ...string) int {
		t.Helper()
		a := NewApply(first, ApplyOptions{Names: names, InitOptions: phases.InitOptions{Kubeconfig: p.Super}}, testhost.Open(t, root), &workflow.Console{Out: &output})
		defer a.Close()
		return len(testcluster.Must(a.History(testcluster.Within(t)))(t))
	}
	if n, of := history(), history("web"); n != 6 || of != 6 {
		t.Errorf("%d versions, %d of web", n, of)
	}
	remove := ApplyOptions{Remove: true, Names: []string{"web"}}
	if c := compare(first, remove); len(c.Plan.Removed()) != 2 || len(c.Plan.Kept()) != 1 {
		t.Errorf("%+v", c.Plan)
	}
	live("a=2", "new=1")
	ok(run(first, remove), "2 objects removed", "Namespace site: a namespace is only removed if it is named; to remove it, too: --also 'Namespace site'", "web: removed from the inventory")
	live()
	if n := history(); n != 0 {
		t.Errorf("%d versions after the removal", n)
	}
	if err := run(first, remove); fault.ExitCode(err) != fault.Usage {
		t.Errorf("a second removal: %v", err)
	}

	// definition sets a kind with two versions, of which the first is stored.
	definition := func(group string, webhook bool) {
		t.Helper()
		conversion := `{strategy: None}`
		if webhook { // that does not answer
			conversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"}}}`
		}
		version := "{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"
		text := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.%[1]s, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}},
			spec: {group: %[1]s, scope: Namespaced, names: {kind: Thing, plural: things}, conversion: %[2]s, versions: [%[3]s, %[4]s]}}`, group, conversion, fmt.Sprintf(version, "v1", true), fmt.Sprintf(version, "v2", false))
		patch := api.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things."+group).Param("fieldManager", "a-test").Param("force", "true").Body([]byte(text))
		if err := patch.Do(testcluster.Within(t)).Error(); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(group string) error {
		return api.CoreV1().RESTClient().Get().AbsPath("/apis/" + group + "/v2/namespaces/site/things/one").Do(testcluster.Within(t)).Error()
	}
	const thing = "---\n{apiVersion: GROUP/v1, kind: Thing, metadata: {name: one}}\n"
	served := func(group string) *payload.Bundle {
		t.Helper()
		definition(group, false)
		testcluster.Eventually(t, func() bool {
			return apierrors.IsNotFound(reads(group)) && strings.Contains(reads(group).Error(), "one")
		})
		b := manifestsBundle(t, "things", map[string]string{"web": someConfigMap("a", "1") + strings.ReplaceAll(thing, "GROUP", group)})
		ok(run(b, ApplyOptions{}))
		testcluster.Eventually(t, func() bool { return reads(group) == nil })
		return b
	}

	// An object that cannot be read stays. The rest is removed, and the exit code reports what is left, until what serves the object is repaired.
	const broken = "broken.example.com"
	served(broken)
	definition(broken, true)
	testcluster.Eventually(t, func() bool { return reads(broken) != nil })
	err := run(first, remove)
	if text := "everything else is done, but these objects could not be read, and stay:\n  - web: Thing." + broken + " site/one: it cannot be read: "; fault.ExitCode(err) != fault.Failure || !strings.HasPrefix(err.Error(), text) || strings.Count(err.Error(), "\n  - ") != 1 || fault.Hint(err) == "" {
		t.Errorf("%v (exit code %d, hint %q)", err, fault.ExitCode(err), fault.Hint(err))
	}
	live()
	definition(broken, false)
	testcluster.Eventually(t, func() bool { return reads(broken) == nil })
	ok(run(first, remove))
	if err := reads(broken); !apierrors.IsNotFound(err) {
		t.Errorf("after the repair: %v", err)
	}

	// An undo warns of a version for another Kubernetes, and refuses one whose API is gone: nothing is applied of it.
	const gone = "internal.apiserver.k8s.io" // of Kubernetes itself, and not served
	b := served(gone)
	other := manifestsBundle(t, "other", map[string]string{"web": someConfigMap("a", "2")})
	other.Manifest.KubernetesVersion = "v1.36.1"
	ok(run(other, ApplyOptions{IgnoreVersion: true, Prune: true}))
	live("a=2")
	if err := api.CoreV1().RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things." + gone).Do(testcluster.Within(t)).Error(); err != nil {
		t.Fatal(err)
	}
	testcluster.Eventually(t, func() bool { return reads(gone) != nil && !strings.Contains(reads(gone).Error(), "one") })
	for _, o := range []ApplyOptions{undo, {Undo: true, Names: []string{"web@1"}}} {
		err := run(b, o)
		if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "the API server does not serve the versions of these objects:\n  - web: Thing one of "+gone+"/v1") || fault.Hint(err) == "" {
			t.Errorf("%v (exit code %d, hint %q)", err, fault.ExitCode(err), fault.Hint(err))
		}
		live("a=2")
	}
	ok(run(manifestsBundle(t, "fourth", map[string]string{"web": someConfigMap("a", "3")}), ApplyOptions{}))
	ok(run(first, undo), "warning: the API server has Kubernetes v1.37.1, and version 2 of manifest web was rendered for v1.36.1")
	live("a=2")

	// images prune keeps the images that an undo needs, except for the ones of a damaged version: it names that version, and what removes it.
	var warned strings.Builder
	n := &NodeImages{Machine: node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: &warned})}
	if err := n.AskCluster(testcluster.Within(t), p.Super); err != nil || warned.Len() > 0 {
		t.Errorf("%v\n%s", err, &warned)
	}
	secrets := api.CoreV1().Secrets("kube-system")
	kept := testcluster.Must(secrets.Get(testcluster.Within(t), "airlift-manifest.web.1", metav1.GetOptions{}))(t)
	kept.ResourceVersion, kept.UID, kept.Data["facts"] = "", "", []byte("{")
	if err := secrets.Delete(testcluster.Within(t), kept.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testcluster.Must(secrets.Create(testcluster.Within(t), kept, metav1.CreateOptions{}))(t)
	if err := n.AskCluster(testcluster.Within(t), p.Super); err != nil || !strings.Contains(warned.String(), "warning: version 1 of manifest web in the history is damaged, so its images are not kept for 'apply undo'; to remove it: kubectl delete secret -n kube-system airlift-manifest.web.1\n") {
		t.Errorf("%v\n%s", err, &warned)
	}
}
