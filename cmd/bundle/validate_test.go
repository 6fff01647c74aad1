package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with mistakes. A comment has the error of its line.
const wrongBundle = `apiVersion: airlift/v1
kind: Bundle
kubernetesVersion: v1.99.0 #! 
architectures: [amd64, riscv64] #! architecture "riscv64" is not supported
cni: calico #! cni "calico" is not supported
compresion: best #! compresion is not known
output: [site] #! output is a list and must be a string
images: ["Nginx:1.27"] #! 
addons: [dashboard] #! 
manifests:
- name: Web #! "Web" is not a name for a manifest
  path: web.yaml
- name: broken #! manifest "broken": 
  path: broken.yaml
- name: template #! manifest "template": 
  chart: {source: chart}
- name: remote
  chart:
    source: https://charts.example.com #! the chart of manifest remote has no version
    name: ingress
- nam: typo #! manifests[4].nam is not known
  path: web.yaml
- name: gone
  path: gone.yaml #! 
files:
- path: etc/motd #! path "etc/motd" is not absolute
  source: motd
- path: /etc/kubernetes/motd #! path "/etc/kubernetes/motd" is not for the site's files
  source: motd
  mode: 493 #! mode "493" is the decimal number of 0755
systemdUnits:
- source: tick.conf #! unit "tick.conf" is not of a supported type
mirrors: [dl.k8s.io] #! 
checksums: ["kubelet=sha256:12"] #! 
`

func wrongShell(t *testing.T) shell {
	s := newShell(t)
	s.writeAll(map[string]string{
		"bundle.yaml": wrongBundle, "web.yaml": pod, "broken.yaml": "apiVersion: v1\nkind: [\n", "motd": "hello\n", "tick.conf": "x\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: template\nversion: 1.0.0\n", "chart/templates/a.yaml": "a: {{ .Values.none.deep }}\n",
	})
	return s
}

// One run reports all mistakes in the order of their lines, also the mistakes in manifests and charts.
func TestValidateReportsAllMistakes(t *testing.T) {
	s := wrongShell(t)
	out, errs, code := s.run("build", "--file", "bundle.yaml", "--validate")
	t.Log(errs)
	var got, want []string
	for line := range strings.Lines(errs) {
		if strings.HasPrefix(line, "  bundle.yaml:") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for i, line := range strings.Split(wrongBundle, "\n") {
		if _, text, ok := strings.Cut(line, " #! "); ok {
			want = append(want, fmt.Sprintf("bundle.yaml:%d: %s", i+1, text))
		}
	}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], strings.TrimSpace(want[i])) {
			t.Fatalf("error %d is not %q in\n%s", i+1, want[i], errs)
		}
	}
	if len(got) != len(want) || len(want) < 14 || code != 2 || out != "" {
		t.Errorf("exit code %d, %d errors, want %d\n%s%s", code, len(got), len(want), out, errs)
	}
}

// Without mistakes, one line has what was not checked. Nothing is requested or written.
func TestValidate(t *testing.T) {
	s := newShell(t)
	head := "apiVersion: airlift/v1\nkind: Bundle\nkubernetesVersion: v1.37\narchitectures: [amd64, arm64]\nmirrors: [dl.k8s.io=http://127.0.0.1:1, registry.k8s.io=http://127.0.0.1:1, docker.io=http://127.0.0.1:1]\nmanifests:\n- {name: web, path: web.yaml}\n"
	s.writeAll(map[string]string{"bundle.yaml": head, "web.yaml": pod})
	out, errs, code := s.run("build", "--file", "bundle.yaml", "--validate")
	if code != 0 || !strings.HasPrefix(out, "bundle.yaml is valid\nnot checked, because it needs the network: whether sites have the components of Kubernetes v1.37.") || !strings.HasSuffix(out, " images\n") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for _, name := range []string{"install", "install-amd64", "bundle.lock"} {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	s.writeAll(map[string]string{"bundle.yaml": head + "- {name: ingress, chart: {source: https://charts.example.com, name: ingress, version: 1.0.0}}\n"})
	out, errs, code = s.run("build", "--file", "bundle.yaml", "--validate")
	if code != 0 || !strings.HasSuffix(out, `; the chart of manifest "ingress"`+"\n") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	s.writeAll(map[string]string{"bundle.yaml": head, "web.yaml": strings.Replace(pod, `image: "nginx:1.27"`, `image: "nginx:1.27", imagePullPolicy: Always`, 1)})
	if _, errs, code = s.run("build", "--file", "bundle.yaml", "--validate"); code != 2 || !strings.Contains(errs, "the manifests need a registry at the site:") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
