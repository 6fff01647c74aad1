package run_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
)

// configured is a cluster with documents of kubeadm, of which the scheduler's verbosity is one value.
func configured(v string) *spec.Cluster {
	c := aCluster()
	c.Kubeadm = []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: 10.0.0.9:6443\nscheduler: {extraArgs: [{name: v, value: '" + v + "'}]}\n" +
		"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 200\n")
	return c
}

// following lists the commands after the n-th one that change the configuration or wait for nodes.
func following(w *modelsite.World, n int) (list []string) {
	for _, line := range w.Seen[n:] {
		_, verb, _ := strings.Cut(line, "/install ")
		if strings.HasPrefix(verb, "reconfigure") && !strings.Contains(verb, "--plan") || strings.HasPrefix(verb, "cluster host wait") {
			list = append(list, strings.TrimSuffix(verb, " --progress json"))
		}
	}
	return list
}

// The documents change: one control plane gets them, and the others follow one by one, each healthy before the next. A second run
// changes nothing (applied), and documents that have not changed since init make no step.
func TestReconfigure(t *testing.T) {
	file := aFile(t, newVersion)
	c := configured("2")
	w := modelsite.New(c)
	before := applied(t, w, c, file, newVersion)
	if got := following(w, 0); len(got) > 0 {
		t.Errorf("after init: %q", got)
	}
	n := len(w.Seen)
	after := applied(t, w, configured("4"), file, newVersion)
	const node, wait = "reconfigure node", "cluster host wait --version v1.37.1"
	want := []string{"reconfigure --config - --yes", wait, node, wait, node, wait, node, wait, node, wait, "cluster host wait"}
	if got := following(w, n); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if !strings.Contains(w.Config, `"value":"4"`) || strings.Contains(w.Config, "controlPlaneEndpoint") || !strings.Contains(w.Config, `"maxPods":200`) {
		t.Errorf("the cluster stores %s", w.Config)
	}
	if want := strings.ReplaceAll(before, `"value":"2"`, `"value":"4"`); after != want {
		t.Errorf("the state is\n%s\nwant\n%s", after, want)
	}
}

// Somebody ran reconfigure on a control plane: the other nodes follow, also without documents.
func TestFollow(t *testing.T) {
	c, file := aCluster(), aFile(t, newVersion)
	w := modelsite.New(c)
	applied(t, w, c, file, newVersion)
	w.Config, w.Hosts["cp2"].Config = "edited", "edited"
	applied(t, w, c, file, newVersion)
	for name, m := range w.Hosts {
		if m.Config != "edited" {
			t.Errorf("%s has %q", name, m.Config)
		}
	}
}

// While control planes restart, a kubelet of an earlier batch misses its API server: apply ends when all nodes are Ready. Otherwise, the
// next run would be refused. A node that stays NotReady, and pods that were broken before, end no run.
func TestReconfigureEndsWithReadyNodes(t *testing.T) {
	file := aFile(t, newVersion)
	for _, sick := range []bool{false, true} {
		w := modelsite.New(configured("2"))
		applied(t, w, configured("2"), file, newVersion)
		w.Broken = map[string]string{"kube-system/DaemonSet/kube-proxy": "w1"}
		w.Changes = func(host, _ string) {
			if host == "w2" { // the last one
				w.NotReady, w.Sick = map[string]bool{"cp2": true, "w1": true}, map[string]bool{"w1": sick}
			}
		}
		w.Waited = func(nodes []string) {
			for _, name := range nodes {
				delete(w.NotReady, name)
			}
		}
		d := &driver{w: w, c: configured("4"), file: file, version: newVersion}
		if err := d.apply(t.Context()); err != nil || len(w.NotReady) > 0 != sick {
			t.Errorf("%v: not Ready are %v\n%s", err, w.NotReady, d.out.String())
		}
	}
}

// TestReconfigureKilledAnywhere kills the driver before, in the middle of and after each of its commands, and runs it again.
func TestReconfigureKilledAnywhere(t *testing.T) {
	file := aFile(t, newVersion)
	installed := modelsite.New(configured("2"))
	applied(t, installed, configured("2"), file, newVersion)
	want := applied(t, installed.Clone(), configured("4"), file, newVersion)
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			w := installed.Clone()
			if !killedAt(t, w, configured("4"), file, newVersion, n, how) {
				break
			}
			if state := applied(t, w, configured("4"), file, newVersion); withoutTokens(state) != withoutTokens(want) {
				t.Fatalf("killed at command %d (%d):\n%s\nwant\n%s", n, how, state, want)
			}
		}
	}
}

// A node that fails stops the run with its hint, and the next run goes on there.
func TestReconfigureStopsAtAFailure(t *testing.T) {
	file := aFile(t, newVersion)
	for _, c := range []struct{ host, fails, follow string }{
		{"cp1", "reconfigure --config", ""},
		{"cp3", "reconfigure node", "cp1 cp2"},
		{"w1", "reconfigure node", "cp1 cp2 cp3"},
	} {
		w := modelsite.New(configured("2"))
		want := strings.ReplaceAll(applied(t, w, configured("2"), file, newVersion), `"value":"2"`, `"value":"4"`)
		w.Fails[c.host] = c.fails
		d := &driver{w: w, c: configured("4"), file: file, version: newVersion}
		err := d.apply(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), c.host+": ") || !strings.Contains(fault.Hint(err), "see the model") {
			t.Errorf("%s: %v, hint %q", c.host, err, fault.Hint(err))
		}
		var follow []string
		for _, h := range d.c.Hosts {
			if strings.Contains(w.Hosts[h.Name].Config, `"value":"4"`) {
				follow = append(follow, h.Name)
			}
		}
		if got := strings.Join(follow, " "); got != c.follow {
			t.Errorf("%s: %q follow, want %q", c.host, got, c.follow)
		}
		delete(w.Fails, c.host)
		if state := applied(t, w, configured("4"), file, newVersion); state != want {
			t.Errorf("%s:\n%s\nwant\n%s", c.host, state, want)
		}
	}
}

// What a running cluster cannot change is refused before the first change.
func TestReconfigureIsRefused(t *testing.T) {
	file := aFile(t, newVersion)
	w := modelsite.New(configured("2"))
	before := applied(t, w, configured("2"), file, newVersion)
	w.Refuses = `"value":"4"`
	n := len(w.Seen)
	d := &driver{w: w, c: configured("4"), file: file, version: newVersion}
	err := d.apply(t.Context())
	if err == nil || !strings.Contains(err.Error(), "each node has a part of it") || !strings.Contains(err.Error(), "a new cluster") {
		t.Error(err)
	}
	if got := following(w, n); len(got) > 0 || w.State() != before {
		t.Errorf("%q\n%s", got, w.State())
	}
}

// A change is planned and made with the patches of each host.
func TestReconfigureWithPatches(t *testing.T) {
	file := aFile(t, newVersion)
	with := func(v string) *spec.Cluster {
		c := configured(v)
		for i := range c.Hosts {
			c.Hosts[i].Patches = somePatches(t)
		}
		return c
	}
	w := modelsite.New(with("2"))
	applied(t, w, with("2"), file, newVersion)
	n := len(w.Seen)
	applied(t, w, with("4"), file, newVersion)
	for _, line := range w.Seen[n:] {
		if strings.Contains(line, "/install reconfigure") && !strings.Contains(line, " --patches ") || strings.Contains(line, aPatch) {
			t.Error(line)
		}
	}
}

const aPatch = "maxPods: 77\n"

// somePatches returns a directory with a patch in it and one in a directory of it.
func somePatches(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kubeletconfiguration.yaml", "it's etcd/etcd 1.yaml"} {
		for _, err := range []error{os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(aPatch), 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// Each plan has its own patches, while it runs: not those of another driver, and nothing is left of one that was interrupted. What a
// killed one has left is removed by the next.
func TestPatchesOfAPlan(t *testing.T) {
	h := &run.Host{Host: spec.Host{Name: "w1", NodeValues: spec.NodeValues{Patches: somePatches(t)}}}
	dir := t.TempDir() // instead of /run
	plan := func(script string) *exec.Cmd {
		args, input, err := run.PlanWithPatches(h, []string{"/bin/sh", "-c", script, "installer"}, strings.NewReader("documents"))
		if err != nil {
			t.Fatal(err)
		}
		args[2] = strings.ReplaceAll(args[2], "/run/", dir+"/")
		c := exec.Command(args[0], args[1:]...)
		c.Stdin, c.SysProcAttr = input, &syscall.SysProcAttr{Setpgid: true}
		return c
	}
	const show = `cat "$2/kubeletconfiguration.yaml" "$2/it's etcd/etcd 1.yaml" -; echo; ls -ld "$2" | cut -c1-10; exit 5`
	left := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	out, err := plan(show).Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 5 || string(out) != aPatch+aPatch+"documents\ndrwx------\n" || left() != 0 {
		t.Errorf("%q, %v; %d directories are left", out, err, left())
	}
	waiting := func() *exec.Cmd {
		c := plan("echo began; exec sleep 1009")
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	end := func(c *exec.Cmd, s syscall.Signal) {
		if err := syscall.Kill(-c.Process.Pid, s); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
	}
	one, two := waiting(), waiting()
	if n := left(); n != 2 {
		t.Errorf("two drivers have %d directories", n)
	}
	end(one, syscall.SIGINT)
	if n := left(); n != 1 {
		t.Errorf("%d directories after an interruption of one", n)
	}
	reused := filepath.Join(dir, fmt.Sprintf("airlift-planned-patches.%d.1", os.Getpid())) // of a process whose number another one has now
	if err := os.Mkdir(reused, 0o700); err != nil {
		t.Fatal(err)
	}
	end(two, syscall.SIGKILL)
	if _ = plan(show).Run(); left() != 0 {
		t.Errorf("%d directories are left of a killed plan", left())
	}
}
