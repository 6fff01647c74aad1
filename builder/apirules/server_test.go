package apirules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"airlift/builder/apirules"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// onlyTheBuild are mistakes that the server accepts, and that do not work.
var onlyTheBuild = map[string]string{
	"a number that is too large": "the server stores the lower 32 bits",
	"a size of a claim":          "since a later version the server checks the claims of a StatefulSet; this one refuses each claim later",
}

// What the build refuses, a real API server refuses too, and the reverse: each object is applied by
// server-side apply in a dry run.
func TestRealServerAgrees(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.API.Discovery()))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // without it, the server refuses each Pod
	if _, err := client.API.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cases := mistakes
	for _, text := range []string{pod, deployment, service, job, cronJob, ingress, policy, statefulSet, claim, role, binding, budget, scaler, volume, configMap, secret, class, definition, apiService} {
		cases = append(cases, mistake{"no mistake", text, ""})
	}
	for _, c := range cases {
		o := decoded(t, "app.yaml", c.text, "")[0]
		refused := len(errorsOf(apirules.World{Version: testcluster.Version, Objects: []apirules.Object{o}}.Check())) > 0
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err == nil {
			resource := client.Dynamic.Resource(mapping.Resource)
			object := &unstructured.Unstructured{Object: o.Content}
			options := metav1.ApplyOptions{FieldManager: "airlift", DryRun: []string{metav1.DryRunAll}}
			if mapping.Scope.Name() == "namespace" {
				namespace := object.GetNamespace()
				if namespace == "" {
					namespace = "default"
				}
				_, err = resource.Namespace(namespace).Apply(ctx, o.Name, object, options)
			} else {
				_, err = resource.Apply(ctx, o.Name, object, options)
			}
		}
		if onlyTheBuild[c.name] != "" {
			if !refused || err != nil {
				t.Errorf("%s: it is no exception any more: %v", c.name, err)
			}
			continue
		}
		if (err != nil) != refused {
			t.Errorf("%s: the build refuses it: %v; the API server: %v", c.name, refused, err)
		}
	}
}
