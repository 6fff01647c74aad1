package doctor

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/endpoint/balancer"
	"airlift/installer/endpoint/vip"
	"airlift/installer/host"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/status"
	"airlift/scripts/fixtures/secrets"
	"airlift/scripts/fixtures/seed"
)

func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// gather runs the doctor on a root directory.
func gather(t *testing.T, root string) *Report {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	d := &Doctor{Host: h, Reader: &status.Reader{Host: h}, Options: Options{Since: time.Minute, MaxSize: 64 << 20}}
	report, err := d.Gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// plantIn writes a probe to its place on a host: a file, a log, or a command that prints it.
func plantIn(t *testing.T, root, bin string, p secrets.Probe, text string) {
	t.Helper()
	switch {
	case strings.HasPrefix(p.Source, "/"):
		write(t, root, p.Source, text)
	case p.Source == secrets.Any:
		for _, name := range []string{"var/log/pods/site_app_1/app/0.log", "var/lib/airlift/runs.json", "etc/cni/net.d/10-x.conflist", "etc/default/kubelet", "etc/containerd/config.toml", "etc/systemd/system/kubelet.service.d/10-x.conf"} {
			write(t, root, name, text)
		}
	case strings.HasPrefix(p.Name, "log, "):
		const now, prefix = "2999-11-26T12:00:00.5Z", "2999-11-26T12:00:00.5Z stderr F "
		records := prefix + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+prefix) + "\n"
		if then := "2026-11-26T12:00:00.5Z"; strings.HasPrefix(text, then+" std") { // it is in the log's format already
			records = strings.ReplaceAll(text, then, now)
		}
		write(t, root, "var/log/pods/kube-system_app_1/app/0.log", records)
	case strings.HasPrefix(p.Name, "journal, "):
		fake(t, bin, "journalctl", "", text)
	case strings.Contains(p.Source, " "):
		fields := strings.Fields(p.Source)
		fake(t, bin, fields[0], fields[1], text)
	}
}

// fake writes a command that prints a text if its first argument begins with a word.
func fake(t *testing.T, bin, name, word, text string) {
	t.Helper()
	write(t, bin, name+".txt", text)
	write(t, bin, name, "#!/bin/sh\ncase \"$1\" in\n"+word+"*) exec /bin/cat "+bin+"/"+name+".txt ;;\nesac\n") // read drops zero bytes
	if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestNoSecretIsInTheArchive plants random secrets in all places of a host, and reads the archive.
// AIRLIFT_SEED repeats a run.
func TestNoSecretIsInTheArchive(t *testing.T) {
	g := secrets.New(seed.Value(t))
	probes := g.Probes()
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for range 30 {
		root := t.TempDir()
		type planted struct {
			secrets.Probe
			secret string
		}
		var list []planted
		for _, at := range g.Perm(len(probes))[:12] {
			p := planted{probes[at], strings.ReplaceAll(g.Secret(), "\n", " ")}
			list = append(list, p)
			plantIn(t, root, bin, p.Probe, p.Text(p.secret))
		}
		report := gather(t, root)
		for _, e := range report.Entries {
			for _, p := range list {
				if piece := secrets.Leak(string(e.Content), p.Text(""), p.secret); piece != "" {
					t.Errorf("%s has %q of %q:\n%s\nfrom %s, %s:\n%s", e.Name, piece, p.secret, e.Content, p.Source, p.Name, p.Text(p.secret))
				}
			}
		}
	}
}

// TestArchive: stock tar lists and extracts the archive, its entries are owned by no one, no
// secret is in it, and what helps is.
func TestArchive(t *testing.T) {
	const secret = "hunter2hunter2"
	root := t.TempDir()
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for name, text := range map[string]string{
		"etc/kubernetes/admin.conf":                            "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\nusers: [{name: u, user: {token: " + secret + "}}]\n",
		"etc/kubernetes/manifests/app.yaml":                    "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {containers: [{name: app, image: 'r.example/app:1', args: [--v=2, --password, " + secret + "]}]}\n",
		"var/lib/kubelet/kubeadm-flags.env":                    "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1 --x=" + secret + "\"\n",
		"etc/containerd/config.toml":                           "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry.configs.'r.example'.auth]\npassword = '" + secret + "'\n",
		"etc/containerd/certs.d/registry.example/hosts.toml":   "server = 'https://registry.example'\n[host.'https://m.example'.header]\nAuthorization = ['Basic " + secret + "']\n",
		"etc/systemd/system/kubelet.service.d/10-env.conf":     "[Service]\nEnvironment=A=" + secret + "\nRestart=always\n",
		"etc/cni/net.d/10-x.conflist":                          `{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel", "x": "` + secret + `"}]}`,
		"var/lib/airlift/runs.json":                            `[{"command": "init", "version": "v1.37.1", "error": "https://robot:` + secret + `@r.example: EOF", "x": "` + secret + `"}]`,
		"etc/hosts":                                            "127.0.0.1 localhost\n# " + secret + "\n",
		"etc/kubernetes/pki/ca.key":                            secret,
		"var/lib/kubelet/pki/kubelet-client-current.pem":       secret,
		"var/log/pods/kube-system_app_1/app/0.log":             now + " stderr F Error: unknown flag: --no-such-flag\n" + now + " stderr F https://robot:" + secret + "@r.example\n",
		"var/log/pods/kube-system_cut_1/app/0.log":             "2020-01-01T00:00:00Z stderr F -----BEGIN PRIVATE KEY-----\n" + now + " stderr F " + secret + "\n" + now + " stderr F -----END PRIVATE KEY-----\n",
		"var/log/pods/site_app_1/app/0.log":                    now + " stderr F a log of the site's own\n",
		"usr/lib/systemd/system/kubelet.service.d/10-site.txt": secret,
	} {
		write(t, root, name, text)
	}
	certificate, err := exec.Command("sh", "-c", "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -subj /CN=kube-apiserver -days 1 2>/dev/null").Output()
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, "etc/kubernetes/pki/apiserver.crt", string(certificate))
	report := gather(t, root)
	if len(report.Suspicions) == 0 {
		t.Error("a host with manifests and without a kubelet is not suspicious")
	}
	for _, name := range []string{"x.tar.gz", "x.tar.zst"} {
		var archive bytes.Buffer
		if err := report.WriteArchive(&archive, name); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := exec.Command("tar", "-tvf", file).CombinedOutput()
		if err != nil {
			t.Fatalf("tar: %v\n%s", err, list)
		}
		for line := range strings.Lines(string(list)) {
			if !strings.Contains(line, "nobody/nogroup") || !strings.HasPrefix(line, "-rw-------") && !strings.HasPrefix(line, "drwx------") || !strings.Contains(line, " doctor-") {
				t.Error(line)
			}
		}
		for _, want := range []string{"/summary.txt\n", "/status.json\n", "/suspicions.json\n", "/preflight.json\n", "/certificates.txt\n", "/files/etc/containerd/config.toml\n",
			"/logs/kube-system_app_1/app/0.log\n", "/network/nftables.txt\n", "/units/kubelet.txt\n", "/journal/kernel.txt\n", "/host/disk.txt\n", "/airlift/runs.json\n"} {
			if !strings.Contains(string(list), want) {
				t.Errorf("%s: %s is not in\n%s", name, want, list)
			}
		}
		if strings.Contains(string(list), "site_app") || strings.Contains(string(list), "ca.key") {
			t.Errorf("%s has files that it should not have:\n%s", name, list)
		}
		if out, err := exec.Command("tar", "-C", dir, "--no-same-owner", "--strip-components=1", "-xf", file).CombinedOutput(); err != nil {
			t.Fatalf("tar: %v\n%s", err, out)
		}
		if out, err := exec.Command("grep", "-rlF", "--exclude="+name, "--", secret, dir).Output(); err == nil {
			t.Errorf("the secret is in %s", out)
		}
		for file, want := range map[string]string{
			"files/etc/kubernetes/admin.conf": "server: https://10.0.0.1:6443", "files/etc/kubernetes/manifests/app.yaml": "- --v=2\n    - --password\n    - '[redacted]'",
			"files/var/lib/kubelet/kubeadm-flags.env": "--node-ip=10.0.0.1 --x=[redacted]", "files/etc/containerd/config.toml": "password = '[redacted]'", "files/etc/containerd/certs.d/registry.example/hosts.toml": "Authorization = ['[redacted]']",
			"files/etc/systemd/system/kubelet.service.d/10-env.conf": "Environment=A=[redacted]\nRestart=always\n", "files/etc/cni/net.d/10-x.conflist": `"type": "flannel"`, "airlift/runs.json": `"error": "https://[redacted]@r.example: EOF"`, "files/etc/hosts": "127.0.0.1 localhost\n[redacted]\n",
			"logs/kube-system_app_1/app/0.log": "Error: unknown flag: --no-such-flag\n",
		} {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v, %q is not in\n%s", file, err, want, text)
			}
		}
	}
}

// TestLogsOf: logs of the site are in the archive if the user names their namespace. The list of files and the summary tell that
// they are not redacted.
func TestLogsOf(t *testing.T) {
	root := t.TempDir()
	now := time.Now().UTC().Format(time.RFC3339Nano) + " stderr F "
	write(t, root, "var/log/pods/app_web_1/web/0.log", now+"password=hunter2\n"+now+"https://robot:hunter2@r.example\n")
	write(t, root, "var/log/pods/app-2_web_1/web/0.log", now+"another namespace\n")
	write(t, root, "var/log/pods/kube-system_dns_1/dns/0.log", now+"kept\n")
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	d := &Doctor{Host: h, Reader: &status.Reader{Host: h}, Options: Options{Since: time.Minute, MaxSize: 64 << 20, LogsOf: []string{"app", "none", "app", "kube-system"}}}
	report, err := d.Gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	logs := map[string]string{}
	for _, e := range report.Entries {
		if strings.HasPrefix(e.Name, "logs") {
			logs[e.Name] = string(e.Content)
		}
	}
	want := map[string]string{"logs-not-redacted/app_web_1/web/0.log": now + "password=hunter2\n" + now + "https://[redacted]@r.example\n", "logs/kube-system_dns_1/dns/0.log": now + "kept\n"}
	if !maps.Equal(logs, want) {
		t.Errorf("%q", logs)
	}
	if s := report.Summary(); !strings.Contains(s, "are in logs-not-redacted: app (log files: 1), none (log files: 0).\nThey are not redacted: only PEM blocks") {
		t.Errorf("%s", s)
	}
	for name, valid := range map[string]bool{"app": true, "a-1": true, "": false, "App": false, "a*": false, "a_b": false, "../x": false, "kube-system": true} {
		if err := CheckNamespaces([]string{"default", name}); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestSummary(t *testing.T) {
	r := Report{
		Host: "host1", Began: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), LeftOut: []string{"journal/kernel.txt"},
		Suspicions: []Suspicion{{Saw: "the disk is full\nlast line", Why: "etcd stops", Fix: "df -h"}, {Saw: "a pod", Why: "it is not ready"}},
	}
	want := `host1, 2026-11-23 12:00:00 UTC

1. the disk is full
   last line
   why it matters: etcd stops
   what to type:   df -h

2. a pod
   why it matters: it is not ready

The size limit left no room for: journal/kernel.txt
`
	if got := r.Summary(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	r.Suspicions, r.LeftOut = nil, nil
	if got := r.Summary(); got != "host1, 2026-11-23 12:00:00 UTC\n\nNothing suspicious was found.\n" {
		t.Errorf("%q", got)
	}
	if name := r.FileName(); name != "doctor-host1-20261123T120000Z.tar.gz" {
		t.Error(name)
	}
}

func TestReadOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	never := make(chan struct{})
	defer close(never)
	if got := string(readOne(ctx, source{"x", redacted, func(context.Context) ([]byte, error) { <-never; return nil, nil }})); !strings.Contains(got, "no answer within") {
		t.Errorf("a source that hangs: %q", got)
	}
	if got := string(readOne(t.Context(), source{"x", redacted, func(context.Context) ([]byte, error) { return []byte("part\n"), errors.New("broken") }})); got != "part\n(not complete: broken)\n" {
		t.Errorf("a source that fails: %q", got)
	}
	if got := string(readOne(t.Context(), commands("x", "no-such-command-here --flag"))); !strings.Contains(got, "this host has no command no-such-command-here") {
		t.Errorf("a command that is missing: %q", got)
	}
	if got := string(readOne(t.Context(), commands("x", "sh -c false"))); !strings.Contains(got, "exit status 1") {
		t.Errorf("a command that fails: %q", got)
	}
}

func TestCancelledGather(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &Doctor{Host: h, Reader: &status.Reader{Host: h}, Options: Options{Since: time.Minute, MaxSize: 1 << 20}}
	if report, err := d.Gather(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", report, err)
	}
}

func TestFit(t *testing.T) {
	entries := []Entry{{"a", make([]byte, 2000)}, {"b", append(make([]byte, 3000), "end"...)}, {"c", make([]byte, 10)}, {"d", nil}}
	kept, left := fit(entries, 4100)
	if len(kept) != 2 || strings.Join(left, " ") != "c" {
		t.Fatalf("%d kept, without %v", len(kept), left)
	}
	if b := string(kept[1].Content); !strings.HasPrefix(b, "(903 bytes are left out here)\n") || !strings.HasSuffix(b, "end") {
		t.Errorf("%.40q", b)
	}
}

func TestAfter(t *testing.T) {
	log := "2026-11-23T10:00:00.5Z stderr F old\n2026-11-23T11:00:00.5Z stderr F new\nno time\n"
	since := time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)
	if got := string(after([]byte(log), since)); got != "2026-11-23T11:00:00.5Z stderr F new\nno time\n" {
		t.Errorf("%q", got)
	}
}

// unhealthy returns a component that is not healthy.
func unhealthy(name, kind, state, reason string) status.Component {
	return status.Component{Name: name, Kind: kind, State: state, Reason: reason}
}

// endpointProblem are facts with a problem of the endpoint that has a name, and one that follows from it.
func endpointProblem(follows status.Problem, name string) examined {
	return examined{status: &status.Status{Problems: []status.Problem{follows, {Part: "endpoint", Name: name, Message: "x", Fix: "y"}}}}
}

func withChecks(e examined, failed preflight.Problem) examined {
	e.checks.Errors = append(e.checks.Errors, failed)
	return e
}

// TestEndpointProblems: each problem that the status has a name for is a suspicion of that name, once.
func TestEndpointProblems(t *testing.T) {
	for _, name := range []string{status.EndpointMissing, status.EndpointSettings, status.EndpointDisabled, status.EndpointInterface, status.EndpointConflict, status.EndpointNowhere,
		status.EndpointNoAPI, status.EndpointAPIServer, status.EndpointCertificate} {
		e := examined{status: &status.Status{Warnings: []status.Problem{{Part: "endpoint", Name: name, Message: "x", Fix: "y"}}}}
		if name == status.EndpointConflict {
			e.taken = []vip.Conflict{{}}
		}
		list := suspect(e)
		if len(list) != 1 || list[0].Name != name || list[0].Saw != "x" || list[0].Why == "" || list[0].Fix != "y" {
			t.Errorf("%s: %+v", name, list)
		}
	}
	e := withChecks(endpointProblem(status.Problem{}, status.EndpointInterface), preflight.Problem{Name: "ControlPlaneVIP", Message: "no interface"})
	if list := suspect(e); len(list) != 1 {
		t.Errorf("the same twice: %+v", list)
	}
}

// TestEndpointInTheArchive: the files and the state of the endpoint are not redacted; the checks of the preflight
// are for a host with it.
func TestEndpointInTheArchive(t *testing.T) {
	root := t.TempDir()
	write(t, root, "etc/kubernetes/endpoint.yaml", "apiVersion: airlift/v1\nkind: NodeEndpoint\nbalancer: 127.0.0.1:7443\nvips: [192.0.2.100]\ncontrolPlanes: ['10.77.0.11:6443']\ncertificatesDir: /etc/kubernetes/pki\nother: hunter2hunter2\n")
	write(t, root, "var/lib/airlift/endpoint/control-planes", "10.77.0.11:6443\n10.77.0.12:6443\n")
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	d := &Doctor{Host: h}
	texts := map[string]string{}
	for _, s := range d.configuration() {
		texts[s.name] = string(readOne(t.Context(), s))
	}
	if got, want := texts["airlift/endpoint.yaml"], "apiVersion: airlift/v1\nbalancer: 127.0.0.1:7443\ncertificatesDir: /etc/kubernetes/pki\ncontrolPlanes:\n- 10.77.0.11:6443\nkind: NodeEndpoint\nother: '[redacted]'\nvips:\n- 192.0.2.100\n"; got != want {
		t.Errorf("%s", got)
	}
	if got := texts["airlift/control-planes.txt"]; got != "10.77.0.11:6443\n10.77.0.12:6443\n" {
		t.Errorf("%s", got)
	}
	s := &status.Status{Endpoint: &status.Endpoint{VIP: &vip.Status{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.100")}, Interface: "eth0", MAC: "02:00:00:00:00:01",
		Holders: []vip.Holder{{Name: "cp2", Address: "10.77.0.12", MAC: "02:00:00:00:00:02"}}, Reason: "etcd's leader is cp2"},
		Balancer: &balancer.Status{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7443")}, Source: balancer.FromCluster, Backends: []balancer.BackendStatus{{State: balancer.Down, Error: "checking /readyz: 500"}}}}}
	data, err := indented(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(redact.As[status.Status]()(data)); strings.Contains(got, redact.Marker) || !strings.Contains(got, `"02:00:00:00:00:02"`) {
		t.Errorf("%s", got)
	}
	write(t, root, "etc/kubernetes/endpoint.yaml", "apiVersion: airlift/v1\nkind: NodeEndpoint\nvips: [192.0.2.100]\ncertificatesDir: /etc/kubernetes/pki\n")
	if got := d.nodeConfig(&status.Status{}).Endpoint; got.Balancer || strings.Join(got.VIPs, " ") != "192.0.2.100" {
		t.Errorf("%+v", got)
	}
}

// TestFirstSuspicion: the cause comes before what follows from it.
func TestFirstSuspicion(t *testing.T) {
	api := status.Problem{Part: "api", Message: "the API server at https://10.0.0.1:6443 does not answer: refused"}
	apiDown := unhealthy("kube-apiserver", "static-pod", "exited", "it exited with code 1; the last line of its log: Error: unknown flag: --no-such-flag")
	scheduler := unhealthy("kube-scheduler", "static-pod", "exited", "it exited with code 1; the last line of its log: leaderelection lost")
	for name, c := range map[string]struct {
		e    examined
		want string
		saw  string
	}{
		"nothing":   {e: examined{status: &status.Status{}}},
		"disk":      {e: examined{status: &status.Status{Components: []status.Component{apiDown}}, disks: []disk{{mount: "/var/lib/etcd", free: 1, total: 1000}}}, want: "disk-full"},
		"inodes":    {e: examined{status: &status.Status{}, disks: []disk{{mount: "/", free: 100, total: 1000, inodes: 1000, inodesFree: 1}}}, want: "no-inodes"},
		"read-only": {e: examined{status: &status.Status{}, disks: []disk{{mount: "/", free: 100, total: 1000, readOnly: true}}}, want: "read-only"},
		"API server": {e: examined{status: &status.Status{Problems: []status.Problem{api}, Components: []status.Component{scheduler, apiDown}}},
			want: "component-kube-apiserver", saw: "unknown flag: --no-such-flag"},
		"containerd": {e: examined{status: &status.Status{Problems: []status.Problem{api}, Components: []status.Component{
			unhealthy("kubelet", "unit", "running", "it does not answer"), unhealthy("containerd", "unit", "dead", "its unit is inactive (dead)"), unhealthy("etcd", "static-pod", "unknown", "the container runtime does not run")}}},
			want: "component-containerd"},
		"kubelet": {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "api", Name: status.NodeNotReady, Message: "the node is not Ready: Kubelet stopped posting node status."}}, Components: []status.Component{
			unhealthy("kubelet", "unit", "failed", "its unit is failed")}}, logs: map[string][]string{"kubelet": {"E1 running with swap on is not supported"}}}, want: "component-kubelet", saw: "swap on is not supported"},
		"another node": {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "api", Name: status.OtherNodeNotReady, Message: "the node w1 is not Ready: x"}, {Part: "addOns", Message: "coredns has 0 of 2 pods ready"}}}},
			want: "other-node-not-ready", saw: "w1"},
		"certificate": {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "certificates", Message: "the certificate apiserver has expired"}}, Components: []status.Component{apiDown}}}, want: "certificate"},
		"clock": {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "certificates", Message: "the certificate apiserver has expired"}}},
			clock: clocks{later: "/var/lib/airlift/ledger.json was written", laterAt: time.Now().Add(time.Hour)}}, want: "clock-behind"},
		"clock of the API": {e: examined{status: &status.Status{}, clock: clocks{api: -time.Hour}}, want: "clock-differs", saw: "1h0m0s behind"},
		"clock of a node":  {e: examined{status: &status.Status{}, clock: clocks{nodes: map[string]time.Duration{"host2": time.Hour}}}, want: "node-clock-differs", saw: "host2"},
		"firewall": {e: examined{status: &status.Status{Problems: []status.Problem{api}}, checks: preflight.Report{Warnings: []preflight.Problem{
			{Name: "Firewall", Message: "this host's firewall drops traffic that this node needs: TCP 6443"}}}}, want: "firewall"},
		"swap":     {e: examined{status: &status.Status{}, checks: preflight.Report{Errors: []preflight.Problem{{Name: "Swap", Message: "swap is on"}}}}, want: "preflight-Swap"},
		"images":   {e: examined{status: &status.Status{Images: &status.Images{Missing: []string{"pause"}}, Problems: []status.Problem{{Part: "images", Message: "x"}, {Part: "addOns", Message: "coredns has 0"}}}}, want: "images-missing"},
		"drivers":  {e: examined{status: &status.Status{}, node: nodeFacts{kubeletDriver: "systemd", runtimeDriver: "cgroupfs", runtimeMajor: 1}}, want: "cgroup-driver"},
		"leftover": {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "node", Message: "not a node"}}}, node: nodeFacts{leftovers: []string{"KUBE-SERVICES"}}}, want: "leftover-rules"},
		"DNS":      {e: examined{status: &status.Status{Problems: []status.Problem{{Part: "addOns", Message: "coredns has 0 of 2 pods ready"}}}}, want: "add-on"},
		"endpoint's service": {e: examined{status: &status.Status{Problems: []status.Problem{api}, Components: []status.Component{unhealthy("airlift-endpoint", "unit", "auto-restart", "its unit is activating (auto-restart)")}},
			logs: map[string][]string{"airlift-endpoint": {"error: listening on 127.0.0.1:7443: another process uses this port"}}}, want: "component-airlift-endpoint", saw: "another process uses this port"},
		"another holder": {e: examined{status: &status.Status{Problems: []status.Problem{api}}, taken: []vip.Conflict{{Address: netip.MustParseAddr("10.0.0.100"), MAC: "02:00:00:00:00:09"}}},
			want: status.EndpointConflict, saw: "another host, with the hardware address 02:00:00:00:00:09, has the virtual address 10.0.0.100"},
		"no API server of the balancer": {e: endpointProblem(api, status.EndpointNoAPI), want: status.EndpointNoAPI},
		"endpoint's settings":           {e: endpointProblem(api, ""), want: "endpoint"},
		"subnet":                        {e: withChecks(endpointProblem(api, status.EndpointInterface), preflight.Problem{Name: "ControlPlaneVIP", Message: "no interface"}), want: "preflight-ControlPlaneVIP"},
		"a GPU":                         {e: examined{status: &status.Status{Warnings: []status.Problem{{Part: "components", Name: status.GPU, Message: "no driver", Fix: "modprobe nvidia"}}}}, want: status.GPU},
		"a runtime class":               {e: examined{status: &status.Status{Warnings: []status.Problem{{Part: "api", Name: status.RuntimeClass, Message: "no node has it", Fix: "x"}}}}, want: status.RuntimeClass},
		"a run":                         {e: examined{status: &status.Status{Warnings: []status.Problem{{Part: "lastRun", Message: "init failed"}}}}, want: "last-run"},
	} {
		list := suspect(c.e)
		switch {
		case c.want == "" && len(list) > 0:
			t.Errorf("%s: %+v", name, list)
		case c.want == "":
		case len(list) == 0 || list[0].Name != c.want:
			t.Errorf("%s: want %s, got %+v", name, c.want, list)
		case !strings.Contains(list[0].Saw, c.saw):
			t.Errorf("%s: %q is not in %q", name, c.saw, list[0].Saw)
		}
		for _, s := range list {
			if s.Saw == "" || s.Why == "" || s.Name == "" {
				t.Errorf("%s: not complete: %+v", name, s)
			}
		}
	}
}
