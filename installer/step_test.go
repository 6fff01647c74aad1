package installer

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/rig"
)

// TestInitHasKubeadmsPhases runs real kubeadm to get its phases. init must have
// each of them, with the same name and in the same order.
func TestInitHasKubeadmsPhases(t *testing.T) {
	hasKubeadmsPhases(t, InitPhases(), 10, rig.Component(t, "v1.29.15", "kubeadm"), "init")
}

// TestUpgradeHasKubeadmsPhases does the same for upgrade. kubeadm v1.29 has no phases of apply.
func TestUpgradeHasKubeadmsPhases(t *testing.T) {
	kubeadm := rig.Component(t, "v1.37.1", "kubeadm")
	hasKubeadmsPhases(t, UpgradeApplyPhases(), 7, kubeadm, "upgrade", "apply")
	hasKubeadmsPhases(t, UpgradeNodePhases(), 5, kubeadm, "upgrade", "node")
}

// hasKubeadmsPhases compares steps with the phases, at least this many, in the help of a command.
func hasKubeadmsPhases(t *testing.T, steps []Step, least int, kubeadm string, command ...string) {
	t.Helper()
	help, err := exec.Command(kubeadm, append(command, "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(help), "```\n")
	if !ok {
		t.Fatalf("no phase list in:\n%s", help)
	}
	list, _, _ = strings.Cut(list, "```")
	var phases []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*) `).FindAllStringSubmatch(list, -1) {
		phases = append(phases, m[1])
	}
	if len(phases) < least {
		t.Fatalf("only %q found in:\n%s", phases, list)
	}
	ours := Names(steps)
	last := -1
	for _, p := range phases {
		i := slices.Index(ours, p)
		switch {
		case i < 0:
			t.Errorf("kubeadm's phase %s is not among ours: %q", p, ours)
		case i < last:
			t.Errorf("%s comes before %s, in kubeadm after it", p, ours[last])
		default:
			last = i
		}
	}
}

func TestRun(t *testing.T) {
	var did []string
	step := func(name string, err error, subs ...Step) Step {
		s := Step{Name: name, Doc: "do " + name, Steps: subs}
		if subs == nil {
			s.Run = func(context.Context) error { did = append(did, name); return err }
		}
		return s
	}
	steps := []Step{step("one", nil), step("two", nil, step("a", nil), step("b", nil)), step("three", nil)}
	for _, tt := range []struct {
		name  string
		skip  []string
		steps []Step
		want  string
		err   string
	}{
		{"all", nil, steps, "one a b three", ""},
		{"skip a step", []string{"one"}, steps, "a b three", ""},
		{"skip with its sub-steps", []string{"two"}, steps, "one three", ""},
		{"skip a sub-step", []string{"two/a"}, steps, "one b three", ""},
		{"unknown name", []string{"b"}, steps, "", `"b": there is no such phase`},
		{"stops at an error", nil, []Step{step("one", nil), step("two", errors.New("boom")), step("three", nil)}, "one two", "two: boom"},
		{"a needed step", []string{"one"}, []Step{{Name: "one", Needed: true, Run: func(context.Context) error { return nil }}}, "", `"one": this phase cannot be skipped`},
		{"names the sub-step", nil, []Step{step("one", nil, step("a", errors.New("boom")))}, "a", "one: a: boom"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			did = nil
			var out bytes.Buffer
			err := Run(t.Context(), &Console{Out: &out}, tt.steps, tt.skip)
			if got := strings.Join(did, " "); got != tt.want {
				t.Errorf("did %q, want %q", got, tt.want)
			}
			if (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if len(tt.skip) > 0 && tt.err != "" && fault.ExitCode(err) != fault.Usage {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
			if bytes.ContainsAny(out.Bytes(), "\r\x1b") {
				t.Errorf("control characters without a terminal: %q", out.String())
			}
		})
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var did []string
	err := Run(ctx, &Console{Out: new(bytes.Buffer)}, []Step{
		{Name: "one", Run: func(context.Context) error { did = append(did, "one"); cancel(); return nil }},
		{Name: "two", Run: func(context.Context) error { did = append(did, "two"); return nil }},
	}, nil)
	if len(did) != 1 || fault.ExitCode(err) != fault.Interrupted {
		t.Errorf("did %q, error %v", did, err)
	}
}

func TestResetGoesOnPastErrors(t *testing.T) {
	var did []string
	step := func(name string, err error) Step {
		return Step{Name: name, Run: func(context.Context) error { did = append(did, name); return err }}
	}
	failed, err := runReset(t.Context(), &Console{Out: new(bytes.Buffer)}, []Step{
		step("preflight", nil), step("one", errors.New("stuck")), {Name: "two", Steps: []Step{step("a", errors.New("busy")), step("b", nil)}},
	}, nil)
	if got := strings.Join(did, " "); got != "preflight one a b" {
		t.Errorf("did %q", got)
	}
	if want := []string{"one: stuck", "a: busy"}; err != nil || !slices.Equal(failed, want) {
		t.Errorf("failed: %q, want %q (%v)", failed, want, err)
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	is := config.Cluster{KubernetesVersion: "v1.29.15", Networking: config.Networking{PodSubnet: config.ParseCIDRs("10.244.0.0/16"), DNSDomain: "cluster.local"}}
	if diff := differences(is, is); diff != nil {
		t.Errorf("a cluster differs from itself: %q", diff)
	}
	want := is
	want.KubernetesVersion, want.Networking.PodSubnet, want.ControlPlaneEndpoint = "v1.30.1", config.ParseCIDRs("10.60.0.0/16"), "vip:6443"
	want.CertificatesDir, want.Etcd.External = "/data/pki", &config.ExternalEtcd{Endpoints: []string{"https://10.9.9.9:2379"}}
	got := strings.Join(differences(is, want), "\n")
	for _, w := range []string{"v1.29.15, and the requested value is v1.30.1", "10.244.0.0/16, and the requested value is 10.60.0.0/16", "--control-plane-endpoint is not set, and the requested value is vip:6443",
		"--cert-dir is /etc/kubernetes/pki, and the requested value is /data/pki", "etcd is local, with its data in /var/lib/etcd, and the requested value is external"} {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in:\n%s", w, got)
		}
	}
}

func TestMissingSettings(t *testing.T) {
	is := config.Cluster{Etcd: config.Etcd{Local: config.LocalEtcd{ExtraArgs: []config.Arg{{Name: "quota-backend-bytes", Value: "1"}}}}}
	is.APIServer.ExtraArgs = []config.Arg{{Name: "encryption-provider-config", Value: "/etc/site/keys.yaml"}, {Name: "v", Value: "2"}}
	is.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "site"}}
	is.Scheduler.ExtraEnvs = []corev1.EnvVar{{Name: "TZ"}}
	want := new(config.Config)
	want.KubernetesVersion = "v1.37.1"
	want.APIServer.ExtraArgs = []config.Arg{{Name: "v", Value: "4"}, {Name: "profiling", Value: "false"}}
	got := strings.Join(missingSettings(is, want), "\n")
	if list := "apiServer.extraArgs: encryption-provider-config\napiServer.extraVolumes: site\nscheduler.extraEnvs: TZ\netcd.local.extraArgs: quota-backend-bytes"; got != list {
		t.Errorf("%s", got)
	}
	if lost := missingSettings(is, &config.Config{Cluster: is}); lost != nil {
		t.Errorf("%q", lost)
	}
}

// kubeadm v1.29 stores a flag that nobody gave.
func TestStoredDefaultsAreNotMissing(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		c := new(config.Config)
		c.KubernetesVersion = version
		if lost := missingSettings(render.StoredCluster(c), c); lost != nil {
			t.Errorf("%s: %q", version, lost)
		}
		if stored := render.StoredCluster(c).APIServer.ExtraArgs; (version == "v1.29.15") != (len(stored) == 1) {
			t.Errorf("%s: %v", version, stored)
		}
	}
}
