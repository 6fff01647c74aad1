package clustercmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	checks "airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/revision"
	"airlift/installer/status"
	"airlift/internal/fault"
	"airlift/internal/progress"
	"airlift/scripts/fixtures/modelsite"
	"airlift/scripts/fixtures/testbundle"
)

const description = `apiVersion: airlift/v1
kind: Cluster
name: site
hosts:
- {name: cp1, role: control-plane, address: 10.0.0.10}
- {name: cp2, role: control-plane, address: 10.0.0.11}
- {name: cp3, role: control-plane, address: 10.0.0.12}
- {name: w1, role: worker, address: 10.0.0.13, labels: {zone: a}}
- {name: w2, role: worker, address: 10.0.0.14}
endpoint: {vip: 10.0.0.9}
`

// modelDialer connects to a model.
type modelDialer struct{ *modelsite.World }

func (modelDialer) Close() error { return nil }

// A console runs commands on a model of a site.
type console struct {
	t    *testing.T
	w    *modelsite.World
	dir  string
	file string // the bundle
	all  strings.Builder
	ctx  context.Context
	// version is that of the bundle.
	version string
	given   *output.Given       // nil: printed commands do not keep the flags
	dialed  func(*live.Display) // before connections
	// printed is called with what a command prints; it may be nil.
	printed func(text string)
}

// A listener calls a function with what is written.
type listener func(text string)

func (l listener) Write(p []byte) (int, error) {
	if l != nil {
		l(string(p))
	}
	return len(p), nil
}

func newConsole(t *testing.T) *console {
	t.Helper()
	c := &console{t: t, dir: t.TempDir(), ctx: t.Context()}
	t.Setenv("XDG_STATE_HOME", c.path("state"))
	c.bundle("v1.37.1")
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	c.clear()
	return c
}

// bundle writes the file of a version.
func (c *console) bundle(version string) {
	c.t.Helper()
	t := c.t
	images := testbundle.NewImages(bundle.OnlyImages)
	images.Manifest.Platform, images.Manifest.KubernetesVersion = "linux/amd64", version
	noise := make([]byte, 1<<20) // a thin file is smaller than one that compresses badly
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "f", string(noise)))
	c.file, c.version = filepath.Join(c.dir, "install-"+version), version
	testbundle.WriteFile(t, c.file, bundle.Executables{Launcher: []byte("launcher"), Installer: []byte("installer")}, &images.Manifest, bundle.Fastest, images.Content)
}

// clear begins with bare hosts.
func (c *console) clear() {
	c.t.Helper()
	described, err := spec.Read(c.path("cluster.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.w = modelsite.New(described)
	c.use()
}

// use lets the model have the bundle.
func (c *console) use() {
	c.t.Helper()
	b, err := bundle.Open(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer b.Close()
	c.w.File.ID, c.w.File.Version = b.ID(), c.version
}

func (c *console) path(name string) string { return filepath.Join(c.dir, name) }

// run runs a command with an answer, and returns what it printed, its error included.
func (c *console) run(answer string, args ...string) (out string, code fault.Code) {
	c.t.Helper()
	return c.answered(strings.NewReader(answer), args...)
}

// answered is run with answers from a reader.
func (c *console) answered(answers io.Reader, args ...string) (out string, code fault.Code) {
	c.t.Helper()
	cmd := newCommand(&site{
		open: func() (*bundle.File, error) { return bundle.Open(c.file) },
		dial: func(d *live.Display) dialer {
			if c.dialed != nil {
				c.dialed(d)
			}
			return modelDialer{c.w}
		},
	})
	output.Complete(cmd)
	var b bytes.Buffer
	text := output.Text{Name: output.Name{Here: output.Written, There: output.Written}, Given: c.given, Out: io.MultiWriter(&b, listener(c.printed))}
	cmd.SetOut(text)
	cmd.SetErr(text)
	cmd.SetIn(answers)
	if args[0] != "example" && args[0] != "convert" {
		args = append([]string{"--file", c.path("cluster.yaml")}, args...)
	}
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(c.ctx)
	fault.Print(text, err)
	c.all.WriteString(b.String())
	if code := fault.ExitCode(err); strings.Contains(b.String(), "matches the file. ") && (err != nil || strings.Contains("\n"+b.String(), "\nerror: ")) {
		c.t.Errorf("%q: exit code %d, and the cluster matches the file:\n%s", args, code, b.String())
	}
	return b.String(), fault.ExitCode(err)
}

// want runs a command, and fails unless it ends with a code and prints texts.
func (c *console) want(code fault.Code, texts []string, answer string, args ...string) string {
	c.t.Helper()
	out, is := c.run(answer, args...)
	if is != code {
		c.t.Fatalf("%q: exit code %d, want %d\n%s", args, is, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			c.t.Errorf("%q: no %q in\n%s", args, text, out)
		}
	}
	return out
}

// TestCommands is the life of a site. At the end, no secret was in any output or argument.
func TestCommands(t *testing.T) {
	c := newConsole(t)
	c.want(0, []string{"kind: Cluster"}, "", "example")
	c.want(2, []string{"--skip has no effect", "hint: ./install cluster example > cluster.yaml"}, "", "example", "--skip", "w1")
	c.want(0, []string{`"title": "cluster.yaml of Airlift`}, "", "example", "--schema")
	c.want(2, []string{"--file is required", "hint: ./install cluster convert -f k0sctl.yaml"}, "", "convert")
	c.want(2, []string{"is a cluster.yaml already"}, "", "convert", "-f", c.path("cluster.yaml"))
	c.want(0, []string{"is not a node yet", "To do it: ./install cluster apply"}, "", "plan")
	c.want(fault.Work, []string{"init", "is not a node yet", "To do it: ./install cluster apply"}, "", "plan", "--detailed-exitcode")
	for name, m := range c.w.Hosts {
		if len(m.Files) > 0 {
			t.Errorf("plan left %v on %s", m.Files, name)
		}
	}
	c.want(0, []string{"All preflight checks passed."}, "", "preflight")
	c.want(1, []string{"not confirmed: nothing was changed"}, "n\n", "apply")
	c.want(2, []string{"needs confirmation", "hint: answer with y, or run it with --yes"}, "", "apply")
	c.want(0, []string{"Do this? [y/N]", "The cluster matches the file."}, "y\n", "apply")
	c.want(0, []string{"nothing to do"}, "", "plan", "--detailed-exitcode")
	c.want(0, []string{"nothing to do"}, "", "apply")
	c.want(0, []string{"cp1", "Ready", "v1.37.1"}, "", "status")
	c.want(0, []string{`"healthy": true`}, "", "status", "-o", "json")
	for _, name := range []string{"cp1", "w1"} {
		c.w.Hosts[name].Status = `{"warnings":[{"part":"drift","message":"/a was edited by hand","fix":"./install reconfigure --restore"},{"part":"images","message":"other"}],"drift":[{"name":"/a","cause":"edited","diff":"+b"}]}`
	}
	c.w.Hosts["w2"].Status = `{"unknown":{"drift":"the API server does not answer"}}`
	c.want(0, []string{"nothing to do", "Notes:\n  - cp1, w1: /a was edited by hand; ./install reconfigure --restore\n  - w2: it is not known what was edited by hand: the API server does not answer\n"}, "", "plan", "--detailed-exitcode")
	if out := c.want(0, []string{"\ncp1, w1: drift: /a was edited by hand\n    hint: ./install reconfigure --restore\n", "2 warnings"}, "", "status"); strings.Contains(out, "other") {
		t.Error(out)
	}
	c.want(0, []string{`"diff": "+b"`, `"cause": "edited"`}, "", "status", "-o", "json")
	for _, h := range c.w.Hosts {
		h.Status = ""
	}
	c.want(0, []string{"registry.k8s.io/pause:3.10", "5 of 5", "3 of 5", "w1, w2"}, "", "images", "list")
	c.want(0, []string{`"cp2"`}, "", "certs", "check-expiration", "-o", "json")
	c.want(0, []string{"cp3: certs renew"}, "", "certs", "renew", "--yes")
	c.want(0, nil, "", "images", "import")
	c.secrets()
	c.want(1, []string{"not confirmed"}, "other\n", "reset")
	c.want(2, []string{"must be given together"}, "", "reset", "--force")
	c.want(0, nil, "site\n", "reset")
	for name, m := range c.w.Hosts {
		if m.Version != "" || len(m.Files) > 0 {
			t.Errorf("reset left %s: %+v", name, m)
		}
	}
	// Pain 39.
	_, logs := c.logs()
	for _, secret := range []string{modelsite.Token, modelsite.CertificateKey, modelsite.Kubeconfig} {
		if strings.Contains(c.all.String()+logs, secret) || slices.ContainsFunc(c.w.Seen, func(args string) bool { return strings.Contains(args, secret) }) {
			t.Errorf("%q was printed, or was an argument", secret)
		}
	}
}

// secrets fetches what is a secret, to files.
func (c *console) secrets() {
	c.t.Helper()
	c.want(0, []string{"is the kubeconfig of an administrator", "kubectl --kubeconfig " + c.path("admin.conf")}, "", "kubeconfig", c.path("admin.conf"))
	c.want(0, []string{"It has all secrets of the cluster"}, "", "backup", c.path("site.tar"))
	c.want(0, []string{"/mnt/site.tar"}, "", "backup", "--on-host", "/mnt/site.tar")
	for _, name := range []string{"admin.conf", "site.tar"} {
		info, err := os.Stat(c.path(name))
		data, _ := os.ReadFile(c.path(name))
		if err != nil || info.Mode().Perm() != 0o600 || string(data) != modelsite.Kubeconfig {
			c.t.Errorf("%s: %v, %q", name, err, data)
		}
	}
}

// The kubeconfig is printed, or merged into the file of kubectl, with a server that this machine reaches.
func TestKubeconfig(t *testing.T) {
	c := newConsole(t)
	file := c.path("kubeconfig")
	t.Setenv("KUBECONFIG", file)
	c.want(0, []string{"\nTo use kubectl on this machine: ./install cluster kubeconfig --merge\n"}, "", "apply", "--yes")
	for _, args := range [][]string{{"kubeconfig"}, {"kubeconfig", "-"}} {
		c.want(0, []string{modelsite.Kubeconfig}, "", args...)
	}
	c.want(0, []string{"The context site is now in " + file, "To use it: kubectl --context site get nodes\n"}, "", "kubeconfig", "--merge")
	before, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(before), "server: https://10.0.0.10:6443") || !strings.Contains(string(before), "current-context: site\n") {
		t.Errorf("%s, %v", before, err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir()) // a machine without kubectl
	c.want(0, []string{"The context site already is in " + file, "scp -P 22 root@10.0.0.10:/usr/local/bin/kubectl .\n"}, "", "kubeconfig", "--merge")
	t.Setenv("PATH", path)
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Errorf("%s\nwant\n%s", after, before)
	}
	c.w.Endpoint = "127.0.0.1:7443" // the balancer of each node
	c.w.Hosts["cp1"].Off = errors.New("no route to host")
	c.want(0, []string{"warning: cp1: no route to host\n", "warning: the endpoint of the cluster is 127.0.0.1:7443", "--server https://10.0.0.9:6443\n"}, "", "kubeconfig", "--merge", "--context", "other")
	if data, _ := os.ReadFile(file); !strings.Contains(string(data), "server: https://10.0.0.9:6443\n  name: other\n") {
		t.Errorf("%s", data)
	}
	c.want(2, []string{"cannot be given together"}, "", "kubeconfig", "--merge", file)
	c.want(2, []string{"--context has no effect without --merge"}, "", "kubeconfig", "--context", "x")
	for _, m := range c.w.Hosts {
		m.Off = &remote.Error{Class: remote.Unreachable, Host: m.Name, Address: "10.0.0.1:22", Err: errors.New("no route to host")}
	}
	c.want(1, []string{"error: hosts do not answer:\n  cp1 (10.0.0.1:22): no route to host\n  cp2 (", "\nno control plane has an API server that answers\n"}, "", "kubeconfig")
}

// A saved plan is done as it is, or not at all.
func TestSavedPlan(t *testing.T) {
	c := newConsole(t)
	c.want(fault.Work, nil, "", "plan", "--detailed-exitcode", "--out", c.path("site.plan"))
	c.w.Hosts["w1"].Unfinished = "join"
	c.want(1, []string{"the plan is no longer valid", "w1"}, "", "apply", "--yes", c.path("site.plan"))
	c.w.Hosts["w1"].Unfinished = ""
	c.want(0, nil, "", "apply", "--yes", c.path("site.plan"))
	c.want(2, []string{"reading the plan"}, "", "apply", c.path("cluster.yaml"))
}

// A pause ends apply without an error and says how to go on. Until then, each plan and each apply says why nothing is done.
func TestPause(t *testing.T) {
	for _, planes := range []bool{false, true} {
		c := newConsole(t)
		c.want(0, nil, "", "apply", "--yes")
		group, waiting := "canary", "worker (1 host)"
		text := strings.Replace(description, "labels: {zone: a}", "group: canary", 1) + "groups: [{name: canary, roll: {pause: true}}]\nroll: {order: [canary]}\n"
		if planes { // of two groups, one pauses
			group, waiting = "other", "worker (2 hosts)"
			text = strings.Replace(description, "10.0.0.12", "10.0.0.12, group: other", 1) + "groups: [{name: other, roll: {pause: true}}]\n"
		}
		if err := os.WriteFile(c.path("cluster.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.want(0, nil, "", "apply", "--yes")
		c.bundle("v1.38.1")
		c.use()
		out := c.want(fault.Paused, []string{"\npaused: group " + group + " has v1.38.1, and the roll pauses after it; waiting: " + waiting + "\nhint: to go on: ./install cluster apply --continue\n"}, "", "apply", "--yes")
		held := "Paused: group " + group + " has v1.38.1, and the roll pauses after it; waiting: " + waiting + "; to go on: ./install cluster apply --continue"
		before := c.w.State()
		for _, args := range [][]string{{"plan", "--detailed-exitcode"}, {"apply", "--yes"}} {
			again, code := c.run("", args...)
			if is := strings.Join(strings.Fields(again), " "); !strings.Contains(is, held) || strings.Contains(is, "unpack") || code != fault.Paused {
				t.Errorf("%q: exit code %d\n%s", args, code, again)
			}
		}
		if strings.Contains(out, "matches the file") || c.w.State() != before || !strings.Contains(before, `w2: version "v1.37.1"`) {
			t.Errorf("%s\n%s\nbefore:\n%s", out, c.w.State(), before)
		}
		c.want(0, []string{"The cluster matches the file."}, "", "apply", "--yes", "--continue")
		c.want(0, []string{"nothing to do"}, "", "plan", "--detailed-exitcode")
	}
}

// While windows are closed, and nothing precedes them, the plan has the outcome waiting, with the time at which they open.
func TestPlanInAClosedWindow(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	day := time.Now().UTC().AddDate(0, 0, 3)
	window := "roll: {window: {days: [" + day.Format("Mon") + "]}}"
	text := description + "groups: [{name: control-plane, " + window + "}, {name: worker, " + window + "}]\n" +
		"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nscheduler: {extraArgs: [{name: v, value: '2'}]}\n"
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opens := "the window of cp1 opens at " + day.Format("Mon 2006-01-02") + " 00:00 UTC"
	out := c.want(fault.Waiting, []string{"5 actions on 5 hosts", "\nwaiting: configuration", opens + "\nhint: apply waits until then: ./install cluster apply\n"}, "", "plan", "--detailed-exitcode")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "Waiting: configuration") {
		t.Error(out)
	}
	c.want(fault.Waiting, []string{`"wait": "configuration`}, "", "plan", "--detailed-exitcode", "-o", "json")
}

// The documents of kubeadm change after the cluster exists: the plan has the differences, and apply makes them.
func TestConfiguration(t *testing.T) {
	c := newConsole(t)
	write := func(v string) {
		text := description + "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nscheduler: {extraArgs: [{name: v, value: '" + v + "'}]}\n"
		if err := os.WriteFile(c.path("cluster.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("2")
	c.want(0, nil, "", "apply", "--yes")
	c.want(0, []string{"nothing to do"}, "", "plan", "--detailed-exitcode")
	write("4")
	before := c.w.State()
	c.want(fault.Work, []string{"5 actions on 5 hosts", "\n ~ cp1  ", "restarts kube-scheduler\n", "reconfigure node  restart  follows the change", "Changes on cp1:\n", `"value":"4"`}, "", "plan", "--detailed-exitcode", "--out", c.path("site.plan"))
	c.want(fault.Work, []string{`"restarts kube-scheduler"`, `"name": "/etc/kubernetes/manifests/kube-scheduler.yaml"`}, "", "plan", "--detailed-exitcode", "-o", "json")
	c.w.Refuses = `"value":"4"`
	c.want(3, []string{"ClusterConfiguration.networking.podSubnet", "each node has a part of it", "hint: needed: a new cluster", "nothing was changed"}, "", "plan")
	c.want(3, []string{"nothing was changed"}, "", "apply", "--yes")
	if c.w.Refuses = ""; c.w.State() != before {
		t.Errorf("%s\nwant\n%s", c.w.State(), before)
	}
	c.w.Edits = 7 // of a value that no plan shows
	c.want(1, []string{"the plan is no longer valid:\n  - cluster: version of the ConfigMap kubeadm-config: 0 in the plan, 7 now\n"}, "", "apply", "--yes", c.path("site.plan"))
	c.w.Edits = 0
	c.want(0, []string{"The cluster matches the file."}, "", "apply", "--yes", c.path("site.plan"))
	c.want(0, []string{"nothing to do"}, "", "plan", "--detailed-exitcode")
	c.want(0, []string{"nothing to do"}, "", "apply")
}

// TestSavedPlanKnowsCredentials: a plan that was saved does not run with other credentials of registries, and shows none.
func TestSavedPlanKnowsCredentials(t *testing.T) {
	c := newConsole(t)
	const password = "hunter2"
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	auth := func(password string) {
		t.Helper()
		write("auth.json", fmt.Sprintf(`{"auths": {"mirror.example:5000": {"auth": %q}}}`, base64.StdEncoding.EncodeToString([]byte("plant:"+password))))
	}
	auth(password)
	write("cluster.yaml", description+"registries:\n  mirrors: {docker.io: [https://mirror.example:5000]}\n  auth: auth.json\n")
	c.clear()
	c.want(0, nil, "", "plan", "--out", c.path("site.plan"))
	saved, err := os.ReadFile(c.path("site.plan"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{password, base64.StdEncoding.EncodeToString([]byte("plant:" + password))} {
		if strings.Contains(string(saved), secret) {
			t.Errorf("the plan has %q", secret)
		}
	}
	auth("hunter3")
	c.want(1, []string{"the plan is no longer valid:\n  - cluster: digest of the credentials of registries: "}, "", "apply", "--yes", c.path("site.plan"))
	auth(password)
	if out, code := c.run("", "apply", "--yes", c.path("site.plan")); strings.Contains(out, "no longer valid") || !strings.Contains(out, "cp1: init") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// Commands that a text names have the flags with which the command was started, so that they can be copied.
func TestPrintedCommandsKeepFlags(t *testing.T) {
	c := newConsole(t)
	c.given = &output.Given{}
	file := " -f " + fault.Word(c.path("cluster.yaml"))
	c.want(0, []string{"To do it: ./install cluster apply" + file + " --skip w2\n"}, "", "plan", "--skip", "w2")
	c.want(0, []string{"./install cluster status" + file + "\n"}, "", "apply", "--yes")
}

// TestChangeIsAPlan: what a driver reads of a change has the names that "reconfigure --plan -o json" prints.
func TestChangeIsAPlan(t *testing.T) {
	printed := reconfigure.Plan{
		Nodes:   []reconfigure.PlannedNode{{Name: "cp1", Role: "control-plane", Restarts: []string{"etcd"}, Command: "./install reconfigure"}},
		Changes: []revision.Difference{{Name: "a", Diff: "b"}, {Name: "s", Removed: true}}, Certificates: []reconfigure.PlannedCertificate{{File: "c", Added: []string{"d"}, Removed: []string{"e"}}},
		Marks: []string{"f"}, AddOns: []string{"g"}, Images: true, Refused: []reconfiguration.Refusal{{Field: "h", From: "i", To: "j", Reason: "k", Needed: "l"}},
		Warnings: []checks.Problem{{Name: "m", Message: "n", Fix: "o"}}, Errors: []checks.Problem{{Name: "p", Message: "q", Fix: "r"}},
	}
	data, err := json.Marshal(printed)
	if err != nil {
		t.Fatal(err)
	}
	var read facts.Change
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	want := facts.Change{
		Nodes:   []facts.ChangedNode{{Name: "cp1", Restarts: []string{"etcd"}, Command: "./install reconfigure"}},
		Changes: []facts.FileChange{{Name: "a", Diff: "b"}, {Name: "s", Removed: true}}, Certificates: []facts.CertificateChange{{File: "c", Added: []string{"d"}, Removed: []string{"e"}}},
		Marks: []string{"f"}, AddOns: []string{"g"}, Images: true, Refused: []facts.Refusal{{Field: "h", From: "i", To: "j", Reason: "k", Needed: "l"}},
		Warnings: []facts.Finding{{Name: "m", Message: "n", Fix: "o"}}, Errors: []facts.Finding{{Name: "p", Message: "q", Fix: "r"}},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("%+v\nwant\n%+v", read, want)
	}
}

// Pain 20: a host that is off stops the run, or is left alone on request, with another exit code.
func TestHostIsOff(t *testing.T) {
	c := newConsole(t)
	c.w.Hosts["w2"].Off = fault.Wrap(&remote.Error{Class: remote.Unreachable, Host: "w2", Address: "10.0.0.14:22", Err: errors.New("no route to host")}, fault.Failure, "switch it on")
	c.want(3, []string{"w2: cannot be used: 10.0.0.14:22: no route to host\n      hint: switch it on; or to leave it alone, add: --skip w2\n"}, "", "apply", "--yes")
	c.want(fault.Skipped, []string{"\nskipped: w2\n"}, "", "apply", "--yes", "--skip", "w2")
	c.want(2, []string{`--skip "w9"`}, "", "apply", "--skip", "w9")
	c.want(1, []string{"no answer", "w2 does not answer: 10.0.0.14:22: no route to host", "hint: switch it on"}, "", "status")
	c.want(1, []string{"no route to host"}, "", "reset", "--force", "--yes")
	if c.w.Hosts["w1"].Version == "" {
		t.Error("reset began although a host did not answer")
	}
	out, code := c.run("", "doctor", c.path("site.tar.gz"))
	if code != 1 {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	if got := strings.Join(names(t, c.path("site.tar.gz")), " "); got != "cp1/summary.txt cp2/summary.txt cp3/summary.txt w1/summary.txt w2/no-archive.txt" {
		t.Error(got)
	}
	c.run("", "doctor", c.path("site.tar.gz"), "--logs-of", "app", "--logs-of", "db")
	if got := names(t, c.path("site.tar.gz")); got[0] != "cp1/logs of app --logs-of db" {
		t.Error(got)
	}
	c.want(2, []string{`--logs-of "A*" is not the name of a namespace`}, "", "doctor", c.path("x.tar.gz"), "--logs-of", "A*")
}

// A host that does not answer hides nothing that others find, and each command with -o json prints its document. Causes are before what
// follows from them, and each failure is printed once.
func TestHostThatDoesNotAnswerHidesNothing(t *testing.T) {
	c := newConsole(t)
	for _, name := range []string{"cp1", "w2"} {
		c.w.Hosts[name].Off = fault.Wrap(&remote.Error{Class: remote.Unreachable, Host: name, Address: "10.0.0.14:22", Err: errors.New("no route to host")}, fault.Failure, "switch it on")
	}
	c.w.Hosts["w1"].Findings = `{"errors":[{"name":"NumCPU","message":"one CPU"}],"warnings":[]}`
	once := func(out string) {
		t.Helper()
		for _, name := range []string{"cp1", "w2"} {
			lines := 0
			for line := range strings.Lines(out) {
				if strings.Contains(line, name) && strings.Contains(line, "no route to host") {
					lines++
				}
				if n := len(regexp.MustCompile(`\b`+name+`\b`).FindAllString(line, -1)); n > 1 && !strings.Contains(line, "--skip") {
					t.Errorf("%s is %d times in %q", name, n, line)
				}
			}
			if lines != 1 {
				t.Errorf("the failure of %s is printed %d times:\n%s", name, lines, out)
			}
		}
	}
	out := c.want(3, []string{"3 problems must be solved first", "hint: switch it on; or to leave it alone, add: --skip w2"}, "", "preflight")
	cp1, w2, w1 := strings.Index(out, "\ncp1   error  -       cannot be used: 10.0.0.14:22: no route to host"), strings.Index(out, "\nw2    error  -"), strings.Index(out, "\nw1    error  NumCPU  one CPU")
	if once(out); cp1 < 0 || w2 < cp1 || w1 < w2 {
		t.Errorf("%d %d %d:\n%s", cp1, w2, w1, out)
	}
	c.want(3, []string{`"findings": [`, `"message": "one CPU"`, `"message": "cannot be used: 10.0.0.14:22: no route to host"`}, "", "preflight", "-o", "json")
	c.want(3, []string{`"problems": [`, `"why": "10.0.0.14:22: no route to host"`}, "", "plan", "-o", "json")
	once(c.want(3, []string{"one CPU", "error: 2 problems, and nothing was changed:\n  cp1: cannot be used"}, "", "apply", "--yes"))
	c.want(1, []string{`"hosts": {}`, "none of the hosts is a node"}, "", "images", "list", "-o", "json", "--skip", "cp1,w2")
	for _, name := range []string{"cp1", "cp2", "cp3"} { // what follows is the last one
		c.w.Hosts[name].Off = c.w.Hosts["w2"].Off
	}
	if out := c.want(3, nil, "", "plan"); strings.Index(out, "cluster: no control plane can be used") < strings.Index(out, "w2: cannot be used") {
		t.Error(out)
	}
	for _, m := range c.w.Hosts {
		m.Off, m.Findings = nil, ""
	}
	c.want(0, nil, "", "apply", "--yes")
	c.w.Hosts["cp1"].Off = &remote.Error{Class: remote.Unreachable, Host: "cp1", Address: "10.0.0.10:22", Err: errors.New("no route to host")}
	c.want(1, []string{`"cp2": `, `"errors": {`, `"cp1": "10.0.0.10:22: no route to host"`}, "", "certs", "check-expiration", "-o", "json")
	c.want(1, []string{"registry.k8s.io/pause:3.10", "4 of 4", "\nerror: cp1 (10.0.0.10:22): no route to host\n"}, "", "images", "list")
	c.want(1, []string{"error: cp1 (10.0.0.10:22): no route to host\n"}, "", "certs", "renew", "--yes") // which changes nothing then
	c.want(1, []string{`"error": "10.0.0.10:22: no route to host"`}, "", "status", "-o", "json")
}

// names are the names in an archive.
func names(t *testing.T, path string) (list []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(compressed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h.Name)
	}
}

// All problems of the preflight checks are in one table, and no host changes.
func TestPreflightTable(t *testing.T) {
	c := newConsole(t)
	c.w.Hosts["cp2"].Findings = `{"errors":[{"name":"Port-6443","message":"port 6443 is in use","fix":"stop what uses it"}],"warnings":[{"name":"Swap","message":"swap is on"}]}`
	c.w.Hosts["w1"].Findings = `{"errors":[{"name":"NumCPU","message":"one CPU"}],"warnings":[{"name":"FileExisting","message":"minor","minor":true}]}`
	out := c.want(3, []string{"hint: stop what uses it", "2 problems must be solved first", "nothing was changed"}, "", "apply", "--yes")
	for _, line := range []string{`cp2 +error +Port-6443 +port 6443 is in use`, `cp2 +warning +Swap +swap is on`, `w1 +error +NumCPU +one CPU`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(out) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	if strings.Contains(out, "minor") {
		t.Error("a minor warning is shown")
	}
	for name, m := range c.w.Hosts {
		if m.Version != "" || len(m.Files) > 0 {
			t.Errorf("%s was changed: %+v", name, m)
		}
	}
}

// Help is at most 40 lines before the flags, of each verb, and its examples are commands.
func TestHelpIsShort(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if lines := strings.Count(cmd.Long+cmd.Example, "\n"); lines > 40 {
			t.Errorf("%s: %d lines", cmd.CommandPath(), lines)
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(line)) > 97 {
				t.Errorf("%s: a line of %d columns: %q", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				look(sub)
			}
		}
	}
	look(New(nil))
}

// A late is an answer before which something happens.
type late struct {
	before func()
	io.Reader
}

func (l *late) Read(p []byte) (int, error) {
	if l.before != nil {
		l.before()
		l.before = nil
	}
	return l.Reader.Read(p)
}

// Another driver finishes while this one waits for the answer: what this one planned is not done.
func TestSiteChangesDuringTheQuestion(t *testing.T) {
	c := newConsole(t)
	out, code := c.answered(&late{func() { c.want(0, nil, "", "apply", "--yes") }, strings.NewReader("y\n")}, "apply")
	if code == 0 || !strings.Contains(out, "the site has changed while this command waited") || !strings.Contains(out, "hint: run the same command again") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	inits := 0
	for _, args := range c.w.Seen {
		if strings.Contains(args, "/whole init") {
			inits++
		}
	}
	if inits != 1 {
		t.Errorf("init ran %d times", inits)
	}
	for name, m := range c.w.Hosts {
		if m.Version == "" || m.Lock != "" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// A plan that another driver began to do meanwhile does not remove what that one brought.
func TestNoRemovesNothingOfAnotherDriver(t *testing.T) {
	c := newConsole(t)
	const other = "bob@desk, pid 12, cluster apply"
	c.answered(&late{func() { c.w.Hosts["w1"].Lock = other }, strings.NewReader("n\n")}, "apply")
	if m := c.w.Hosts["w1"]; len(m.Files) == 0 || m.Lock != other {
		t.Errorf("w1: %+v", m)
	}
	if m := c.w.Hosts["w2"]; len(m.Files) > 0 || m.Lock != "" {
		t.Errorf("w2: %+v", m)
	}
}

// The archive of one host is damaged: the others are not lost.
func TestDoctorWithADamagedArchive(t *testing.T) {
	c := newConsole(t)
	for _, damaged := range []string{"no archive", "\x1f\x8b"} {
		c.w.Hosts["w1"].Archive = damaged
		c.want(1, []string{"The archive is ", "w1: reading the archive of the host"}, "", "doctor", c.path("site.tar.gz"))
		if got := strings.Join(names(t, c.path("site.tar.gz")), " "); got != "cp1/summary.txt cp2/summary.txt cp3/summary.txt w1/no-archive.txt w2/summary.txt" {
			t.Error(got)
		}
	}
}

// A path that is not absolute would be in the root directory of the control plane, and - nowhere.
func TestKeepIsAbsolute(t *testing.T) {
	c := newConsole(t)
	for _, path := range []string{"site.tar", "-", "./x"} {
		c.want(2, []string{"must be an absolute path"}, "", "backup", "--on-host", path)
	}
}

// A host that does not know whether it is a node is not treated as none (pain 7). It does not prove that it is the one that is meant:
// reset changes nothing. Afterwards it prints what remains.
func TestUnknownNode(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	c.w.Hosts["w1"].Unknown = map[string]string{"node": "the file is damaged"}
	c.want(1, []string{"unknown", "w1: it is unknown whether this host is a node: the file is damaged"}, "", "status")
	c.want(1, []string{"w1: it is unknown whether this host is a node"}, "", "images", "list")
	c.want(0, nil, "", "certs", "renew", "--yes") // a worker has none
	c.want(3, []string{"nothing was removed: w1: its node is not known: the file is damaged", "on that host: ./install reset"}, "site\n", "reset")
	c.w.Hosts["w1"].Unknown = nil
	c.want(0, []string{"w1: left: /etc/neighbour: it existed before"}, "site\n", "reset")
	if m := c.w.Hosts["w1"]; m.Version != "" {
		t.Errorf("w1 is a node: %+v", m)
	}
}

// A process that the kernel ends has an exit code that the help does not list.
func TestExitCodesOfHosts(t *testing.T) {
	c := newConsole(t)
	c.w.Ends = map[string]int{"w1": 137}
	out := c.want(1, []string{"w1: ", "ended by signal 9"}, "", "apply", "--yes")
	if !strings.Contains(out, "hint: see on the host whether memory was short") {
		t.Error(out)
	}
}

// One cause that several hosts report is shown once, with their names.
func TestEqualProblemsAreOne(t *testing.T) {
	p := problems{{Host: "cp1", What: "no API", Hint: "wait"}, {Host: "w1", What: "is full", Hint: "wait"}, {Host: "cp2", What: "no API", Hint: "wait"}}
	if got, want := p.Error(), "3 problems, and nothing was changed:\n  cp1, cp2: no API\n      hint: wait\n  w1: is full\n      hint: wait"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	down := status.Problem{Part: "API server", Message: "it does not answer", Fix: "./install doctor"}
	state := overview.Site{Name: "site", Hosts: []overview.Host{
		{Name: "cp1", Facts: &facts.Facts{}, Problems: []status.Problem{down}},
		{Name: "cp2", Facts: &facts.Facts{}, Problems: []status.Problem{{Part: "disk", Message: "it is full"}, down}},
	}}
	var out strings.Builder
	state.Complete()
	if err := state.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	if want := "\ncp1, cp2: API server: it does not answer\n    hint: ./install doctor\n\ncp2: disk: it is full\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s\nwant its end to be\n%s", out.String(), want)
	}
}

// The root of a worker may report any state of the cluster. Only control planes are asked for it.
func TestAWorkerReportsNoCluster(t *testing.T) {
	claim := &facts.Cluster{Nodes: []facts.ClusterNode{{Name: "w1", Ready: true}, {Name: "invented"}}}
	state := overview.Site{Hosts: []overview.Host{
		{Name: "w1", Role: spec.Worker, Facts: &facts.Facts{Node: &facts.Node{}, Cluster: claim}},
		{Name: "cp1", Role: spec.ControlPlane, Facts: &facts.Facts{Node: &facts.Node{}, Cluster: &facts.Cluster{Nodes: []facts.ClusterNode{{Name: "w1"}, {Name: "cp1", Ready: true}}}}},
	}}
	state.Complete()
	if state.Healthy || len(state.Others) > 0 {
		t.Errorf("healthy: %t, not in cluster.yaml: %v", state.Healthy, state.Others)
	}
}

// What hosts print cannot control the terminal.
func TestHostsCannotControlTheTerminal(t *testing.T) {
	c := newConsole(t)
	const evil = "\x1b]0;owned\x07\x1b[2J"
	c.w.Hosts["cp2"].Findings = `{"errors":[],"warnings":[{"name":"Swap","message":"swap \u001b[2J is on"}]}`
	c.want(0, nil, "", "preflight")
	c.w.Hosts["cp2"].Findings = ""
	c.want(0, nil, "", "apply", "--yes")
	c.w.Hosts["w1"].Unfinished, c.w.Hosts["w1"].Version = "join "+evil, "v1.37.1"+evil
	for _, args := range [][]string{{"status"}, {"plan"}, {"apply", "--yes"}, {"certs", "check-expiration"}, {"images", "list"}} {
		c.run("", args...)
	}
	if strings.ContainsAny(c.all.String(), "\x1b\x07") {
		t.Errorf("%q", c.all.String())
	}
}

// With --progress json, each line is an event or a part of the document, and the last event is done or error.
func TestProgressJSON(t *testing.T) {
	c := newConsole(t)
	for _, v := range []struct {
		code     fault.Code
		document bool
		args     []string
	}{
		{fault.Work, false, []string{"plan", "--detailed-exitcode"}}, {0, true, []string{"plan", "-o", "json"}}, {0, false, []string{"preflight"}}, {0, true, []string{"preflight", "-o", "json"}},
		{0, false, []string{"apply"}}, {0, false, []string{"status"}}, {0, true, []string{"status", "-o", "json"}},
		{0, false, []string{"doctor", c.path("a.tar.gz")}}, {0, false, []string{"images", "list"}}, {0, true, []string{"images", "list", "-o", "json"}}, {0, false, []string{"images", "import"}},
		{0, false, []string{"certs", "check-expiration"}}, {0, false, []string{"certs", "renew"}}, {0, false, []string{"backup", c.path("b.tar")}},
		{0, true, []string{"kubeconfig", "-"}}, {0, false, []string{"kubeconfig", c.path("c")}}, {fault.Skipped, false, []string{"apply", "--skip", "w2"}},
		{2, false, []string{"apply", "--skip", "w9"}}, {2, false, []string{"status", "x"}}, {0, false, []string{"reset", "--force", "--yes"}},
	} {
		stdout, stderr, code := c.events(v.args...)
		last := stdout
		if v.document {
			last = stderr
		} else {
			checkEvents(t, v.args, stdout)
		}
		if checkEvents(t, v.args, stderr); code != v.code {
			t.Errorf("%q: exit code %d, want %d\n%s%s", v.args, code, v.code, stdout, stderr)
		}
		lines := strings.Split(strings.TrimSpace(last), "\n")
		var e progress.Event
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || e.Code != int(code) || (code == 0 || code.IsOutcome()) != (e.Kind == progress.Done) || e.Host != "" {
			t.Errorf("%q: the last event is %q: %v", v.args, lines[len(lines)-1], err)
		}
	}
}

// events runs a command with --progress json, and answers y.
func (c *console) events(args ...string) (stdout, stderr string, code fault.Code) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "install", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(strings.NewReader("y\n"))
	output.BindProgress(root)
	root.AddCommand(newCommand(&site{
		open: func() (*bundle.File, error) { return bundle.Open(c.file) },
		dial: func(*live.Display) dialer { return modelDialer{c.w} },
	}))
	output.Complete(root)
	root.SetArgs(append([]string{"--progress", "json", "cluster", "--file", c.path("cluster.yaml")}, args...))
	err := root.ExecuteContext(c.t.Context())
	output.PrintError(root, err)
	return out.String(), errs.String(), fault.ExitCode(err)
}

func checkEvents(t *testing.T, args []string, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e progress.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind == "" {
			t.Errorf("%q: no event: %q", args, line)
		}
	}
}

// A kubeconfig with which kubectl would do more here than connect to the cluster is not written.
func TestKubeconfigIsRefused(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	c.w.Damaged = true // it is another text
	for _, file := range []string{c.path("admin.conf"), "-"} {
		out := c.want(1, []string{"cp1: reading /etc/kubernetes/admin.conf: ", "hint: see it on that host: kubectl config view"}, "", "kubeconfig", file)
		if strings.HasPrefix(out, "other") {
			t.Error(out)
		}
	}
	if _, err := os.Stat(c.path("admin.conf")); err == nil {
		t.Error("it was written")
	}
}

// With a balancer and no address, the kubeconfig works on nodes only.
func TestKubeconfigOfABalancer(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	if out := c.want(0, nil, "", "kubeconfig", c.path("admin.conf")); strings.Contains(out, "warning") {
		t.Error(out)
	}
	c.w.Endpoint = "127.0.0.1:7443"
	c.want(0, []string{"warning: the endpoint of the cluster is 127.0.0.1:7443, the balancer of each node", "kubectl --server https://10.0.0.9:6443"}, "", "kubeconfig", c.path("other.conf"))
}

// A kubeconfig with other clusters and an older backup are not replaced, also if they appear meanwhile. A copy that fails leaves
// nothing.
func TestFilesAreNotReplaced(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	if err := os.WriteFile(c.path("mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for verb, copied := range map[string]string{"kubeconfig": "cat ", "backup": "cluster host backup"} {
		before := c.w.Commands
		c.want(2, []string{"mine exists, and is not replaced"}, "", verb, c.path("mine"))
		if c.w.Commands != before {
			t.Errorf("%s: hosts were asked first", verb)
		}
		isCopy := func() bool { return strings.Contains(c.w.Seen[len(c.w.Seen)-1], copied) }
		c.w.Kill = func(int) int {
			if isCopy() {
				_ = os.WriteFile(c.path("late"), []byte("mine"), 0o600)
			}
			return 0
		}
		c.want(2, []string{"late exists, and is not replaced"}, "", verb, c.path("late"))
		c.w.Kill = func(int) int {
			if isCopy() {
				return 2
			}
			return 0
		}
		if _, code := c.run("", verb, c.path("cut")); code == 0 {
			t.Errorf("%s: a part is a success", verb)
		}
		c.w.Kill = nil
		for _, name := range []string{"mine", "late"} {
			if data, err := os.ReadFile(c.path(name)); string(data) != "mine" {
				t.Errorf("%s: %s is %q, %v", verb, name, data, err)
			}
		}
		if err := os.Remove(c.path("late")); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(c.path(".*")); len(left) > 0 || err != nil {
		t.Errorf("%q stay, %v", left, err)
	}
	if _, err := os.Stat(c.path("cut")); err == nil {
		t.Error("a part of a file stays")
	}
}

// A backup for this machine writes nothing on a host: wherever it is cut, all secrets of the cluster would stay there.
func TestABackupWritesNothingOnHosts(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	before := len(c.w.Seen)
	c.want(0, nil, "", "backup", c.path("site.tar"))
	reads := regexp.MustCompile(`^/bin/sh -c echo "machine|^/var/lib/airlift/cluster/install cluster host (facts|backup --progress json)$`)
	for _, command := range c.w.Seen[before:] {
		if !reads.MatchString(command) {
			t.Errorf("%q is run", command)
		}
	}
	c.w.Fails = map[string]string{"cp1": "cluster host backup"}
	if out := c.want(1, []string{"cp1: "}, "", "backup", c.path("other.tar")); strings.Contains(out, "older installer") {
		t.Error(out)
	}
	c.w.Fails, c.w.Ends = nil, nil
	c.want(2, []string{"age1"}, "", "backup", c.path("other.tar"), "--recipient", "nobody")
}

// A host that is taken out of cluster.yaml is removed and reset, at its address in the cluster. One that is off is only removed.
func TestRemove(t *testing.T) {
	for name, off := range map[string]error{"on": nil, "off": errors.New("no route to host")} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t)
			c.want(0, nil, "", "apply", "--yes")
			less := regexp.MustCompile("(?m)^.*name: w2.*\n").ReplaceAllString(description, "")
			if err := os.WriteFile(c.path("cluster.yaml"), []byte(less), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"plan", "--detailed-exitcode"}, {"apply"}} {
				if out := c.want(fault.Held, []string{"\nheld: w2 is in the cluster, and not in cluster.yaml\nhint: to remove it: ./install cluster apply --remove"}, "", args...); strings.Contains(out, "matches") {
					t.Error(out)
				}
			}
			c.w.Hosts["w2"].Off = off
			c.want(0, []string{"remove workers"}, "", "apply", "--yes", "--remove")
			if !slices.ContainsFunc(c.w.Seen, func(args string) bool { return strings.Contains(args, "node remove w2 --yes --drain-timeout") }) {
				t.Error("the node is Ready, and was not drained")
			}
			if m := c.w.Hosts["w2"]; m.Version == "" != (off == nil) || len(m.Files) == 0 != (off == nil) || m.Lock != "" {
				t.Errorf("w2: %+v", m)
			}
			if at := c.w.Dialed["w2"]; at.Address != "10.0.0.14" || at.User != "root" || at.Port != 22 {
				t.Errorf("w2 was reached at %+v", at)
			}
		})
	}
}

// A removal that was killed at any of its commands is finished by another one: the Node is gone, and nothing is left on
// its host.
func TestRemoveKilledAnywhere(t *testing.T) {
	less := regexp.MustCompile("(?m)^.*name: w2.*\n").ReplaceAllString(description, "")
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			c := newConsole(t)
			c.want(0, nil, "", "apply", "--yes")
			if err := os.WriteFile(c.path("cluster.yaml"), []byte(less), 0o600); err != nil {
				t.Fatal(err)
			}
			killed := c.kill(n, how, "apply", "--yes", "--remove")
			if !killed {
				break
			}
			c.want(0, nil, "", "apply", "--yes", "--remove")
			c.want(0, []string{"nothing to do"}, "", "plan", "--detailed-exitcode")
			if m := c.w.Hosts["w2"]; m.Version != "" || m.Unfinished != "" || len(m.Files) > 0 {
				t.Fatalf("killed at command %d (%d): w2: %+v", n, how, m)
			}
		}
	}
}

// kill runs a command and kills it at its n-th command on a host. It returns false if it has fewer.
func (c *console) kill(n, how int, args ...string) (killed bool) {
	before := c.w.Commands
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	c.ctx = ctx
	c.w.Kill = func(now int) int {
		switch {
		case now-before == n:
			killed = true
			cancel()
			return how
		case killed:
			return 1
		}
		return 0
	}
	c.run("", args...)
	c.w.Kill, c.ctx = nil, c.t.Context()
	for _, m := range c.w.Hosts {
		m.Lock = "" // its process ended with the connection
	}
	return killed
}

// A machine that has the address that a Node reports, and does not show that it is that node, gets nothing and stays as it is. The
// address is shown before the login.
func TestRemoveResetsNoOtherMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*modelsite.Machine)
		why    string
	}{
		"another node":    {func(m *modelsite.Machine) { m.Hostname = "other" }, "that host is the node other"},
		"another cluster": {func(m *modelsite.Machine) { m.Cluster = "plant" }, "that host is a node of another cluster"},
		"no node":         {func(m *modelsite.Machine) { m.Version = "" }, "that host is no node"},
		"another reset":   {func(m *modelsite.Machine) { m.Unfinished, m.Cluster = "reset", "plant" }, "that host is no node"},
	} {
		t.Run(name, func(t *testing.T) {
			console := newConsole(t)
			console.want(0, nil, "", "apply", "--yes")
			console.leave("w2")
			m := console.w.Hosts["w2"]
			clear(m.Files)
			c.change(m)
			seen := len(console.w.Seen)
			console.want(0, []string{"w2: logging in as root at 10.0.0.14, the address that its Node reports", c.why}, "", "apply", "--yes", "--remove")
			if len(m.Files) > 0 {
				t.Errorf("it got %v", m.Files)
			}
			if slices.ContainsFunc(console.w.Seen[seen:], func(args string) bool { return strings.Contains(args, " reset ") }) {
				t.Error("another machine was reset")
			}
		})
	}
}

// thin replaces the console's file by a thin one.
func (c *console) thin() {
	c.t.Helper()
	b, err := bundle.Open(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer b.Close()
	c.file = c.path("thin")
	if _, err := bundle.WriteThin(c.t.Context(), b, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// A thin file is enough if the control planes keep the whole one, and otherwise nothing changes.
func TestThinFile(t *testing.T) {
	c := newConsole(t)
	whole := c.file
	c.thin()
	thin := c.file
	c.want(2, []string{"thin"}, "", "apply", "--yes")
	for name, m := range c.w.Hosts {
		if m.Version != "" || len(m.Files) > 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	c.file = whole
	c.want(fault.Skipped, nil, "", "apply", "--yes", "--skip", "w2")
	c.file = thin
	c.want(0, nil, "", "apply", "--yes")
	c.want(2, []string{"thin"}, "", "images", "import")
	if c.w.Hosts["w2"].Version == "" {
		t.Error("w2 did not join")
	}
}

// Ctrl-C during a command on a host ends the run, without a lock or a token. The same command finishes.
func TestInterruption(t *testing.T) {
	for _, at := range []string{"/whole init ", "/install join ", "/install cluster host nodes", "send "} {
		c := newConsole(t)
		ctx, cancel := context.WithCancel(t.Context())
		c.ctx = ctx
		c.w.Kill = func(int) int {
			if strings.Contains(c.w.Seen[len(c.w.Seen)-1], at) {
				cancel()
			}
			return 0
		}
		c.want(fault.Interrupted, nil, "", "apply", "--yes")
		c.w.Kill, c.ctx = nil, t.Context()
		for name, m := range c.w.Hosts {
			if m.Lock != "" {
				t.Errorf("%s: %s is locked", at, name)
			}
		}
		if c.w.Tokens != 0 {
			t.Errorf("%s: %d tokens stay", at, c.w.Tokens)
		}
		c.want(0, nil, "", "apply", "--yes")
	}
}

// A reset whose cluster.yaml has addresses of other hosts removes nothing, with and without their API, also with --force. The error
// names each of those hosts, what it is, and what the file has.
func TestResetOfOtherHosts(t *testing.T) {
	for name, other := range map[string]struct {
		change func(*modelsite.World)
		want   []string
	}{
		"another cluster": {func(w *modelsite.World) {
			for _, m := range w.Hosts {
				m.Cluster, m.Hostname = "plant", "plant-"+m.Name
			}
		}, []string{"5 hosts are not", "cp1: is the control plane plant-cp1 of the cluster plant, and cluster.yaml describes the cluster site", "w1: is a node of the cluster plant"}},
		"a worker of another cluster": {func(w *modelsite.World) { w.Hosts["w1"].Cluster = "plant" },
			[]string{"w1: is a node of another cluster than cp1", "./install reset"}},
		"a control plane of another cluster with this name": {func(w *modelsite.World) { w.Hosts["cp2"].Cluster = "plant" },
			[]string{"cp2: is the control plane cp2 of the cluster plant, and cluster.yaml describes the cluster site"}},
		"two hosts with each other's address": {func(w *modelsite.World) { w.Hosts["w1"].Hostname, w.Hosts["w2"].Hostname = "w2", "w1" },
			[]string{"w1: is the worker w2: cluster.yaml has the worker w1 of the cluster site", "w2: is the worker w1"}},
		"another role": {func(w *modelsite.World) { w.Hosts["w2"].Is = spec.ControlPlane },
			[]string{"w2: is the control plane w2 of the cluster site: cluster.yaml has the worker w2"}},
	} {
		for _, down := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				c := newConsole(t)
				c.want(0, nil, "", "apply", "--yes")
				other.change(c.w)
				c.w.APIDown = down
				before := c.w.State()
				c.want(3, append(other.want, "nothing was removed"), "", "reset", "--force", "--yes")
				if c.w.State() != before {
					t.Errorf("before\n%s\nafter\n%s", before, c.w.State())
				}
			})
		}
	}
}

// Reset and "apply --remove" remove adopted nodes, too: without --remove-node, reset would only take back what Airlift changed.
func TestAdoptedNodesAreRemoved(t *testing.T) {
	for _, args := range [][]string{{"reset", "--force", "--yes"}, {"apply", "--yes", "--remove"}} {
		c := newConsole(t)
		c.want(0, nil, "", "apply", "--yes")
		c.w.Hosts["w2"].Adopted = true
		if args[0] == "apply" {
			c.leave("w2")
		}
		c.want(0, nil, "", args...)
		if m := c.w.Hosts["w2"]; m.Version != "" || len(m.Files) > 0 {
			t.Errorf("%q: w2 still is a node: %+v", args, m)
		}
	}
}

// leave takes a host out of cluster.yaml.
func (c *console) leave(name string) {
	c.t.Helper()
	c.describe(without(description, name))
}

// without is a cluster.yaml without one of its hosts.
func without(text, name string) string {
	return regexp.MustCompile("(?m)^.*name: "+name+"[, }].*\n").ReplaceAllString(text, "")
}

// describe writes cluster.yaml.
func (c *console) describe(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// The control plane at whose address the nodes reach the API is not removed: nothing changes, and the plan says so first.
func TestControlPlaneAtTheEndpointStays(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	c.w.Endpoint = "10.0.0.10:6443" // of cp1
	text := strings.Replace(description, "vip: 10.0.0.9", "address: 10.0.0.10", 1)
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(regexp.MustCompile("(?m)^.*name: cp1.*\n").ReplaceAllString(text, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	before := c.w.State()
	for _, args := range [][]string{{"plan", "--remove"}, {"apply", "--yes", "--remove"}} {
		c.want(3, []string{"cp1: cannot be removed: the endpoint of the cluster, 10.0.0.10:6443, is its address", "write another endpoint to cluster.yaml"}, "", args...)
		if c.w.State() != before {
			t.Errorf("%q: before\n%s\nafter\n%s", args, before, c.w.State())
		}
	}
}

// A reset that was killed at any of its commands is finished by another one.
func TestResetKilledAnywhere(t *testing.T) {
	c := newConsole(t)
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			c.clear()
			c.want(fault.Skipped, nil, "", "apply", "--yes", "--skip", "w1") // a bare host, too
			if !c.kill(n, how, "reset", "--force", "--yes") {
				break
			}
			c.want(0, nil, "", "reset", "--force", "--yes")
			for name, m := range c.w.Hosts {
				if m.Version != "" || m.Unfinished != "" || len(m.Files) > 0 {
					t.Fatalf("killed at command %d (%d): %s: %+v", n, how, name, m)
				}
			}
		}
	}
}

// A reset without a host that is off, and once more when it answers.
func TestResetWithAHostOff(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	c.w.Hosts["cp1"].Off = errors.New("no route to host")
	c.want(fault.Skipped, []string{"from 4 hosts"}, "site\n", "reset", "--skip", "cp1,cp1")
	c.w.Hosts["cp1"].Off = nil
	if out := c.want(0, []string{"from 5 hosts"}, "site\n", "reset"); strings.Contains(out, "failed") {
		t.Error(out)
	}
	for name, m := range c.w.Hosts {
		if m.Version != "" || len(m.Files) > 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
}
