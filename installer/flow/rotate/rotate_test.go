package rotate

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// rotating returns a Rotation of a host that is a control plane or a worker.
func rotating(t *testing.T, stage string, controlPlane bool) *Rotation {
	t.Helper()
	root := t.TempDir()
	if controlPlane {
		manifest := filepath.Join(root, node.APIServerManifest)
		if err := os.MkdirAll(filepath.Dir(manifest), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(manifest, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Cluster: config.Cluster{CertificatesDir: "/etc/kubernetes/pki"}}
	r := newRotation(Options{Stage: stage}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
	r.run.config = c
	return r
}

func TestStagesOfARotation(t *testing.T) {
	for _, c := range []struct {
		stage        string
		controlPlane bool
		now, self    string // stages of the cluster and of this node
		says         string // "" if the node may enter
	}{
		{"distribute", true, "distribute", "", ""},
		{"distribute", false, "distribute", "", ""},
		{"distribute", false, "issue", "", ""}, // it joined later
		{"issue", true, "distribute", "distribute", ""},
		{"issue", true, "distribute", "", `this node has not reached the stage "distribute"`},
		{"issue", false, "distribute", "distribute", `the stage "issue" has not begun`},
		{"issue", false, "issue", "distribute", ""},
		{"finish", true, "issue", "issue", ""},
		{"finish", true, "issue", "distribute", `this node has not reached the stage "issue"`},
		{"finish", false, "issue", "issue", `the stage "finish" has not begun`},
		{"cancel", true, "distribute", "", ""},
		{"cancel", true, "issue", "distribute", "cannot be cancelled any more"},
		{"cancel", false, "distribute", "distribute", `the stage "cancel" has not begun`},
		{"cancel", false, "cancel", "distribute", ""},
		{"distribute", true, "cancel", "distribute", "is being cancelled"},
		{"issue", true, "cancel", "distribute", "is being cancelled"},
	} {
		r := rotating(t, c.stage, c.controlPlane)
		r.run.state = &rotation.Rotation{Stage: c.now}
		err := r.cluster.mayEnter(c.self)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == ""):
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct {
		stage        string
		controlPlane bool
		says         string
	}{
		{"issue", true, "no rotation of the CAs is in progress"},
		{"distribute", false, "this host is a worker"},
		{"cancel", true, "no rotation of the CAs is in progress"},
	} {
		if err := rotating(t, c.stage, c.controlPlane).begin(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestNextStep(t *testing.T) {
	nodes := func(stages ...string) (list []rotation.Node) {
		for i, s := range stages {
			list = append(list, rotation.Node{Name: string(rune('a' + i)), Stage: s})
		}
		return list
	}
	planes := []rotation.Node{{Name: "a", ControlPlane: true, Stage: "distribute"}, {Name: "b", ControlPlane: true}, {Name: "c"}}
	if got := nextStep("distribute", "KEY", planes); !strings.Contains(got, "rotate-ca distribute --certificate-key KEY\n") {
		t.Errorf("other control planes: %q", got)
	}
	planes[1].Stage = "distribute"
	if got := nextStep("distribute", "KEY", planes); strings.Contains(got, "KEY") {
		t.Errorf("a worker: %q", got)
	}
	for _, c := range []struct {
		stage string
		nodes []rotation.Node
		want  []string
	}{
		{"distribute", nodes("distribute", "", "issue"), []string{"Run on these nodes", "\n    b\n", "rotate-ca distribute"}},
		{"distribute", nodes("distribute", "distribute"), []string{"All nodes have reached it", "rotate-ca issue"}},
		{"issue", nodes("issue", "finish"), []string{"rotate-ca finish"}},
		{"finish", nodes("finish", "issue"), []string{"\n    b\n", "rotate-ca finish"}},
		{"finish", nodes("finish", "finish"), []string{"run on a control plane", "rotate-ca finish"}},
		{"cancel", nodes("cancel", "distribute", ""), []string{"\n    b\n", "rotate-ca cancel"}},
		{"cancel", nodes("cancel", ""), []string{"run on a control plane", "rotate-ca cancel"}},
	} {
		got := nextStep(c.stage, "KEY", c.nodes)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not contain %q", c.stage, got, want)
			}
		}
	}
}

// TestStatusOfARotation: each node has its role and its stage, "-" before the first one.
func TestStatusOfARotation(t *testing.T) {
	var out strings.Builder
	s := Status{Rotating: true, Stage: "distribute", NextCA: "sha256:ab", Nodes: []rotation.Node{{Name: "a", ControlPlane: true, Ready: true, Stage: "distribute"}, {Name: "b"}}}
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a      control plane   true    distribute\n", "b      worker          false   -\n", `at the stage "distribute". The new CA: sha256:ab`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not contain %q", out.String(), want)
		}
	}
}

// The flags of the controller manager's signer change, and everything else stays.
func TestSignerOfARotation(t *testing.T) {
	const manifest = "# a comment\n    - --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt\n    - '--cluster-signing-key-file=/etc/kubernetes/pki/ca.key'\n    - --root-ca-file=/etc/kubernetes/pki/ca.crt\n"
	sign := func(stage, manifest string) string {
		r, data := rotating(t, stage, true), []byte(manifest)
		data = r.components.withSigner(data, "cluster-signing-cert-file", "ca.crt")
		return string(r.components.withSigner(data, "cluster-signing-key-file", "ca.key"))
	}
	replaced := func(dir string) string {
		return strings.NewReplacer("cert-file=/etc/kubernetes/pki/", "cert-file=/etc/kubernetes/pki/"+dir, "key-file=/etc/kubernetes/pki/", "key-file=/etc/kubernetes/pki/"+dir).Replace(manifest)
	}
	former, next := sign(Distribute, manifest), sign(Issue, sign(Distribute, manifest))
	for got, want := range map[string]string{former: replaced("rotation/former/"), next: replaced("rotation/next/"), sign(Finish, next): manifest, sign(Cancel, former): manifest} {
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	const own = "    - --cluster-signing-cert-file=/etc/site/ca.crt\n"
	if got := sign(Distribute, own); got != own {
		t.Errorf("a signer of the user's: %s", got)
	}
}

// TestKeyOfARotation: the new CAs are encrypted with a key that nobody can derive from the old CAs. The first
// control plane creates it, and the others need it once.
func TestKeyOfARotation(t *testing.T) {
	first, other := rotating(t, Distribute, true), rotating(t, Distribute, true)
	for _, file := range []string{"ca.crt", "ca.key"} { // all control planes have the same CA
		for _, r := range []*Rotation{first, other} {
			if _, err := r.Host.WriteFile("/etc/kubernetes/pki/"+file, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	key, err := first.files.key()
	if err != nil || len(key) != 64 {
		t.Fatalf("%q, %v", key, err)
	}
	if again, err := first.files.key(); err != nil || again == key {
		t.Errorf("two rotations have the key %q, %v", again, err)
	}
	other.run.state = &rotation.Rotation{Stage: Distribute}
	if _, err := other.files.key(); err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--certificate-key") {
		t.Errorf("without the key: %v (hint %q)", err, fault.Hint(err))
	}
	other.run.options.CertificateKey = key
	if got, err := other.files.key(); err != nil || got != key {
		t.Errorf("%q, %v", got, err)
	}
	// An interrupted run has stored it.
	if _, err := other.Host.WriteFile(pki.RotationKeyPath(other.run.config), []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other.run.options.CertificateKey = ""
	if got, err := other.files.key(); err != nil || got != key {
		t.Errorf("again: %q, %v", got, err)
	}
	if err := other.files.removePairs(); err != nil {
		t.Fatal(err)
	}
	if got, err := other.files.storedKey(); err != nil || got != "" {
		t.Errorf("left after the rotation: %q, %v", got, err)
	}
}

// newCAs returns the CAs of a cluster.
func newCAs(t *testing.T) []pki.File {
	t.Helper()
	c := &config.Config{Cluster: config.Cluster{CertificatesDir: "/etc/kubernetes/pki"}}
	c.LocalAPIEndpoint.AdvertiseAddress, c.Networking.ServiceSubnet = "192.0.2.1", config.ParseCIDRs("10.96.0.0/12")
	made, err := pki.Ensure(c, fstest.MapFS{}, time.Now(), "ca", "etcd-ca", "front-proxy-ca")
	if err != nil {
		t.Fatal(err)
	}
	return made.Files
}

// TestCancelOfAPreparedRotation interrupts the first stage after each file, before the cluster knows of the
// rotation. cancel then removes what is left, so that an upgrade can begin.
func TestCancelOfAPreparedRotation(t *testing.T) {
	var deleted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = corev1.NodeList{}
		if r.Method == http.MethodDelete {
			deleted = append(deleted, path.Base(path.Dir(r.URL.Path)))
			answer = metav1.Status{Status: metav1.StatusSuccess}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	cas := newCAs(t)
	for after := 0; ; after++ {
		r := rotating(t, Cancel, true)
		if err := r.Write(cas...); err != nil {
			t.Fatal(err)
		}
		next, err := pki.NewCAs(r.run.config, r.Files(), time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if after > len(next.Files) {
			break
		}
		if err := r.Write(append([]pki.File{{Path: pki.RotationKeyPath(r.run.config), Data: []byte("key\n"), Mode: 0o600}}, next.Files[:after]...)...); err != nil {
			t.Fatal(err)
		}
		if node.RotationInProgress(r.Host, r.run.config) == nil {
			t.Fatal("an upgrade may begin")
		}
		if r.run.client, err = cluster.New([]byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]}`), ""); err != nil {
			t.Fatal(err)
		}
		deleted = nil
		if err := errors.Join(r.begin(t.Context()), r.record(t.Context()), node.RotationInProgress(r.Host, r.run.config)); err != nil || !slices.Contains(deleted, "secrets") {
			t.Errorf("after %d files: %v, deleted %q", after, err, deleted)
		}
	}
}

// TestCancelKeepsCAsThatAreTrusted: another control plane has ended the rotation, and this one still needs the
// new CAs.
func TestCancelKeepsCAsThatAreTrusted(t *testing.T) {
	r := rotating(t, Cancel, true)
	err := r.Write(newCAs(t)...)
	for _, change := range []func() (pki.Result, error){
		func() (pki.Result, error) { return pki.NewCAs(r.run.config, r.Files(), time.Now(), nil) },
		func() (pki.Result, error) { return pki.DistributeCAs(r.run.config, r.Files(), time.Now()) },
	} {
		var made pki.Result
		if err == nil {
			made, err = change()
		}
		if err == nil {
			err = r.Write(made.Files...)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.begin(t.Context()); err == nil || !strings.Contains(err.Error(), "no rotation of the CAs is in progress") || node.RotationInProgress(r.Host, r.run.config) == nil {
		t.Errorf("%v", err)
	}
}
