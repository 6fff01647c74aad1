package convert_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/installer/multihost/convert"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
)

const plant = `apiVersion: k0sctl.k0sproject.io/v1beta1
kind: Cluster
metadata:
  name: plant-7
  user: admin
spec:
  hosts:
  - role: controller
    hostname: cp-1
    ssh: {address: 10.0.0.11, user: admin, port: 2222, bastion: {address: gate.example.org, user: root}}
    privateAddress: 10.1.0.11
    installFlags: ["--debug", "--labels=zone=a,disk=ssd"]
    hooks:
      apply:
        before: [date]
  - role: controller+worker
    hostname: cp-2
    noTaints: true
    openSSH: {address: 10.0.0.12, options: {ForwardAgent: false, StrictHostKeyChecking: false}}
  - role: controller
    ssh: {address: cp-3.example.org}
  - role: worker
    ssh: {address: 10.0.0.21}
    installFlags: ["--taints dedicated=db:NoSchedule"]
    files: [{name: motd, data: secret-of-motd, dst: /etc/motd}]
  - role: worker
    winrm: {address: 10.0.0.30, password: hunter2}
  k0s:
    version: v1.35.1+k0s.0
    config:
      apiVersion: k0s.k0sproject.io/v1beta1
      kind: ClusterConfig
      metadata: {name: k0s}
      spec:
        api:
          externalAddress: k8s.example.org
          port: 7443
          sans: [k8s.example.org, 10.0.0.9]
          extraArgs: {max-requests-inflight: 800}
        network:
          podCIDR: 10.200.0.0/16
          serviceCIDR: 10.201.0.0/16
          provider: calico
          kubeProxy: {mode: ipvs, disabled: false}
        workerProfiles: [{name: default, values: {maxPods: 200}}]
        telemetry: {enabled: false}
  options:
    drain: {enabled: true, timeout: 10m}
    concurrency: {workerDisruptionPercent: 20, limit: 5}
`

func TestK0sctl(t *testing.T) {
	text, left, err := convert.K0sctl("k0sctl.yaml", []byte(plant))
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, text)
	key := func(h spec.Host) string {
		return fmt.Sprint(h.Name, " ", h.Role, " ", h.SSH.User, "@", h.SSH.Address, ":", h.SSH.Port, " ", h.NodeIP, h.Labels, h.Taints, h.Taints == nil, h.SSH.OpenSSH, h.SSH.Options, len(h.SSH.Jump))
	}
	for i, want := range []string{
		"cp-1 control-plane admin@10.0.0.11:2222 [10.1.0.11] map[disk:ssd zone:a] [] true false [] 1",
		"cp-2 control-plane root@10.0.0.12:22 [] map[] [] false true [-o ForwardAgent=no] 0",
		"cp-3 control-plane root@cp-3.example.org:22 [] map[] [] true false [] 0",
		"worker-1 worker root@10.0.0.21:22 [] map[] [dedicated=db:NoSchedule] false false [] 0",
	} {
		if got := key(c.Hosts[i]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if len(c.Hosts) != 4 || c.Name != "plant-7" || c.Endpoint.Address != "k8s.example.org:7443" || c.Roll.DrainTimeout.String() != "10m0s" {
		t.Errorf("%+v", c)
	}
	for _, want := range []string{"bindPort: 7443", "podSubnet: 10.200.0.0/16", "mode: ipvs", "maxPods: 200", "name: max-requests-inflight", "- 10.0.0.9", "maxUnavailable: 20%"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var fields []string
	for _, l := range left {
		fields = append(fields, fmt.Sprint(l.Line, " ", l.Field))
		if !strings.Contains(string(text), fmt.Sprintf("#   line %d: %s: %s", l.Line, l.Field, l.Hint)) {
			t.Errorf("no comment about %s", l)
		}
	}
	want := []string{"5 metadata.user", "12 spec.hosts[0].installFlags[0] --debug", "13 spec.hosts[0].hooks", "19 spec.hosts[1].openSSH.options.StrictHostKeyChecking", "20 spec.hosts[2].hostname",
		"22 spec.hosts[3].hostname", "25 spec.hosts[3].files", "26 spec.hosts[4]", "29 spec.k0s.version", "43 spec.k0s.config.spec.network.provider", "46 spec.k0s.config.spec.telemetry", "49 spec.options.concurrency.limit"}
	if !slices.Equal(fields, want) {
		t.Errorf("left:\n%s\nwant:\n%s", strings.Join(fields, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "secret-of-motd") {
		t.Error("a value that is left is printed")
	}
}

func read(t interface {
	Fatalf(string, ...any)
	TempDir() string
}, text []byte) *spec.Cluster {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	c, err := spec.Read(path)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// fields are names that k0sctl and k0s have, and some that they do not.
var fields = []string{"metadata", "name", "user", "spec", "hosts", "role", "ssh", "openSSH", "address", "port", "keyPath", "bastion", "options", "installFlags", "noTaints", "hostname", "hooks", "files", "environment",
	"k0s", "version", "config", "api", "sans", "extraArgs", "externalAddress", "network", "podCIDR", "kubeProxy", "mode", "dualStack", "enabled", "storage", "etcd", "type", "externalCluster", "endpoints", "workerProfiles", "values",
	"drain", "timeout", "concurrency", "workerDisruptionPercent", "controlPlaneLoadBalancing", "keepalived", "vrrpInstances", "virtualIPs", "nodeLocalLoadBalancing", "reset", "winrm", "privateAddress", "other"}

// Whatever is in the file: each value is in the cluster.yaml, or the list has it or what it is in.
func TestNothingIsDroppedInSilence(t *testing.T) {
	converted := 0
	rapid.Check(t, func(t *rapid.T) {
		n := 0
		values := map[string]string{} // by the text of the value, its path
		var draw func(path string, depth int) any
		draw = func(path string, depth int) any {
			switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case depth == 0 || kind == 0:
				n++
				text := fmt.Sprintf("v%dx", n)
				values[text] = path
				return text
			case kind == 1:
				var list []any
				for i := range rapid.IntRange(1, 2).Draw(t, "items") {
					list = append(list, draw(fmt.Sprintf("%s[%d]", path, i), depth-1))
				}
				return list
			}
			return mapping(t, rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, 5, rapid.ID).Draw(t, "fields"), path, depth, draw)
		}
		spec := mapping(t, []string{"hosts", "k0s", "options"}, "spec", 0, func(path string, _ int) any {
			if path != "spec.hosts" {
				return draw(path, 5)
			}
			return []any{mapping(t, rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, 8, rapid.ID).Draw(t, "of host"), "spec.hosts[0]", 4, draw)}
		})
		if rapid.Bool().Draw(t, "known shape") {
			spec["k0s"] = map[string]any{"config": map[string]any{"spec": mapping(t, rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, 8, rapid.ID).Draw(t, "of config"), "spec.k0s.config.spec", 4, draw)}}
		}
		data, err := yaml.Marshal(map[string]any{"apiVersion": "k0sctl.k0sproject.io/v1beta1", "kind": "Cluster", "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		text, left, err := convert.K0sctl("k0sctl.yaml", data)
		if err != nil {
			t.Fatal(err)
		}
		body := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(text), "")
		for value, path := range values {
			inData := regexp.MustCompile(`\b` + value + `\b`)
			listed := slices.ContainsFunc(left, func(l convert.Left) bool {
				field, _, _ := strings.Cut(l.Field, " ")
				rest, below := strings.CutPrefix(path, field)
				return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
			})
			switch {
			case !inData.Match(data): // replaced by the known shape
			case inData.MatchString(body):
				converted++
			case !listed:
				t.Fatalf("%s at %s is dropped\n%s\n%s", value, path, data, text)
			}
		}
	})
	if converted == 0 {
		t.Error("nothing was converted")
	}
}

func mapping(_ *rapid.T, names []string, path string, depth int, draw func(path string, depth int) any) map[string]any {
	to := map[string]any{}
	for _, name := range names {
		to[name] = draw(path+"."+name, depth-1)
	}
	return to
}

func TestOtherFilesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "has no document of k0sctl",
		"apiVersion: airlift/v1\nkind: Cluster\n": "is a cluster.yaml already",
		"apiVersion: v1\nkind: Pod\n":             "has no document of k0sctl",
		"a: b: c\n":                               "f:1: ",
	} {
		if _, _, err := convert.K0sctl("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The configuration of k0s may be a document of its own.
func TestSeparateConfiguration(t *testing.T) {
	const text = "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts: [{role: single, hostname: a, ssh: {address: 10.0.0.1}}]\n---\napiVersion: k0s.k0sproject.io/v1beta1\nkind: ClusterConfig\nspec: {network: {podCIDR: 10.9.0.0/16}, other: 1}\n"
	out, left, err := convert.K0sctl("f", []byte(text))
	if err != nil || len(left) != 1 || left[0].Field != "document 2.spec.other" || left[0].Line != 8 {
		t.Fatalf("%v, %v", left, err)
	}
	if c := read(t, out); len(c.Hosts) != 1 || c.Hosts[0].Taints == nil || !strings.Contains(string(c.Kubeadm), "podSubnet: 10.9.0.0/16") {
		t.Errorf("%s", out)
	}
}
