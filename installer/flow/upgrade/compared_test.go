package upgrade

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// The plan of a file without the image of an add-on has what can be computed, and the error of the check.
func TestPlanWithoutAnImage(t *testing.T) {
	u := New(new(payload.Bundle), Options{}, false, nil, &workflow.Console{})
	all := u.computable(new(upgradecheck.Target))
	some := u.computable(&upgradecheck.Target{MissingImages: []string{"flannel"}})
	_, addon := workflow.Find(all, "addon/flannel")
	if _, stays := workflow.Find(some, "addon/flannel"); !addon || stays || len(some) != len(all)-1 {
		t.Errorf("%q, %q", workflow.Names(all), workflow.Names(some))
	}
}

// A plan for a user who may read the configuration of the cluster, but not its permissions, has the rest.
func TestPlanWithoutObjectsOfOthers(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, reason := http.StatusNotFound, metav1.StatusReasonNotFound
		if strings.Contains(r.URL.Path, "/roles/") {
			code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)})
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var out bytes.Buffer
	u := New(&payload.Bundle{Manifest: &bundle.Manifest{}}, Options{}, false, testhost.Open(t, t.TempDir()), &workflow.Console{Out: &out})
	var err error
	if u.API.Client, err = cluster.New(pki.BootstrapKubeconfig(server.URL, ca, "abcdef.0123456789abcdef"), ""); err != nil {
		t.Fatal(err)
	}
	is := metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}
	list, err := u.Compared(t.Context(), []runtime.Object{&rbacv1.Role{ObjectMeta: is}, &corev1.ConfigMap{ObjectMeta: is}})
	if err != nil || len(list) != 1 || list[0].Name != "ConfigMap kube-system/kubeadm-config" {
		t.Errorf("%v, %v", list, err)
	}
	if !strings.Contains(out.String(), "comparing Role kube-system/kubeadm-config") {
		t.Errorf("it does not say what is not compared: %q", out.String())
	}
}
