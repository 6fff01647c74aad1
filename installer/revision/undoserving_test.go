package revision

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/installer/serving"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestUndoOfTheApproval: undo stops the approval of serving certificates that a change started, and starts one that the change stopped.
func TestUndoOfTheApproval(t *testing.T) {
	files := []string{serving.SettingsPath, serving.UnitPath}
	for _, started := range []bool{true, false} {
		h := testhost.Open(t, t.TempDir())
		units := testhost.NewUnits(h, time.Now())
		write := func() {
			for _, file := range files {
				if _, err := h.WriteFile(file, []byte("x\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !started {
			write()
		}
		record := &Record{Kind: Reconfigure, Change: "0123456789abcdef"}
		for _, file := range files {
			if err := record.Kept(h).Keep(file); err != nil {
				t.Fatal(err)
			}
		}
		if started {
			write()
		} else {
			for _, file := range files {
				if err := h.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: record, former: record.Kept(h)}
			var err error
			if u.paths, err = u.former.Paths(); err != nil {
				t.Fatal(err)
			}
			if err := u.restoreNode(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if u.Exists(file) == started {
					t.Errorf("the change started it %t: %s exists %t", started, file, u.Exists(file))
				}
			}
		}
		if slices.Contains(units.Done, "disable "+serving.Unit) != started || slices.Contains(units.Done, "restart "+serving.Unit) == started {
			t.Errorf("the change started it %t: %q", started, units.Done)
		}
	}
}

// TestUndoKeepsSignedCertificates: while API servers verify kubelets, a node does not undo alone that its kubelet has a signed certificate.
func TestUndoKeepsSignedCertificates(t *testing.T) {
	cluster := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, cluster); err != nil {
		t.Fatal(err)
	}
	deferred := *cluster
	profile.DeferVerification(&deferred.Cluster)
	const requests, has = "kind: KubeletConfiguration\nserverTLSBootstrap: true\n", "kind: KubeletConfiguration\n"
	for name, c := range map[string]struct {
		cluster     *config.Config
		former, now string
		refused     bool
		later       int // the number of a later change of the cluster
	}{
		"it would lose it":          {cluster, has, requests, true, 0},
		"nobody verifies":           {&deferred, has, requests, false, 1},
		"one may still verify":      {&deferred, has, requests, true, 3},
		"a plain cluster":           {testhost.Config(nil), has, requests, false, 3},
		"it keeps it":               {cluster, requests, requests, false, 0},
		"it has none":               {cluster, has, has, false, 0},
		"the change concerns other": {cluster, "", requests, false, 0},
	} {
		objects, err := render.UploadClusterConfig(c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		kubelet, err := render.UploadKubeletConfig(c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, kubelet...)
		if c.later > 0 {
			data, err := config.Reconfiguration{Number: c.later, As: 1}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: config.ReconfigurationConfigMap}, Data: map[string]string{config.ReconfigurationKey: string(data)}})
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for _, o := range objects {
				if m, ok := o.(*corev1.ConfigMap); ok && path.Base(r.URL.Path) == m.Name {
					_ = json.NewEncoder(w).Encode(m)
					return
				}
			}
			if r.URL.Path == "/version" {
				_, _ = io.WriteString(w, `{"gitVersion":"v1.37.1"}`)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
		}))
		t.Cleanup(server.Close)
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: "` + server.URL + `"}}], users: [{name: u, user: {}}]}`
		if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := testhost.Open(t, t.TempDir())
		record := &Record{Kind: Reconfigure, Change: "0123456789abcdef", Finished: true, Number: 1}
		if c.former != "" {
			if _, err := h.WriteFile(config.KubeletConfigFile, []byte(c.former), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := record.Kept(h).Keep(config.KubeletConfigFile); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.WriteFile(config.KubeletConfigFile, []byte(c.now), 0o600); err != nil {
			t.Fatal(err)
		}
		u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: record, former: record.Kept(h), Kubeconfig: kubeconfig}
		err = u.preflight(t.Context())
		if (err != nil) != c.refused || c.refused && (fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
