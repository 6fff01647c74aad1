package apply

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"airlift/installer/cluster"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
)

// A smallAPI is an API server with Namespaces, ConfigMaps, CustomResourceDefinitions and one custom kind.
type smallAPI struct {
	sync.Mutex
	objects map[string]map[string]any // by path
	applied []string                  // paths
}

func (s *smallAPI) client(t *testing.T) *cluster.Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	return &cluster.Client{API: testcluster.Must(kubernetes.NewForConfig(config))(t), Dynamic: testcluster.Must(dynamic.NewForConfig(config))(t)}
}

func (s *smallAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	answer := func(code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}
	missing := func(kind, name string) {
		answer(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
			"message": fmt.Sprintf("%s %q not found", kind, name), "details": map[string]any{"kind": kind, "name": name}})
	}
	resources := func(groupVersion string, list ...map[string]any) {
		answer(http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": list})
	}
	const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.x.example"
	defined := s.objects[crd] != nil
	switch r.URL.Path {
	case "/api":
		answer(http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case "/apis":
		groups := []any{map[string]any{"name": "apiextensions.k8s.io", "versions": []any{map[string]any{"groupVersion": "apiextensions.k8s.io/v1", "version": "v1"}}}}
		if defined {
			groups = append(groups, map[string]any{"name": "x.example", "versions": []any{map[string]any{"groupVersion": "x.example/v1", "version": "v1"}}})
		}
		answer(http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
	case "/api/v1":
		resources("v1", map[string]any{"name": "namespaces", "kind": "Namespace"}, map[string]any{"name": "configmaps", "kind": "ConfigMap", "namespaced": true})
	case "/apis/apiextensions.k8s.io/v1":
		resources("apiextensions.k8s.io/v1", map[string]any{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"})
	case "/apis/x.example/v1":
		resources("x.example/v1", map[string]any{"name": "things", "kind": "Thing", "namespaced": true})
	case "/api/v1/pods":
		answer(http.StatusOK, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": []any{}})
	case "/api/v1/nodes":
		answer(http.StatusOK, map[string]any{"kind": "NodeList", "apiVersion": "v1", "items": []any{}})
	default:
		_, rest, namespaced := strings.Cut(r.URL.Path, "/namespaces/")
		namespace, _, namespaced2 := strings.Cut(rest, "/")
		switch object := s.objects[r.URL.Path]; {
		case namespaced && namespaced2 && namespace != "default" && s.objects["/api/v1/namespaces/"+namespace] == nil:
			missing("namespaces", namespace)
		case r.Method == http.MethodGet && object == nil:
			missing("objects", r.URL.Path)
		case r.Method == http.MethodGet:
			answer(http.StatusOK, object)
		default:
			if json.NewDecoder(r.Body).Decode(&object) != nil {
				http.Error(w, "not JSON", http.StatusBadRequest)
				return
			}
			path := r.URL.Path
			if r.Method == http.MethodPost {
				path += "/" + object["metadata"].(map[string]any)["name"].(string)
			}
			object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
			s.objects[path] = object
			s.applied = append(s.applied, path[strings.LastIndex(path, "/")+1:])
			answer(http.StatusOK, object)
		}
	}
}

const (
	lateObjects = "{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: late}}\n---\n{apiVersion: x.example/v1, kind: Thing, metadata: {name: thing}}\n"
	lateBasis   = "{apiVersion: v1, kind: ConfigMap, metadata: {name: last}}\n---\n" +
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.x.example}, spec: {group: x.example, scope: Namespaced, names: {kind: Thing, plural: things}}}\n" +
		"---\n{apiVersion: v1, kind: Namespace, metadata: {name: late}}\n"
)

// What a later manifest creates does not hold up an earlier one.
func TestNamespacesAndDefinitionsOfAllManifestsComeFirst(t *testing.T) {
	s := &smallAPI{objects: map[string]map[string]any{}}
	manifests := []*Manifest{parsed(t, "one", "own", lateObjects), parsed(t, "two", "", lateBasis)}
	applied, err := New(s.client(t), time.Second, nil).Apply(t.Context(), manifests)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"own", "late", "things.x.example", "first", "thing", "last"}; !slices.Equal(s.applied, want) {
		t.Errorf("%q, want %q", s.applied, want)
	}
	if want := []string{"ConfigMap late/first", "Thing.x.example own/thing"}; !slices.Equal(applied[0].Objects, want) {
		t.Errorf("%q, want %q", applied[0].Objects, want)
	}
}

// What nothing creates holds up no other object, and the error names it.
func TestWhatIsMissingHoldsUpNothing(t *testing.T) {
	for name, c := range map[string]struct{ text, message, hint string }{
		"a kind":      {"{apiVersion: x.example/v1, kind: Thing, metadata: {name: thing}}\n", `applying Thing thing of manifest "one": waiting for the API server to accept Thing thing: gave up after 1s; last seen: Thing thing: no matches for kind "Thing"`, "CustomResourceDefinition of Thing"},
		"a namespace": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: late}}\n", `namespaces "late" not found`, "kubectl create namespace late"},
	} {
		s := &smallAPI{objects: map[string]map[string]any{}}
		var states []string
		site := New(s.client(t), time.Second, func(state string) { states = append(states, state) })
		_, err := site.Apply(t.Context(), []*Manifest{parsed(t, "one", "", c.text), parsed(t, "two", "", "{apiVersion: v1, kind: ConfigMap, metadata: {name: last}}\n")})
		if err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: %v (%s)", name, err, fault.Hint(err))
		}
		if !slices.Equal(s.applied, []string{"last"}) || len(states) == 0 {
			t.Errorf("%s: applied %q, states %q", name, s.applied, states)
		}
	}
}
