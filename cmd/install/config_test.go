package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"airlift/scripts/fixtures/rig"
)

func kubeadmOutput(t *testing.T, version string, args ...string) string {
	t.Helper()
	kubeadm := rig.Component(t, version, "kubeadm")
	out, err := exec.Command(kubeadm, args...).Output()
	if err != nil {
		t.Fatalf("kubeadm %v: %v", args, err)
	}
	return string(out)
}

func configOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := install(t, append([]string{"config"}, args...)...)
	if code != 0 {
		t.Fatalf("install config %v: %d %s", args, code, errs)
	}
	return out
}

// yamlDocs decodes documents by kind and removes empty and zero values.
func yamlDocs(t *testing.T, text string) map[string]map[string]any {
	docs := map[string]map[string]any{}
	for _, part := range strings.Split(text, "---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatalf("%v in %s", err, part)
		}
		dropZeros(doc)
		docs[doc["kind"].(string)] = doc
	}
	return docs
}

func dropZeros(value any) (zero bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if dropZeros(inner) {
				delete(v, key)
			}
		}
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == "" || v == "0s" || v == "0"
	case float64:
		return v == 0
	case bool:
		return !v
	}
	return value == nil
}

// printDifferences are the differences between Airlift's defaults and
// kubeadm's, by kind and path, each with its reason.
var printDifferences = map[string]string{
	"ClusterConfiguration.kubernetesVersion":       "the whole version, where kubeadm prints its minor version's first",
	"ClusterConfiguration.networking.podSubnet":    "the bundle's pod network has a default range",
	"ClusterConfiguration.encryptionAlgorithm":     "new keys are ECDSA-P256: made in no time, and smaller",
	"InitConfiguration.nodeRegistration.criSocket": "/run, which /var/run is a link to",
	"JoinConfiguration.nodeRegistration.criSocket": "the same",
	"ResetConfiguration.criSocket":                 "the same",
	"JoinConfiguration.nodeRegistration.name":      "an example, where kubeadm prints this host's",
	"KubeProxyConfiguration.clusterCIDR":           "the pod network's range, as above",
	"KubeProxyConfiguration.mode":                  "said, and not left to kube-proxy",
	"ResetConfiguration.timeouts":                  "v1.29's v1beta4 was not finished",
}

func TestPrintedDefaultsAreKubeadms(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, what := range []string{"init-defaults", "join-defaults", "reset-defaults", "upgrade-defaults"} {
			if what == "upgrade-defaults" && version == "v1.29.15" {
				continue // this kubeadm has none
			}
			t.Run(version+"/"+what, func(t *testing.T) {
				args := []string{"print", what}
				if what == "init-defaults" {
					args = append(args, "--component-configs", "KubeletConfiguration,KubeProxyConfiguration")
				}
				want := yamlDocs(t, kubeadmOutput(t, version, append([]string{"config"}, args...)...))
				got := yamlDocs(t, configOutput(t, append(args, "--kubernetes-version", version)...))
				for path := range printDifferences {
					steps := strings.Split(path, ".")
					for _, docs := range []map[string]map[string]any{want, got} {
						doc := docs[steps[0]]
						for _, step := range steps[1 : len(steps)-1] {
							doc, _ = doc[step].(map[string]any)
						}
						if path != "ResetConfiguration.timeouts" || version == "v1.29.15" {
							delete(doc, steps[len(steps)-1])
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-kubeadm +airlift\n%s", diff)
				}
			})
		}
	}
	// The documents of kubelet and kube-proxy follow the documents of every command.
	for _, what := range []string{"init-defaults", "join-defaults", "reset-defaults", "upgrade-defaults"} {
		docs := yamlDocs(t, configOutput(t, "print", what, "--component-configs", "KubeProxyConfiguration"))
		if docs["KubeProxyConfiguration"] == nil || docs["KubeletConfiguration"] != nil {
			t.Errorf("%s: %v", what, docs)
		}
	}
	// The output explains the important differences.
	if out := configOutput(t, "print", "init-defaults"); !strings.Contains(out, "# - networking.podSubnet") || !strings.Contains(out, "# - New keys are ECDSA-P256") {
		t.Error(out)
	}
	// Without a payload, a note names the assumed version.
	if _, errs, _ := install(t, "config", "print", "init-defaults"); !strings.Contains(errs, "assuming v1.37.0") {
		t.Error(errs)
	}
}

const configFile = `apiVersion: kubeadm.k8s.io/v1beta3
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: {v: "3"}}
localAPIEndpoint: {advertiseAddress: 192.0.2.10}
---
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
kubernetesVersion: v1.37.1
imageRepository: registry.example.com/k8s
apiServer: {timeoutForControlPlane: 90s}
etcd: {external: {endpoints: ["https://10.0.0.1:2379"], caFile: /c, certFile: /d, keyFile: /e}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 50 # fifty
`

func writeConfig(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMigrate(t *testing.T) {
	path := writeConfig(t, configFile)
	result := filepath.Join(t.TempDir(), "new.yaml")
	if out := configOutput(t, "migrate", "--old-config", path, "--new-config", result); out != "" {
		t.Errorf("printed %q", out)
	}
	info, err := os.Stat(result)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"apiVersion: kubeadm.k8s.io/v1beta4", "controlPlaneComponentHealthCheck: 1m30s", "name: v\n", "maxPods: 50 # fifty",
		"encryptionAlgorithm: ECDSA-P256", "imageRepository: registry.example.com/k8s", "httpEndpoints:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "v1beta3") {
		t.Error(text)
	}
	// kubeadm and Airlift accept the migrated file.
	if out := kubeadmOutput(t, "v1.37.1", "config", "validate", "--config", result); !strings.Contains(out, "ok") {
		t.Error(out)
	}
	if out := configOutput(t, "validate", "--config", result); out != "ok\n" {
		t.Error(out)
	}
	if again := configOutput(t, "migrate", "--old-config", result); again != text {
		t.Errorf("a second time:\n%s", cmp.Diff(text, again))
	}
}

// TestExperimentalAPI: with --allow-experimental-api, kubeadm v1.29 writes v1beta4.
func TestExperimentalAPI(t *testing.T) {
	path := writeConfig(t, "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nkubernetesVersion: v1.29.15\n")
	for flag, want := range map[string]string{"--allow-experimental-api=false": "kubeadm.k8s.io/v1beta3", "--allow-experimental-api": "kubeadm.k8s.io/v1beta4"} {
		args := []string{"migrate", "--old-config", path, flag}
		theirs := kubeadmOutput(t, "v1.29.15", append([]string{"config"}, args...)...)
		for who, text := range map[string]string{"kubeadm": theirs, "install": configOutput(t, args...)} {
			if strings.Count(text, "apiVersion: "+want+"\n") != 2 {
				t.Errorf("%s %s: not %s\n%s", who, flag, want, text)
			}
		}
	}
	for _, flag := range []string{"--allow-experimental-api", "--allow-deprecated-api", "--kubeconfig=/no/such/file"} {
		if out := configOutput(t, "validate", "--config", path, flag); out != "ok\n" {
			t.Errorf("%s: %s", flag, out)
		}
	}
}

func TestValidateByCommand(t *testing.T) {
	if out := configOutput(t, "validate", "--config", writeConfig(t, configFile)); out != "ok\n" {
		t.Error(out)
	}
	path := writeConfig(t, strings.Replace(configFile, "maxPods", "maxPod", 1))
	out, errs, code := install(t, "config", "validate", "--config", path)
	if code != 2 || out != "" || !strings.Contains(errs, path+":15: KubeletConfiguration.maxPod is not known\nhint: did you mean maxPods?") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	path = writeConfig(t, strings.Replace(configFile, "maxPods: ", "maxPods: -", 1))
	if _, errs, code = install(t, "config", "validate", "--config", path); code != 2 || !strings.Contains(errs, path+":15: KubeletConfiguration.maxPods is -") {
		t.Errorf("%d %q", code, errs)
	}
	// Values are checked too, and warnings are printed separately.
	path = writeConfig(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\ncertificateValidityPeriod: 99999h\nnetworking: {podSubnet: x}\n")
	_, errs, code = install(t, "config", "validate", "--config", path)
	if code != 2 || !strings.Contains(errs, path+":5: ") || !strings.Contains(errs, "warning: "+path+":4: ") {
		t.Errorf("%d %q", code, errs)
	}
	for _, args := range [][]string{{"validate"}, {"migrate"}, {"validate", "--config", "/no/such/file"}, {"print", "init-defaults", "--component-configs", "X"}, {"images", "list", "-o", "xml"}} {
		if _, errs, code := install(t, append([]string{"config"}, args...)...); code != 2 || !strings.Contains(errs, "error: ") {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
	cmd := exec.Command(os.Args[0], "config", "validate", "--config", "-")
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Stdin = strings.NewReader("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nx: 1\n")
	if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), "standard input:3: ") {
		t.Errorf("%v %s", err, said)
	}
}

func TestImagesListIsKubeadmsAndThePodNetwork(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		path := writeConfig(t, strings.Replace(configFile, "v1.37.1", version, 1))
		if version == "v1.37.1" { // this kubeadm cannot read v1beta3
			path = writeConfig(t, configOutput(t, "migrate", "--old-config", path))
		}
		for _, args := range [][]string{{"images", "list", "--kubernetes-version", version}, {"images", "list", "--config", path}} {
			want := map[string]bool{}
			for _, line := range strings.Fields(kubeadmOutput(t, version, append([]string{"config"}, args...)...)) {
				want[line] = true
			}
			for _, line := range strings.Fields(configOutput(t, args...)) {
				if !want[line] && !strings.Contains(line, "flannel") {
					t.Errorf("%s %v: kubeadm does not list %s", version, args, line)
				}
				delete(want, line)
			}
			if len(want) > 0 {
				t.Errorf("%s %v: not listed: %v", version, args, want)
			}
		}
	}
	out := configOutput(t, "images", "list", "-o", "json")
	if !strings.Contains(out, `"kind": "Images"`) || !strings.Contains(out, `"output.kubeadm.k8s.io/v1alpha3"`) {
		t.Error(out)
	}
}
