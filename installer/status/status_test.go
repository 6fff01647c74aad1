package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/images/store"
	"airlift/installer/cluster/apply"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/staticpod"
)

func code(n int) *int { return &n }

// healthy is the status of a control plane on which nothing is wrong.
func healthy() *Status {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { t := now.Add(-d); return &t }
	return &Status{
		Healthy: true, now: now, Unknown: map[string]string{},
		Node: Node{
			Name: "host1", Role: node.ControlPlane, Version: "v1.37.1", Ready: true, Addresses: []string{"10.77.0.11"},
			OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0", Architecture: "amd64", UptimeSeconds: 90061,
		},
		Components: []Component{
			{Name: "containerd", Kind: unit, Version: "2.4.2", State: "running", Since: ago(25 * time.Hour), Healthy: true},
			{Name: "etcd", Kind: staticPod, Version: "3.7.0-0", State: "running", Since: ago(24 * time.Hour), Restarts: 1, Healthy: true},
		},
		Versions: Versions{File: FileVersion{"v1.37.1", "dev"}, Host: HostVersions{Kubelet: "v1.37.1"}, API: "v1.37.1", Cluster: []NodeVersion{{"host1", "v1.37.1"}}},
		Certificates: []Certificate{
			{Name: "super-admin.conf", Missing: true},
			{Name: "apiserver", Seconds: 364 * 86400}, {Name: "admin.conf", Seconds: 364 * 86400}, {Name: "ca", Seconds: 3649 * 86400},
		},
		Etcd:       &Etcd{Members: []EtcdMember{{Name: "host1", Healthy: true, Leader: true, Bytes: 5 << 20}}},
		Endpoint:   endpointState(),
		Images:     &Images{Imported: 8, Bytes: 312 << 20},
		AddOns:     []AddOn{{Name: "coredns", Version: "v1.14.6", Ready: 2, Wanted: 2}, {Name: "kube-proxy", Version: "v1.37.1", Ready: 2, Wanted: 2}},
		LastRun:    &Run{Command: "init", Began: now.Add(-72 * time.Hour), Seconds: 43.2, ExitCode: code(0)},
		LastBackup: &Backup{Path: "/var/backups/etcd/1.tar", Time: now.Add(-3 * time.Hour), Size: 5 << 20},
	}
}

func TestText(t *testing.T) {
	var out strings.Builder
	healthy().Write(&out, 80)
	want := `node host1: control-plane, v1.37.1, Ready
addresses     10.77.0.11
system        Debian GNU/Linux 12 (bookworm), kernel 6.1.0, amd64, up 25h

COMPONENT    VERSION   STATE     FOR   RESTARTS   HEALTHY
containerd   2.4.2     running   25h   0          yes
etcd         3.7.0-0   running   24h   1          yes

versions      this file v1.37.1, this host v1.37.1, API server v1.37.1
certificates  apiserver expires in 364d, admin.conf expires in 364d, 1 more
              later
etcd          1 of 1 members healthy, database 5.2 MB
endpoint      10.77.0.100 on cp2 (10.77.0.12) for 3h; balancer 127.0.0.1:7443 to
              10.77.0.11:6443 ready, 10.77.0.12:6443 ready, 10.77.0.13:6443
              ready
images        8 imported by Airlift, 327.2 MB, none of this file missing
add-ons       coredns v1.14.6 2/2, kube-proxy v1.37.1 2/2
drift         none
last backup   3h ago, /var/backups/etcd/1.tar, 5.2 MB
last run      init, 3d ago, succeeded after 43s
manifests     none

Nothing is wrong.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestTextOfProblems(t *testing.T) {
	s := healthy()
	s.Healthy, s.Node.Ready, s.Node.Reason = false, false, "unknown: the API server at https://10.77.0.11:6443 does not answer"
	s.Etcd, s.LastBackup, s.LastRun.ExitCode = nil, nil, code(130)
	s.Unknown["etcd"] = "connecting to etcd: no member answers"
	s.Manifests = []Manifest{{Name: "app", State: stateDifferent, Objects: []apply.State{{Object: "Service web/a", Ready: true}, {Object: "Deployment.apps web/b"}}}}
	s.Problems = []Problem{{Part: "components", Message: "kube-apiserver is not healthy: it exited with code 1; the last line of its log: unknown flag: --no-such-flag", Fix: "see its log below /var/log/pods"}}
	for width, want := range map[int][]string{
		80: {
			"node host1: control-plane, v1.37.1, Ready is unknown: the API server at\n  https://10.77.0.11:6443 does not answer\n",
			"etcd          unknown: connecting to etcd: no member answers\n",
			"last backup   none\n", "failed after 43s with exit code 130",
			"app        -       different   1/2     -\n",
			"Wrong:\n  - kube-apiserver is not healthy: it exited with code 1; the last line of its\n    log: unknown flag: --no-such-flag\n    fix: see its log below /var/log/pods\n",
		},
		0: {"  - kube-apiserver is not healthy: it exited with code 1; the last line of its log: unknown flag: --no-such-flag\n"},
	} {
		var out strings.Builder
		s.Write(&out, width)
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("width %d: %q is not in:\n%s", width, w, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if width > 0 && len([]rune(line)) > width+1 {
				t.Errorf("longer than %d: %s", width, line)
			}
		}
		if strings.Contains(out.String(), "Nothing is wrong") {
			t.Errorf("width %d: something is wrong", width)
		}
	}
}

// TestFields: scripts use these fields, so they stay.
func TestFields(t *testing.T) {
	data, err := json.Marshal(healthy())
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range document {
		if !strings.Contains(string(page), "| `"+field+"` |") {
			t.Errorf("docs/status.md does not have the field %s", field)
		}
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		if inner, ok := value.(map[string]any); ok {
			for name := range inner {
				if !strings.Contains(string(page), "`"+name+"`") {
					t.Errorf("docs/status.md does not have the field %s of %s", name, field)
				}
			}
		}
	}
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, root string) *Status {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := (&Reader{Host: h}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hasProblem(s *Status, part, message string) bool {
	for _, p := range s.Problems {
		if p.Part == part && strings.Contains(p.Message, message) {
			return true
		}
	}
	return false
}

func TestHostThatIsNoNode(t *testing.T) {
	s := read(t, t.TempDir())
	if s.Healthy || len(s.Problems) != 1 || !hasProblem(s, "node", "not a node") || s.Node.Role != node.NoNode || s.Node.Kernel == "" {
		t.Errorf("%+v", s)
	}
	var out strings.Builder
	s.Write(&out, 80)
	if !strings.Contains(out.String(), "not a node of a cluster") || !strings.Contains(out.String(), "./install init") {
		t.Error(out.String())
	}
}

// TestBrokenControlPlane: nothing answers, or it never answers; each part has its reason, and
// none takes long.
func TestBrokenControlPlane(t *testing.T) {
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer hanging.Close()
	defer close(hang)
	root := t.TempDir()
	write(t, root, map[string]string{
		"etc/kubernetes/manifests/kube-apiserver.yaml": `spec: {containers: [{image: "registry.k8s.io/kube-apiserver:v1.37.1", livenessProbe: {httpGet: {port: 1, path: /livez}}}]}`,
		"etc/kubernetes/manifests/kube-scheduler.yaml": `spec: [`,
		"etc/kubernetes/admin.conf":                    `{clusters: [{name: c, cluster: {server: "` + hanging.URL + `"}}], users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`,
		"var/lib/airlift/runs.json":                    `[{"command": "init", "began": "2026-11-23T12:00:00Z"}]`,
		"var/lib/kubelet/config.yaml":                  "healthzPort: 1\n",
	})
	s := read(t, root)
	if s.Healthy || s.Node.Role != node.ControlPlane || s.Node.Ready || !strings.HasPrefix(s.Node.Reason, "unknown: ") {
		t.Errorf("%+v", s.Node)
	}
	for part, message := range map[string]string{"components": "kube-scheduler is not healthy: reading ", "api": "does not answer", "images": "does not exist"} {
		if !hasProblem(s, part, message) {
			t.Errorf("%s has no problem %q: %+v", part, message, s.Problems)
		}
	}
	if s.Unknown["addOns"] == "" || s.Unknown["manifests"] == "" {
		t.Errorf("unknown: %v", s.Unknown)
	}
	if n := strings.Count(strings.Join(messages(s), "\n"), "API server at"); n != 1 {
		t.Errorf("the API server is in %d problems: %v", n, messages(s))
	}
	if s.LastRun == nil || s.LastRun.Ended() || len(s.Warnings) != 1 {
		t.Errorf("last run %+v, warnings %+v", s.LastRun, s.Warnings)
	}
}

// TestContainersOfStaticPods: the user's own static pods may have any name and namespace.
func TestContainersOfStaticPods(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"lb.yaml":             `{metadata: {name: haproxy}, spec: {containers: [{name: proxy, image: "haproxy:3"}]}}`,
		"kube-scheduler.yaml": `{metadata: {name: kube-scheduler, namespace: kube-system}, spec: {containers: [{name: kube-scheduler}]}}`,
		"kube-proxy.yaml":     `spec: [`,
	})
	pods, err := staticpod.All(dir)
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d, %v", len(pods), err)
	}
	for _, c := range []struct {
		container store.Container
		want      string // the static pod's file; "" for none
	}{
		{store.Container{Namespace: "default", Pod: "haproxy-host1", Name: "proxy"}, "lb"},
		{store.Container{Namespace: "kube-system", Pod: "haproxy-host1", Name: "proxy"}, ""},
		{store.Container{Namespace: "default", Pod: "haproxy-host1", Name: "sidecar"}, ""},
		{store.Container{Namespace: "kube-system", Pod: "kube-scheduler-host1", Name: "kube-scheduler"}, "kube-scheduler"},
		{store.Container{Namespace: "kube-system", Pod: "kube-proxy-host1", Name: "kube-proxy"}, "kube-proxy"},
		{store.Container{Namespace: "default", Pod: "kube-proxy-host1", Name: "kube-proxy"}, ""},
	} {
		got := ""
		for _, p := range pods {
			if runs(p, c.container) {
				got += p.Name
			}
		}
		if got != c.want {
			t.Errorf("%+v is of %q, want %q", c.container, got, c.want)
		}
	}
}

func TestEtcdQuota(t *testing.T) {
	for flag, want := range map[string]int64{"": 2 << 30, "0": 2 << 30, "8589934592": 8 << 30} {
		if got := quota(map[string]string{"quota-backend-bytes": flag}); got != want {
			t.Errorf("%q: %d, want %d", flag, got, want)
		}
	}
}

func messages(s *Status) (list []string) {
	for _, p := range s.Problems {
		list = append(list, p.Message)
	}
	return list
}

// TestBackupElsewhere: what a status has about a target is about the timer if there is one, and a command that no timer repeats is not reported to
// be repeated.
func TestBackupElsewhere(t *testing.T) {
	const (
		timer   = "etc/systemd/system/airlift-backup.timer"
		record  = "var/lib/airlift/backup.json"
		list    = "var/lib/airlift/backup-list.json"
		waiting = "var/lib/airlift-backups/waiting/"
	)
	unit := func(place string) string {
		return "[Unit]\nX-Airlift-Settings=etcd snapshot " + place + " --every 6h0m0s --keep 8 --time-zone UTC\n"
	}
	ago := func(hours int) string {
		return time.Now().Add(-time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
	}
	last := func(place string, hours int, more string) string {
		return fmt.Sprintf(`{"time": %q, "path": %q, "target": %q, "size": 5, "snapshot": {"hash": 1}%s}`, ago(hours), place, place, more)
	}
	copies := func(hours int) string {
		return fmt.Sprintf(`{"copies": [{"target": "s3://a", "name": "one", "stored": %q}, {"target": "s3://a", "name": "two"}, {"target": "s3://old", "name": "three"}]}`, ago(hours))
	}
	const failure = `, "error": "connection refused"`
	// by is a backup by a command, after a run of a timer.
	by := func(hours int, more, timer string) string {
		return fmt.Sprintf(`{"time": %q, "path": "/x.tar", "size": 5, "snapshot": {"hash": 1}%s, "timer": {%s}}`, ago(hours), more, timer)
	}
	saved := func(hours int) string { return fmt.Sprintf(`"saved": %q`, ago(hours)) }
	for name, c := range map[string]struct {
		files             map[string]string
		problem, fix      string // "" for none
		left              bool
		waiting, stranded int
	}{
		"a single one that failed": {map[string]string{record: last("s3://b", 1, failure)}, "the last backup was not sent to s3://b: connection refused", "run the same command again; no timer does", false, 0, 0},
		"a single one that failed, and a timer": {map[string]string{timer: unit("s3://a"), list: copies(3), record: last("s3://b", 1, failure)},
			"the last backup was not sent to s3://b: connection refused", "run the same command again; no timer does", true, 0, 0},
		"the timer failed": {map[string]string{timer: unit("s3://a"), list: copies(3), waiting + "two": "x", record: last("s3://a", 1, failure)},
			"the last backup that left this host is of " + ago(3) + ", and 1 wait on it: connection refused", "the timer tries again", true, 1, 0},
		"the timer was removed":                 {map[string]string{list: copies(3), waiting + "two": "x", waiting + "three": "x", record: last("s3://a", 3, "")}, "", "", true, 0, 2},
		"another target":                        {map[string]string{timer: unit("s3://a"), list: copies(3), waiting + "two": "x", waiting + "three": "x", record: last("s3://a", 3, "")}, "", "", true, 1, 1},
		"overdue":                               {map[string]string{timer: unit("s3://a"), list: copies(15), record: last("s3://a", 15, "")}, "the timer writes a backup to s3://a every 6h0m0s, and the last one is of " + ago(15), "systemctl status", true, 0, 0},
		"not overdue":                           {map[string]string{timer: unit("s3://a"), list: copies(13), record: last("s3://a", 13, "")}, "", "", true, 0, 0},
		"a file meanwhile":                      {map[string]string{timer: unit("s3://a"), list: copies(15), record: fmt.Sprintf(`{"time": %q, "path": "/x.tar", "size": 5, "snapshot": {"hash": 1}}`, ago(1)), "x.tar": "x"}, "the timer writes a backup to s3://a", "systemctl status", true, 0, 0},
		"a file, the timer stopped":             {map[string]string{timer: unit("/mnt"), record: by(1, "", saved(15)), "x.tar": "x"}, "the timer writes a backup to /mnt every 6h0m0s, and the last one is of " + ago(15), "systemctl status", false, 0, 0},
		"a file, the timer runs":                {map[string]string{timer: unit("/mnt"), record: by(1, "", saved(13)), "x.tar": "x"}, "", "", false, 0, 0},
		"a file that failed, the timer stopped": {map[string]string{timer: unit("/mnt"), record: by(1, failure, saved(15))}, "the timer writes a backup to /mnt every 6h0m0s, and the last one is of " + ago(15), "", false, 0, 0},
		"a file, the timer failed":              {map[string]string{timer: unit("/mnt"), record: by(1, "", `"error": "read-only", `+saved(3)), "x.tar": "x"}, "the timer's last backup to /mnt failed: read-only", "systemctl restart", false, 0, 0},
		"once to the target, the timer stopped": {map[string]string{timer: unit("s3://a"), list: copies(1), record: last("s3://a", 1, `, "timer": {`+saved(15)+`}`)}, "the timer writes a backup to s3://a every 6h0m0s, and the last one is of " + ago(15), "systemctl status", true, 0, 0},
		"a file, the timer was removed":         {map[string]string{record: by(1, "", `"error": "read-only", `+saved(99)), "x.tar": "x"}, "", "", false, 0, 0},
		"a directory, overdue":                  {map[string]string{timer: unit("/mnt/a b"), record: fmt.Sprintf(`{"time": %q, "path": "/x.tar", "size": 5, "snapshot": {"hash": 1}}`, ago(15)), "x.tar": "x"}, "the timer writes a backup to /mnt/a b every", "systemctl status", false, 0, 0},
	} {
		root := t.TempDir()
		write(t, root, c.files)
		s := read(t, root)
		if c.problem == "" && hasProblem(s, "lastBackup", "") || c.problem != "" && !hasProblem(s, "lastBackup", c.problem) {
			t.Errorf("%s: %+v, want %q", name, s.Problems, c.problem)
		}
		for _, p := range s.Problems {
			if strings.Contains(p.Message, c.problem) && c.problem != "" && !strings.Contains(p.Fix, c.fix) {
				t.Errorf("%s: %+v, want %q", name, p, c.fix)
			}
		}
		if d := s.LastBackup.Departure; d == nil && (c.left || c.waiting+c.stranded > 0) || d != nil && ((d.Left != nil) != c.left || d.Waiting != c.waiting || d.Stranded != c.stranded) {
			t.Errorf("%s: %+v", name, d)
		}
		if warned := len(s.Warnings) == 1; warned != (c.stranded > 0) {
			t.Errorf("%s: %+v", name, s.Warnings)
		}
	}
}

func TestLastBackup(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"var/backups/1.tar":           "x",
		"var/lib/airlift/backup.json": `{"time": "2026-11-23T12:00:00Z", "path": "/var/backups/1.tar", "size": 5, "snapshot": {"hash": 1}}`,
	})
	if s := read(t, root); s.LastBackup == nil || s.LastBackup.Size != 5 || s.LastBackup.Path != "/var/backups/1.tar" || len(s.Warnings) != 0 || hasProblem(s, "lastBackup", "") {
		t.Errorf("%+v, %+v", s.LastBackup, s.Warnings)
	}
	if err := os.Remove(filepath.Join(root, "var/backups/1.tar")); err != nil {
		t.Fatal(err)
	}
	if s := read(t, root); len(s.Warnings) != 1 {
		t.Errorf("%+v", s.Warnings)
	}
	write(t, root, map[string]string{"var/lib/airlift/backup.json": `{"time": "2026-11-23T12:00:00Z", "path": "/var/backups/1.tar", "error": "no space left on device"}`})
	if s := read(t, root); !hasProblem(s, "lastBackup", "no space left on device") || !strings.HasSuffix(s.backup(), "failed") {
		t.Errorf("%+v", s.Problems)
	}
}

func TestManifests(t *testing.T) {
	list := manifests([]apply.Manifest{{Name: "a", SHA256: "1"}, {Name: "b", SHA256: "1"}, {Name: "c", SHA256: "1"}, {Name: "d", SHA256: "1"}}, map[string]apply.Entry{
		"a": {SHA256: "1", Applied: "now"}, "b": {SHA256: "2", Applied: "now"}, "c": {SHA256: "1"}, "e": {SHA256: "1", Applied: "now", Chart: "x 1"},
	})
	var states []string
	for _, m := range list {
		states = append(states, m.Name+" "+m.State)
	}
	if got, want := strings.Join(states, ", "), "a applied, b different, c incomplete, d not applied, e not in this bundle"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
