package config_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/scripts/fixtures/rig"
)

// judge returns the kubeadm that reads a version of its API, and the Kubernetes
// version that this kubeadm accepts.
func judge(t *testing.T, api string) (kubeadm, kubernetes string) {
	kubernetes = "v1.37.1"
	if api == "v1beta3" {
		kubernetes = "v1.29.15"
	}
	return rig.Component(t, kubernetes, "kubeadm"), kubernetes
}

// inVersion returns a test file for a version of the API. It replaces VERSION and
// KUBERNETES in the text.
func inVersion(text, api, kubernetes string) string {
	return strings.NewReplacer("VERSION", "kubeadm.k8s.io/"+api, "KUBERNETES", kubernetes).Replace(text)
}

func writeFile(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const nodeParts = `
nodeRegistration:
  name: n1
  criSocket: unix:///run/containerd/containerd.sock
localAPIEndpoint: {advertiseAddress: 192.0.2.10}
`

// goodFiles are files that kubeadm reads, in the named versions of its API. Airlift
// must read the same from them.
var goodFiles = []struct {
	name     string
	versions []string
	text     string
}{
	{"only a cluster", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
`},
	{"only init", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: InitConfiguration
bootstrapTokens:
- token: abcdef.0123456789abcdef
` + nodeParts + `
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
`},
	{"every field of init", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: InitConfiguration
bootstrapTokens:
- token: abcdef.0123456789abcdef
  description: "for: nodes # not a comment"
  ttl: 1h30m
  usages: [signing, authentication]
  groups: [system:bootstrappers:kubeadm:default-node-token, system:bootstrappers:more]
- token: bbbbbb.0123456789abcdef
  ttl: 0s
- usages: [authentication]
  token: cccccc.0123456789abcdef
nodeRegistration:
  name: N1
  criSocket: /run/containerd/containerd.sock
  taints:
  - {key: k, value: v, effect: NoExecute}
  - {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}
  ignorePreflightErrors: [Swap, NumCPU]
  imagePullPolicy: Never
localAPIEndpoint:
  advertiseAddress: 192.0.2.10
  bindPort: 7443
certificateKey: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
skipPhases: [addon/kube-proxy, mark-control-plane]
patches: {directory: /patches}
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
clusterName: c1
controlPlaneEndpoint: api.example.com
certificatesDir: /pki
imageRepository: registry.example.com:5000/k8s
networking: {serviceSubnet: 10.1.0.0/16, podSubnet: 10.2.0.0/16, dnsDomain: cluster.example}
featureGates: {RootlessControlPlane: false}
dns: {imageRepository: registry.example.com/dns, imageTag: v9}
apiServer:
  certSANs: [API.example.com, "*.example.com", 192.0.2.7, "fd00::7"]
  extraVolumes:
  - {name: audit, hostPath: /var/log/audit, mountPath: /audit, readOnly: true, pathType: DirectoryOrCreate}
controllerManager:
  extraVolumes: [{name: v, hostPath: /h, mountPath: /m}]
etcd:
  local:
    dataDir: /data/etcd
    imageRepository: registry.example.com/etcd
    imageTag: 3.5.9-0
    serverCertSANs: [etcd.example.com]
    peerCertSANs: [192.0.2.9]
`},
	{"the default address, asked for", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: InitConfiguration
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
localAPIEndpoint: {advertiseAddress: 0.0.0.0, bindPort: 0}
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
`},
	{"no taints", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: InitConfiguration
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
localAPIEndpoint: {advertiseAddress: 192.0.2.10}
nodeRegistration: {name: n1, taints: []}
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
`},
	{"arguments as a map", []string{"v1beta3"}, `
apiVersion: VERSION
kind: InitConfiguration
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
nodeRegistration: {name: n1, kubeletExtraArgs: {v: "2", node-labels: "a=b,c=d"}}
localAPIEndpoint: {advertiseAddress: 192.0.2.10}
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
featureGates: {PublicKeysECDSA: true, EtcdLearnerMode: yes}
apiServer: {timeoutForControlPlane: 90s, extraArgs: {z: "1", a: "", audit-log-path: /a}}
controllerManager: {extraArgs: {node-cidr-mask-size: "25"}}
scheduler: {extraArgs: {v: "4"}}
etcd: {local: {dataDir: /e, extraArgs: {quota-backend-bytes: "100"}}}
`},
	{"arguments as a list", []string{"v1beta4", "v1"}, `
apiVersion: VERSION
kind: InitConfiguration
dryRun: true
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
nodeRegistration:
  name: n1
  imagePullSerial: false
  kubeletExtraArgs: [{name: v, value: "2"}, {name: node-labels, value: a=b}, {name: node-labels, value: c=d}]
localAPIEndpoint: {advertiseAddress: 192.0.2.10}
timeouts: {controlPlaneComponentHealthCheck: 1m, kubeletHealthCheck: 2m, kubernetesAPICall: 3m, etcdAPICall: 4m, tlsBootstrap: 5m, discovery: 6m, upgradeManifests: 7m}
---
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
encryptionAlgorithm: ECDSA-P384
certificateValidityPeriod: 48h
caCertificateValidityPeriod: 96h
proxy: {disabled: true}
dns: {disabled: true}
apiServer:
  extraArgs: [{name: z, value: "1"}, {name: a, value: ""}, {name: z, value: "2"}]
  extraEnvs: [{name: E, value: e}, {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]
controllerManager: {extraEnvs: [{name: F, value: f}]}
scheduler: {extraArgs: [{name: v, value: "4"}]}
etcd: {local: {dataDir: /e, extraArgs: [{name: b, value: "1"}, {name: a, value: "2"}], extraEnvs: [{name: G, value: g}]}}
`},
	{"merge methods", []string{"v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
apiServer: {extraArgs: [{name: enable-admission-plugins, value: PodSecurity, mergeMethod: append}]}
`},
	{"external etcd", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
etcd:
  external:
    endpoints: ["https://10.0.0.1:2379", "https://10.0.0.2:2379"]
    caFile: /etcd/ca.crt
    certFile: /etcd/client.crt
    keyFile: /etcd/client.key
`},
	{"external etcd without TLS", []string{"v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
etcd: {external: {endpoints: ["http://10.0.0.1:2379"], httpEndpoints: ["http://10.0.0.1:2381"], caFile: "", certFile: "", keyFile: ""}}
`},
	{"dual stack", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
networking: {serviceSubnet: "10.1.0.0/16,fd00:1::/112", podSubnet: "10.2.0.0/16,fd00:2::/56"}
controlPlaneEndpoint: "[fd00::1]:7443"
`},
	{"JSON", []string{"v1beta3", "v1beta4", "v1"}, `{"apiVersion": "VERSION", "kind": "ClusterConfiguration", "kubernetesVersion": "KUBERNETES", "clusterName": "j\u0041"}`},
	{"CRLF, a BOM, comments, anchors and a last separator", []string{"v1beta3", "v1beta4", "v1"}, "\xef\xbb\xbf# first\r\napiVersion: VERSION # v\r\nkind: ClusterConfiguration\r\nkubernetesVersion: KUBERNETES\r\napiServer:\r\n  certSANs: &sans\r\n  - a.example\r\netcd:\r\n  local:\r\n    dataDir: /e\r\n    serverCertSANs: *sans\r\n---\r\n"},
	{"a merged mapping", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
controllerManager: &volumes
  extraVolumes: [{name: v, hostPath: /h, mountPath: /m}]
scheduler:
  <<: *volumes
`},
	{"nulls", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: ClusterConfiguration
kubernetesVersion: KUBERNETES
apiServer: null
controllerManager: {extraArgs: null, extraVolumes: ~}
networking:
etcd: {local: null}
featureGates:
`},
	{"join by token", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: JoinConfiguration
nodeRegistration: {name: n1}
discovery:
  bootstrapToken:
    token: abcdef.0123456789abcdef
    apiServerEndpoint: api.example.com:6443
    caCertHashes: ["sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]
`},
	{"join a control plane", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: JoinConfiguration
caCertPath: /etc/ca/ca.crt
nodeRegistration: {name: n1, imagePullPolicy: Always}
controlPlane:
  localAPIEndpoint: {advertiseAddress: 192.0.2.11, bindPort: 7443}
  certificateKey: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
discovery:
  tlsBootstrapToken: bbbbbb.0123456789abcdef
  bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: "[fd00::1]:6443", unsafeSkipCAVerification: true}
skipPhases: [preflight]
patches: {directory: /p}
`},
	{"join by URL", []string{"v1beta3", "v1beta4", "v1"}, `
apiVersion: VERSION
kind: JoinConfiguration
nodeRegistration: {name: n1}
discovery: {file: {kubeConfigPath: "https://example.com/cluster-info"}, tlsBootstrapToken: abcdef.0123456789abcdef}
`},
	{"join's old timeout", []string{"v1beta3"}, `
apiVersion: VERSION
kind: JoinConfiguration
nodeRegistration: {name: n1}
discovery: {timeout: 7m, file: {kubeConfigPath: "https://example.com/cluster-info"}, tlsBootstrapToken: abcdef.0123456789abcdef}
`},
	{"join's timeouts", []string{"v1beta4", "v1"}, `
apiVersion: VERSION
kind: JoinConfiguration
dryRun: true
nodeRegistration: {name: n1}
timeouts: {discovery: 7m, tlsBootstrap: 8m}
discovery: {file: {kubeConfigPath: "https://example.com/cluster-info"}, tlsBootstrapToken: abcdef.0123456789abcdef}
`},
	{"reset", []string{"v1beta4", "v1"}, `
apiVersion: VERSION
kind: ResetConfiguration
cleanupTmpDir: true
certificatesDir: /pki
criSocket: unix:///run/containerd/containerd.sock
dryRun: true
force: true
ignorePreflightErrors: [all]
skipPhases: [cleanup-node]
unmountFlags: [MNT_DETACH, UMOUNT_NOFOLLOW]
timeouts: {etcdAPICall: 1m}
`},
	{"upgrade", []string{"v1beta4", "v1"}, `
apiVersion: VERSION
kind: UpgradeConfiguration
apply: {kubernetesVersion: v1.37.1, etcdUpgrade: false}
diff: {contextLines: 4}
`},
}

// TestGoodFilesMeanToUsWhatTheyMeanToKubeadm compares the output of kubeadm config
// migrate, which shows what kubeadm has read, with Airlift's output.
func TestGoodFilesMeanToUsWhatTheyMeanToKubeadm(t *testing.T) {
	for _, f := range goodFiles {
		for _, api := range f.versions {
			t.Run(f.name+"/"+api, func(t *testing.T) {
				t.Parallel()
				kubeadm, kubernetes := judge(t, api)
				path := writeFile(t, inVersion(f.text, api, kubernetes))
				out, err := run(kubeadm, "config", "migrate", "--allow-experimental-api="+yes(api == "v1"), "--old-config", path)
				if err != nil {
					t.Fatalf("kubeadm: %v\n%s", err, out)
				}
				want := documents(t, out)
				got := documents(t, migrated(t, path, config.APIVersion(kubernetes)))
				alike(want, got)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("-kubeadm +airlift\n%s", diff)
				}
				// Airlift must read the same from its own output.
				again := documents(t, migrated(t, writeFile(t, string(migrated(t, path, api))), config.APIVersion(kubernetes)))
				alike(again, again)
				if diff := gocmp.Diff(got, again); diff != "" {
					t.Errorf("-once +twice\n%s", diff)
				}
			})
		}
	}
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func run(name string, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return errs.Bytes(), err
	}
	return out.Bytes(), nil
}

// migrated reads a file, completes it as kubeadm does, and returns it as written
// again.
func migrated(t *testing.T, path, api string) []byte {
	f, _, err := config.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	add := func(data []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, data)
	}
	facts := config.Facts{Hostname: "host", NodeIP: "192.0.2.1"}
	if c := f.Init; c != nil {
		c.Facts = facts
		c.CNI = "none" // with a CNI there is a default pod subnet
		c.CompleteInit()
		if c.EncryptionAlgorithm == "" {
			c.EncryptionAlgorithm = "RSA-2048" // Airlift's default is ECDSA-P256
		}
		if err := c.ValidateInit(); err != nil {
			t.Fatal(err)
		}
		add(c.WriteInit(api))
	}
	if c := f.Join; c != nil {
		c.Facts = facts
		c.CompleteJoin()
		if err := c.ValidateJoin(); err != nil {
			t.Fatal(err)
		}
		add(c.WriteJoin(api))
	}
	if r := f.Reset; r != nil {
		r.Complete()
		if err := r.ValidateReset(); err != nil {
			t.Fatal(err)
		}
		add(r.Write(api))
	}
	if f.Upgrade != nil {
		add(f.Upgrade.Write(api))
	}
	return bytes.Join(docs, []byte("---\n"))
}

func documents(t *testing.T, data []byte) map[string]map[string]any {
	docs := map[string]map[string]any{}
	for _, text := range strings.Split(string(data), "---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		docs[doc["kind"].(string)] = doc
	}
	return docs
}

// alike removes the allowed differences:
//   - kubeadm fills in this host's name, address and container runtime, and a
//     random token; Airlift generates the token when init runs;
//   - a missing value may be null, empty or left out.
func alike(want, got map[string]map[string]any) {
	for kind, doc := range want {
		other := got[kind]
		if other == nil {
			continue
		}
		for _, path := range [][]string{
			{"nodeRegistration", "name"}, {"nodeRegistration", "criSocket"}, {"criSocket"},
			{"localAPIEndpoint", "advertiseAddress"}, {"controlPlane", "localAPIEndpoint", "advertiseAddress"},
		} {
			ours := get(other, path)
			if ours == "host" || ours == "192.0.2.1" || ours == "unix:///run/containerd/containerd.sock" {
				remove(doc, path)
				remove(other, path)
			}
		}
		if _, given := other["bootstrapTokens"]; !given {
			delete(doc, "bootstrapTokens")
		}
		tidy(doc)
		tidy(other)
	}
}

func get(doc map[string]any, path []string) any {
	for _, key := range path[:len(path)-1] {
		doc, _ = doc[key].(map[string]any)
	}
	return doc[path[len(path)-1]]
}

func remove(doc map[string]any, path []string) {
	for _, key := range path[:len(path)-1] {
		doc, _ = doc[key].(map[string]any)
	}
	delete(doc, path[len(path)-1])
}

// tidy removes nulls, empty maps and empty lists. It keeps "taints: []", which has a
// meaning.
func tidy(value any) (empty bool) {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		maps.DeleteFunc(v, func(key string, inner any) bool { return key != "taints" && tidy(inner) })
		return len(v) == 0
	case []any:
		for _, item := range v {
			tidy(item)
		}
		return len(v) == 0
	}
	return false
}

func TestDefaultsAreKubeadms(t *testing.T) {
	for _, kubernetes := range []string{"v1.29.15", "v1.37.1"} {
		kubeadm := rig.Component(t, kubernetes, "kubeadm")
		for _, name := range []string{"init-defaults", "join-defaults", "reset-defaults"} {
			t.Run(kubernetes+"/"+name, func(t *testing.T) {
				out, err := run(kubeadm, "config", "print", name)
				if err != nil {
					t.Fatal(err)
				}
				// Airlift must read kubeadm's output, and completing it must add
				// nothing.
				want := documents(t, out)
				if kubernetes == "v1.29.15" && name == "reset-defaults" {
					delete(want["ResetConfiguration"], "timeouts")
				}
				got := documents(t, migrated(t, writeFile(t, string(out)), config.APIVersion(kubernetes)))
				alike(want, got)
				for _, docs := range []map[string]map[string]any{want, got} {
					for _, doc := range docs {
						// kubeadm prints it before it knows the default for the
						// role.
						remove(doc, []string{"nodeRegistration", "taints"})
						if kubernetes == "v1.29.15" {
							delete(doc, "timeouts") // the v1beta4 of this version was not final
						}
					}
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("-kubeadm +airlift\n%s", diff)
				}
			})
		}
	}
}
