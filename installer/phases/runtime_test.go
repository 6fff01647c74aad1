package phases

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host/kernel"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

func TestKernelModulesForKubeProxy(t *testing.T) {
	for name, c := range map[string]struct {
		proxy *kubeproxyv1.KubeProxyConfiguration
		want  bool
	}{
		"ipvs":                 {&kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs", IPVS: kubeproxyv1.KubeProxyIPVSConfiguration{Scheduler: "wlc"}}, true},
		"another mode":         {&kubeproxyv1.KubeProxyConfiguration{Mode: "iptables"}, false},
		"no mode":              {&kubeproxyv1.KubeProxyConfiguration{}, false},
		"without a kube-proxy": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			modules := kernelModules(c.proxy)
			if got := slices.Contains(modules, "ip_vs") && slices.Contains(modules, "ip_vs_wlc"); got != c.want || !slices.Contains(modules, "overlay") {
				t.Errorf("modules: %s", strings.Join(modules, " "))
			}
		})
	}
}

// Reset removes the kubelet's certificate directory only if Airlift created it.
func TestKubeletCertDirIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		dir    string
		exists bool
		want   bool
	}{
		"the default":    {"", false, false},
		"another":        {"/data/kubelet-pki", false, true},
		"an existing":    {"/data/kubelet-pki", true, false},
		"below the root": {"/var/lib/kubelet/certs", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			cfg := &config.Config{}
			n := NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(testhost.Open(t, root), nil))
			cfg.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "cert-dir", Value: c.dir}}
			if c.exists {
				if err := os.MkdirAll(n.Host.Path(c.dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.claim(n.kubeletCertDir()...); err != nil {
				t.Fatal(err)
			}
			if got := c.dir != "" && n.Host.Records().Claimed("the kubelet's certificates") == c.dir; got != c.want {
				t.Errorf("recorded: %v, want %v", got, c.want)
			}
		})
	}
}

// The phase that runs alone does not report success on a host whose container runtime cannot be used.
func TestPhaseRuntimeRefusesAnUnusableRuntime(t *testing.T) {
	n := NewNode(&Plan{Config: &config.Config{}}, node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)}))
	n.Observed = node.Observation{KeepsRuntime: true, RuntimeErr: errors.New("no")}
	if err := NewRuntimeStep(NewContent(n)).Apply(t.Context(), desired.List{}, nil, nil, false); !errors.Is(err, n.Observed.RuntimeErr) || n.Changes > 0 {
		t.Errorf("%v, %d changes", err, n.Changes)
	}
}

// A run that is refused does not wait for a container runtime.
func TestRefusedRunDoesNotLookForARuntime(t *testing.T) {
	cfg := &config.Config{NodeRegistration: config.NodeRegistration{CRISocket: "unix:///run/other.sock"}}
	n := NewNode(&Plan{Config: cfg}, node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)}))
	refused := errors.New("another configuration")
	n.CheckEarlier = func(context.Context) error { return refused }
	if err := n.Inspect(t.Context()); !errors.Is(err, refused) || n.Observed.RuntimeErr != nil {
		t.Errorf("%v; %v", err, n.Observed.RuntimeErr)
	}
	n.CheckEarlier = func(context.Context) error { return nil }
	if err := n.Inspect(t.Context()); err != nil || n.Observed.RuntimeErr == nil {
		t.Errorf("%v; %v", err, n.Observed.RuntimeErr)
	}
}

// Registries are written where containerd looks for them first. A run without the
// flags leaves them, and a run that replaces an edited file warns.
func TestRegistriesAreWritten(t *testing.T) {
	root := t.TempDir()
	var out bytes.Buffer
	write := func(list ...config.Registry) {
		t.Helper()
		cfg := &config.Config{Images: map[string]string{"pause": "registry.k8s.io/pause:3.9"}, Registries: list}
		n := NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: &out}))
		n.inspected = true
		l, err := NewRuntimeStep(NewContent(n)).Desired(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Write(l.Files...); err != nil {
			t.Fatal(err)
		}
	}
	certs := root + render.RegistriesDir
	if err := os.MkdirAll(certs+"/registry.example_5000_", 0o755); err != nil { // the user's
		t.Fatal(err)
	}
	access := config.RegistryAccess{CA: []byte("ca"), Authorization: "Basic cmVhZGVyOnBhc3N3b3Jk"}
	one := config.Registry{Host: "registry.example:5000", RegistryAccess: access}
	two := config.Registry{Host: "docker.io", Mirrors: []config.RegistryMirror{{URL: &url.URL{Scheme: "https", Host: "mirror:5000"}, RegistryAccess: access}}}
	write(one, two)
	for path, mode := range map[string]os.FileMode{
		"/registry.example_5000_/hosts.toml": 0o600, "/registry.example_5000_/registry.example:5000.pem": 0o644,
		"/docker.io/hosts.toml": 0o600, "/docker.io/mirror:5000.pem": 0o644,
	} {
		if info, err := os.Stat(certs + path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	hosts := certs + "/docker.io/hosts.toml"
	if err := os.WriteFile(hosts, []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	write()
	if data, err := os.ReadFile(hosts); err != nil || string(data) != "edited" || out.Len() > 0 {
		t.Errorf("%s, %v; output: %s", data, err, &out)
	}
	write(one, two)
	if data, err := os.ReadFile(hosts + ".airlift-saved"); err != nil || string(data) != "edited" || !strings.Contains(out.String(), "warning: "+render.RegistriesDir+"/docker.io/hosts.toml was edited") {
		t.Errorf("%s, %v; output: %s", data, err, &out)
	}
	if strings.Contains(out.String(), access.Authorization) {
		t.Errorf("a secret in the output: %s", &out)
	}
}

// TestKernelDefaultsAreSet: a kubelet with protectKernelDefaults finds the parameters that it compares.
func TestKernelDefaultsAreSet(t *testing.T) {
	const kubelet = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
	for cluster, want := range map[string]bool{"": false, kubelet: false, kubelet + "protectKernelDefaults: true\n": true} {
		n := NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: testhost.Config(nil)}, node.NewMachine(testhost.Open(t, t.TempDir()), nil))
		var document []byte
		if cluster != "" {
			document = []byte(cluster)
		}
		own, err := n.KubeletConfig(document)
		if err != nil {
			t.Fatal(err)
		}
		list := n.sysctls(own)
		for _, s := range kernel.KubeletSysctls() {
			if slices.Contains(list, s) != want {
				t.Errorf("%q: %v", cluster, list)
			}
		}
	}
}
