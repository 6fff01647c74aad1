package testhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/installer/config"
	"airlift/installer/host"
)

// A LeaseAPI is an API server with one Lease. It is for tests of who asks when; package cluster tests the
// Lease with a real one.
type LeaseAPI struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	requests []string
}

func (a *LeaseAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	leases := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	if !strings.HasPrefix(r.URL.Path, leases) {
		switch path.Base(r.URL.Path) {
		case "version", "readyz":
			answer(map[string]string{"gitVersion": "v1.37.1"})
		case "nodes":
			answer(corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "host2"}}}})
		case "pods":
			answer(corev1.PodList{})
		default:
			http.NotFound(w, r)
		}
		return
	}
	a.requests = append(a.requests, r.Method)
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		var l coordinationv1.Lease
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &l)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.version++
		l.ResourceVersion = strconv.Itoa(a.version)
		a.lease = &l
		answer(a.lease)
	case a.lease == nil:
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	case r.Method == http.MethodDelete:
		a.lease = nil
		answer(metav1.Status{Status: metav1.StatusSuccess})
	default:
		answer(a.lease)
	}
}

// Give gives the turn to another control plane.
func (a *LeaseAPI) Give(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease.Spec.HolderIdentity = &holder
}

// Requests returns the methods of the requests for the Lease.
func (a *LeaseAPI) Requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

// Held reports whether the Lease exists.
func (a *LeaseAPI) Held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease != nil
}

// OfServer returns a control plane with an external etcd, whose admin.conf names an API server. With locked,
// the test has the lock of the host.
func OfServer(t *testing.T, server string, locked bool) *host.Host {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		config.KubernetesDir + "/admin.conf": fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n", server),
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		files[path.Join(config.ManifestsDir, name+".yaml")] = "metadata: {name: " + name + "}\nspec: {containers: [{name: " + name + ", image: a, command: [" + name + "]}]}\n"
	}
	for file, data := range files {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(root, file), []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if !locked {
		return Open(t, root)
	}
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return h
}
