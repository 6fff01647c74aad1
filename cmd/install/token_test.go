package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/bundle"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/rig"
)

// tokenServer is an API server that has only these bootstrap tokens. It returns a kubeconfig
// for it.
func tokenServer(t *testing.T, tokens ...map[string]string) (kubeconfig string) {
	t.Helper()
	var items []map[string]any
	for _, token := range tokens {
		data := map[string]string{}
		for key, value := range token {
			data[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": "bootstrap-token-" + token["token-id"], "namespace": "kube-system"},
			"type":     "bootstrap.kubernetes.io/token", "data": data,
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system/secrets" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "SecretList", "apiVersion": "v1", "metadata": map[string]any{}, "items": items})
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "admin.conf")
	must(t, os.WriteFile(path, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": "`+server.URL+`"}}], "users": [{"name": "u", "user": {}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`), 0o600))
	return path
}

func token(id string, more ...string) map[string]string {
	t := map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
	for i := 0; i < len(more); i += 2 {
		t[more[i]] = more[i+1]
	}
	return t
}

// TestTokenListIsKubeadms: for every format, the output is the same as kubeadm's, apart from
// the version of the document in kubeadm v1.29.
func TestTokenListIsKubeadms(t *testing.T) {
	kubeconfig := tokenServer(t,
		token("aaaaaa", "expiration", "2031-05-06T07:08:09Z", "description", `for <racks> & "more"`,
			"usage-bootstrap-signing", "true", "auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token,system:bootstrappers:b"),
		token("bbbbbb", "expiration", "2032-01-01T00:00:00+02:00"),
		token("cccccc", "description", "for ever"))
	file := filepath.Join(t.TempDir(), "template")
	must(t, os.WriteFile(file, []byte(`{.token} {.usages[0]}`), 0o600))
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		formats := []string{
			"json", "yaml", "JSON", "jsonpath={.token}{\"\\n\"}", "jsonpath={.kind} {.apiVersion} {.missing}", "jsonpath={.usages[*]}", "jsonpath-as-json={.groups}",
			"jsonpath-file=" + file,
		}
		if version == "v1.37.1" {
			formats = append(formats, "kyaml")
		}
		for _, format := range formats {
			args := []string{"token", "list", "--kubeconfig", kubeconfig, "-o", format}
			want := strings.ReplaceAll(kubeadmOutput(t, version, args...), "/v1alpha2", "/v1alpha3")
			got, errs, code := install(t, args...)
			if code != 0 || got != want {
				t.Errorf("%s -o %s: %d %s\n%s", version, format, code, errs, cmp.Diff(want, got))
			}
		}
		for _, format := range []string{
			"xml", "jsonpath", "jsonpath=", "jsonpath={.token", "go-template={{.token", "jsonpath-file=/no/such/file", "jsonpath={.usages[9]}",
		} {
			args := []string{"token", "list", "--kubeconfig", kubeconfig, "-o", format}
			if exec.Command(rig.Component(t, version, "kubeadm"), args...).Run() == nil {
				t.Errorf("kubeadm %s accepts -o %s", version, format)
			}
			if _, errs, code := install(t, args...); code != 2 || !strings.Contains(errs, "error: ") {
				t.Errorf("-o %s: %d %s", format, code, errs)
			}
		}
		for _, format := range []string{"jsonpath={.no}"} {
			args := []string{"token", "list", "--kubeconfig", kubeconfig, "--allow-missing-template-keys=false", "-o", format}
			if exec.Command(rig.Component(t, version, "kubeadm"), args...).Run() == nil {
				t.Errorf("kubeadm %s accepts a missing key in -o %s", version, format)
			}
			if _, errs, code := install(t, args...); code != 2 || !strings.Contains(errs, "no") {
				t.Errorf("a missing key in -o %s: %d %s", format, code, errs)
			}
		}
	}
	// kubeadm fails here at the second token.
	if got, _, code := install(t, "token", "list", "--kubeconfig", kubeconfig, "-o", "jsonpath={range .usages[*]}{@},{end}"); code != 0 || got != "authentication,signing,authentication,authentication," {
		t.Errorf("a range: %d %s", code, got)
	}
	if got, _, code := install(t, "token", "list", "--kubeconfig", kubeconfig, "--experimental-output", "jsonpath={.token}"); code != 0 || !strings.HasPrefix(got, "aaaaaa.") {
		t.Errorf("--experimental-output: %d %s", code, got)
	}
	if got, _, code := install(t, "token", "list", "--kubeconfig", kubeconfig); code != 0 || strings.Count(got, "\n") != 4 || !regexp.MustCompile(`(?m)^cccccc\.0123456789abcdef +<forever> +<never> `).MatchString(got) {
		t.Errorf("%d %s", code, got)
	}
}

// TestGoTemplatesAreRefused: the hint has a JSONPath that prints the same, if the template only prints fields.
func TestGoTemplatesAreRefused(t *testing.T) {
	kubeconfig := tokenServer(t, token("aaaaaa", "description", "racks"))
	for format, hint := range map[string]string{
		"go-template={{.token}}":                    "-o jsonpath='{.token}'",
		"template={{ .token }} of {{.description}}": `-o jsonpath='{ .token } of {.description}'`,
		"go-template={{.token}}\n":                  `-o jsonpath='{.token}{"\n"}'`,
		"go-template={{range .usages}}{{.}}{{end}}": `-o jsonpath='{.kind}{"\n"}'`,
		"go-template={{.token}}'":                   `-o jsonpath='{.kind}{"\n"}'`,
		"go-template-file=/no/such/file":            `-o jsonpath='{.kind}{"\n"}'`,
		"go-template":                               `-o jsonpath='{.kind}{"\n"}'`,
	} {
		_, errs, code := install(t, "token", "list", "--kubeconfig", kubeconfig, "-o", format)
		if code != 2 || !strings.Contains(errs, "Go templates are not supported") || !strings.Contains(errs, hint) {
			t.Errorf("-o %s: %d %s", format, code, errs)
		}
	}
	if got, errs, code := install(t, "token", "list", "--kubeconfig", kubeconfig, "-o", "jsonpath={ .token } of {.description}{\"\\n\"}"); code != 0 || got != "aaaaaa.0123456789abcdef of racks\n" {
		t.Errorf("%d %q %s", code, got, errs)
	}
}

// TestTokenFindsKubeconfig: without --kubeconfig, token uses the file that kubeadm uses.
func TestTokenFindsKubeconfig(t *testing.T) {
	kubeadms := []string{rig.Component(t, "v1.29.15", "kubeadm"), rig.Component(t, "v1.37.1", "kubeadm")}
	home := t.TempDir()
	t.Setenv("HOME", home)
	named, other, atHome := tokenServer(t, token("named0")), tokenServer(t, token("other0")), tokenServer(t, token("home00"))
	for _, tt := range []struct{ env, flag, want string }{
		{"", "", "home00"},
		{named, "", "named0"},
		{named + ":" + other, "", "named0"},
		{"/no/such/file:" + other, "", "other0"},
		{":" + other, "", "other0"},
		{named, other, "other0"},
		{"/no/such/file", "", ""}, // not the file at home
	} {
		must(t, os.MkdirAll(filepath.Join(home, ".kube"), 0o755))
		data, err := os.ReadFile(atHome)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(home, ".kube", "config"), data, 0o600))
		t.Setenv("KUBECONFIG", tt.env)
		args := []string{"token", "list", "-o", "jsonpath={.token}"}
		if tt.flag != "" {
			args = append(args, "--kubeconfig", tt.flag)
		}
		want := ""
		if tt.want != "" {
			want = tt.want + ".0123456789abcdef"
		}
		for _, kubeadm := range kubeadms {
			if out, err := exec.Command(kubeadm, args...).Output(); string(out) != want || (err == nil) != (want != "") {
				t.Errorf("%+v: %s printed %q, %v", tt, kubeadm, out, err)
			}
		}
		if out, errs, code := install(t, args...); out != want || (code == 0) != (want != "") {
			t.Errorf("%+v: %q, %d %s", tt, out, code, errs)
		}
	}
}

// TestJoinCommandOfOtherPodNetworks: in a cluster without the pod network of this file, the join
// command has --cni none.
func TestJoinCommandOfOtherPodNetworks(t *testing.T) {
	flannel := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/kube-system/secrets":
			_, _ = w.Write([]byte(`{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "bootstrap-token"}}`))
		case r.URL.Path == "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds" && flannel:
			_, _ = w.Write([]byte(`{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "kube-flannel-ds"}}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`))
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "admin.conf")
	must(t, os.WriteFile(kubeconfig, pki.BootstrapKubeconfig(server.URL, ca, "abcdef.0123456789abcdef"), 0o600))
	for _, tt := range []struct {
		bundles string
		flannel bool
		want    bool
	}{{"flannel", true, false}, {"flannel", false, true}, {"none", false, false}} {
		flannel = tt.flannel
		path := bundleWith(t, bundle.Manifest{KubernetesVersion: "v1.29.15", CNI: tt.bundles})
		out, code := runBundle(t, path, "token", "create", "--print-join-command", "--kubeconfig", kubeconfig)
		if code != 0 || !strings.HasPrefix(out, "./install join 127.0.0.1:") || strings.HasSuffix(out, " --cni none\n") != tt.want {
			t.Errorf("%+v: %d %s", tt, code, out)
		}
	}
}
