package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// What components of v1.29.15 write before they exit.
const (
	unknownFlag = "Error: unknown flag: --no-such-flag"
	noEtcd      = `F1122 10:57:%02d.123456       1 instance.go:290] Error creating leases: error creating storage factory: context deadline exceeded`
	noConfigMap = `E1122 10:57:%02d.123456       1 run.go:74] "command failed" err="unable to load configmap based request-header-client-ca-file: Get \"https://10.1.2.3:6443/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication\": dial tcp 10.1.2.3:6443: connect: connection refused"`
)

// aRuntime has the containers of one pod after another start and exit.
type aRuntime struct {
	t          *testing.T
	began      time.Time
	containers []store.Container
	exits      map[string]store.Exit
}

func newRuntime(t *testing.T) *aRuntime {
	return &aRuntime{t: t, began: time.Now().Add(-time.Hour), exits: map[string]store.Exit{}}
}

// ran adds a run of a static pod's container, from second to second. The kubelet
// keeps only the newest container that exited.
func (r *aRuntime) ran(component string, from, to int, code int32, log string) {
	r.t.Helper()
	r.containers = slices.DeleteFunc(r.containers, func(k store.Container) bool { return k.Name == component })
	id := fmt.Sprint(component, from)
	k := store.Container{ID: id, Namespace: "kube-system", Pod: component + "-one", PodUID: "uid", Name: component, Created: r.at(from), Exited: to >= 0}
	r.containers = append(r.containers, k)
	if to < 0 {
		return
	}
	file := filepath.Join(r.t.TempDir(), "0.log")
	if err := os.WriteFile(file, []byte("2026-11-22T10:57:27.1Z stderr F "+log+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.exits[id] = store.Exit{Code: code, Reason: "Error", Started: r.at(from), Finished: r.at(to), LogPath: file}
}

func (r *aRuntime) at(second int) time.Time { return r.began.Add(time.Duration(second) * time.Second) }

func (r *aRuntime) Containers(context.Context) ([]store.Container, error) { return r.containers, nil }

func (r *aRuntime) Exit(_ context.Context, id string) (store.Exit, error) {
	exit, ok := r.exits[id]
	if !ok {
		return exit, errors.New("no such container")
	}
	return exit, nil
}

// see looks at the containers and returns the ends that are new.
func (r *aRuntime) see(c *crashes, second int) []end {
	r.t.Helper()
	news, err := c.seeContainers(r.t.Context(), r, r.at(second))
	if err != nil {
		r.t.Fatal(err)
	}
	return news
}

// The kubelet restarts a container at once, and then after 10, 20 and 40 s.
var restarts = []int{0, 1, 12, 33, 74, 155}

func TestContainerThatWillNotRecover(t *testing.T) {
	r := newRuntime(t)
	c := newCrashes(r.began)
	if news := r.see(c, 0); len(news) > 0 {
		t.Errorf("without a container: %v", news)
	}
	for n, second := range restarts[:4] {
		r.ran("kube-apiserver", second, second, 1, unknownFlag)
		news := r.see(c, second+1)
		if len(news) != 1 {
			t.Fatalf("at %d s: %v", second, news)
		}
		for _, want := range []string{"container kube-apiserver of pod kube-system/kube-apiserver-one exited with code 1;", "\n  " + unknownFlag} {
			if !strings.Contains(news[0].String(), want) {
				t.Errorf("%q is not in %q", want, news[0])
			}
		}
		if again := r.see(c, second+1); len(again) > 0 {
			t.Errorf("the same end is reported again: %v", again)
		}
		err := c.hopeless(APIComponents, r.at(second+1))
		if n < 3 && err != nil {
			t.Errorf("given up after %d s: %v", second, err)
		}
		if n < 3 {
			continue
		}
		if err == nil {
			t.Fatalf("not given up after %d s", second)
		}
		for _, want := range []string{"kube-apiserver", "code 1, 4 times in 34s", unknownFlag} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
		if hint := fault.Hint(err); !strings.Contains(hint, news[0].log) || strings.Contains(hint, "crictl") {
			t.Errorf("hint %q", hint)
		}
		if err := c.hopeless(nil, r.at(second+1)); err != nil {
			t.Errorf("a container that is not needed: %v", err)
		}
	}
}

// A host that is too slow for the leases of the control plane gets a way out.
func TestLostLease(t *testing.T) {
	r := newRuntime(t)
	c := newCrashes(r.began)
	r.ran("kube-controller-manager", 0, 90, 1, `E1123 01:40:19.994680       1 controllermanager.go:413] "leaderelection lost/stopped"`)
	r.ran("kube-scheduler", 0, 90, 1, `E1123 01:42:56.421272       1 server.go:337] "Leaderelection lost"`)
	r.ran("etcd", 0, 90, 1, "no space left on device")
	for _, e := range r.see(c, 91) {
		if has := strings.Contains(e.String(), "leader-elect-renew-deadline"); has != (e.component != "etcd") {
			t.Errorf("the flag is in the text of %s: %v\n%s", e.component, has, e)
		}
	}
	if n := len(c.ends); n != 3 {
		t.Errorf("%d ends, want 3", n)
	}
}

// The user sees each error once, also if the container has ended twice before the
// first look.
func TestEachErrorIsShownOnce(t *testing.T) {
	root := t.TempDir()
	var out bytes.Buffer
	n := NewWatch(node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: &out}), func() string { return config.ContainerdSocket })
	r := newRuntime(t)
	n.crashes = newCrashes(r.began)
	r.ran("kube-apiserver", 0, 0, 1, unknownFlag)
	first := r.containers[0]
	r.ran("kube-apiserver", 1, 1, 1, unknownFlag)
	r.containers = append(r.containers, first)
	for _, e := range r.see(n.crashes, 2) {
		n.showEnd(e)
	}
	r.ran("kube-apiserver", 12, 12, 1, "another error")
	for _, e := range r.see(n.crashes, 13) {
		n.showEnd(e)
	}
	if got := out.String(); strings.Count(got, unknownFlag) != 1 || strings.Count(got, "another error") != 1 || strings.Count(got, "warning: ") != 2 {
		t.Errorf("shown:\n%s", got)
	}
}

func TestContainersThatMayRecover(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(r *aRuntime, n, second int)
	}{
		// etcd needs minutes on a slow disk, and the API server gives up after 20 s.
		{"it waited for another one", func(r *aRuntime, _, second int) {
			r.ran("kube-apiserver", second-20, second, 255, fmt.Sprintf(noEtcd, second%60))
		}},
		{"with another error each time", func(r *aRuntime, n, second int) {
			r.ran("kube-apiserver", second, second, 1, strings.Repeat("x", n))
		}},
		{"with another code each time", func(r *aRuntime, n, second int) { r.ran("kube-apiserver", second, second, int32(n+1), unknownFlag) }},
		{"it ended well", func(r *aRuntime, _, second int) { r.ran("kube-apiserver", second, second, 0, "") }},
		{"it runs again", func(r *aRuntime, n, second int) {
			r.ran("kube-apiserver", second, second, 1, unknownFlag)
			if n >= 3 {
				exited := r.containers[0]
				r.ran("kube-apiserver", second+1, -1, 0, "")
				r.containers = append(r.containers, exited)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRuntime(t)
			c := newCrashes(r.began.Add(-time.Minute))
			for n, second := range restarts {
				tt.run(r, n, second)
				r.see(c, second+1)
				if err := c.hopeless(APIComponents, r.at(second+1)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// While the API server does not answer, its clients exit and recover later.
func TestClientsMayEndWithoutAnAPI(t *testing.T) {
	r := newRuntime(t)
	c := newCrashes(r.began)
	for n, second := range restarts {
		r.ran("kube-scheduler", second, second, 1, fmt.Sprintf(noConfigMap, second%60))
		r.ran("etcd", second, second, 1, unknownFlag)
		r.see(c, second+1)
		c.forgetAPIClients()
		if err := c.hopeless([]string{"kube-scheduler"}, r.at(second+1)); err != nil {
			t.Fatal(err)
		}
		if err := c.hopeless([]string{"etcd"}, r.at(second+1)); err != nil != (n >= 3) {
			t.Errorf("etcd at %d s: %v", second, err)
		}
	}
	// With an API, the same is an error.
	for _, second := range restarts[:4] {
		r.ran("kube-scheduler", 200+second, 200+second, 1, fmt.Sprintf(noConfigMap, second%60))
		r.see(c, 200+second+1)
	}
	if err := c.hopeless([]string{"kube-scheduler"}, r.at(240)); err == nil || !strings.Contains(err.Error(), "extension-apiserver-authentication") {
		t.Errorf("%v", err)
	}
}

func TestEndsOfAnEarlierRun(t *testing.T) {
	r := newRuntime(t)
	r.ran("kube-apiserver", 0, 0, 1, unknownFlag)
	c := newCrashes(r.at(60))
	if news := r.see(c, 61); len(news) > 0 {
		t.Errorf("the kubelet may still replace the pod: %v", news)
	}
	if news := r.see(c, 81); len(news) != 1 {
		t.Errorf("the kubelet has not replaced the pod: %v", news)
	}

	c = newCrashes(r.at(60))
	old := r.containers[0]
	r.ran("kube-apiserver", 62, -1, 0, "")
	r.containers = append(r.containers, old)
	if news := r.see(c, 120); len(news) > 0 {
		t.Errorf("the replaced pod: %v", news)
	}
}

// The kubelet stops a static pod once when its manifest has changed, and again and
// again when its liveness probe fails.
func TestContainerThatTheKubeletStops(t *testing.T) {
	r := newRuntime(t)
	c := newCrashes(r.began)
	for n, second := range []int{10, 90} {
		r.ran("kube-apiserver", second-10, second, 137, "http: Accept error")
		if news := r.see(c, second); len(news) != n {
			t.Errorf("stop %d: %v", n+1, news)
		}
	}
	r.ran("etcd", 0, 5, 137, "")
	killed := r.exits["etcd0"]
	killed.Reason = "OOMKilled"
	r.exits["etcd0"] = killed
	if news := r.see(c, 6); len(news) != 1 || !strings.Contains(news[0].String(), "code 137 (OOMKilled)") {
		t.Errorf("out of memory: %v", news)
	}
}

func TestKubeletThatWillNotRecover(t *testing.T) {
	const line = `E1122 10:57:27.1 1 run.go:74] "command failed" err="failed to run Kubelet: no such file"`
	began := time.Now()
	tail := func() []string { return []string{"I1122 starting", line} }
	ended := func(second int) systemd.UnitState {
		at := began.Add(time.Duration(second) * time.Second)
		return systemd.UnitState{Active: "activating", Sub: "auto-restart", Exit: &systemd.UnitExit{Code: 1, Started: at, Finished: at.Add(time.Second)}}
	}
	c := newCrashes(began)
	if news := c.seeKubelet(systemd.UnitState{Active: "active", Sub: "running"}, tail); len(news) > 0 {
		t.Errorf("a running kubelet: %v", news)
	}
	for n, second := range []int{-5, 0, 11, 22, 33} {
		news := c.seeKubelet(ended(second), tail)
		if want := min(n, 1); len(news) != want {
			t.Fatalf("at %d s: %v", second, news)
		}
		if again := c.seeKubelet(ended(second), tail); len(again) > 0 {
			t.Errorf("the same end is reported again: %v", again)
		}
		err := c.hopeless(nil, began.Add(time.Duration(second+2)*time.Second))
		if n < 4 && err != nil {
			t.Errorf("given up after %d s: %v", second, err)
		}
		if n == 4 && (err == nil || !strings.Contains(err.Error(), line) || !strings.Contains(fault.Hint(err), "journalctl -u kubelet")) {
			t.Errorf("%v", err)
		}
	}

	// The journal shows the last lines later than systemd shows the end.
	c = newCrashes(began)
	if news := c.seeKubelet(ended(1), func() []string { return nil }); len(news) > 0 {
		t.Errorf("without the log: %v", news)
	}
	if news := c.seeKubelet(ended(1), tail); len(news) != 1 {
		t.Errorf("with the log: %v", news)
	}

	c = newCrashes(began)
	failed := ended(1)
	failed.Active, failed.Sub = "failed", "failed"
	c.seeKubelet(failed, tail)
	if err := c.hopeless(nil, began.Add(2*time.Second)); err == nil || !strings.Contains(err.Error(), "systemd does not restart it") {
		t.Errorf("a unit that failed: %v", err)
	}
}

// A wait that gives up shows how containers ended, processes that do not run now first.
func TestWaitThatGivesUpExplainsWhy(t *testing.T) {
	r := newRuntime(t)
	c := newCrashes(r.began)
	timeout := fault.New(fault.Failure, "gave up").Hint("the wait's own hint")
	if err := c.explain(timeout); err != timeout {
		t.Errorf("nothing ended: %v", err)
	}
	r.ran("etcd", 0, 1, 2, "etcd's error")
	r.see(c, 2)
	r.ran("etcd", 3, -1, 0, "")
	r.ran("kube-apiserver", 0, 1, 1, unknownFlag)
	r.see(c, 4)
	err := c.explain(timeout)
	if i, j := strings.Index(err.Error(), unknownFlag), strings.Index(err.Error(), "etcd's error"); i < 0 || j < i || !errors.Is(err, timeout) {
		t.Errorf("%v", err)
	}
	if hint := fault.Hint(err); !strings.Contains(hint, r.exits["kube-apiserver0"].LogPath) {
		t.Errorf("hint %q", hint)
	}
}

func TestWatchedWaitEnds(t *testing.T) {
	for name, lost := range map[string]func(context.Context) error{
		"with the cause":    func(ctx context.Context) error { return fmt.Errorf("waiting: %w", context.Cause(ctx)) },
		"without the cause": func(ctx context.Context) error { return fmt.Errorf("promoting: %w", ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			n := NewWatch(node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: new(bytes.Buffer)}), func() string { return config.ContainerdSocket })
			r := newRuntime(t)
			n.crashes = newCrashes(r.began)
			for _, second := range restarts[:4] {
				r.ran("etcd", second, second, 1, unknownFlag)
				r.see(n.crashes, second+1)
			}
			n.crashes.down["container etcd of pod kube-system/etcd-one"] = true
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := n.Watched(ctx, Dependency{Components: APIComponents}, func(ctx context.Context) error {
				<-ctx.Done()
				return lost(ctx)
			})
			if err == nil || !strings.Contains(err.Error(), unknownFlag) || fault.ExitCode(err) != fault.Failure {
				t.Errorf("%v, exit code %d", err, fault.ExitCode(err))
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		root := t.TempDir()
		n := NewWatch(node.NewMachine(testhost.Open(t, root), &workflow.Console{Out: new(bytes.Buffer)}), func() string { return config.ContainerdSocket })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := n.Watched(ctx, Dependency{}, func(ctx context.Context) error { return fmt.Errorf("waiting: %w", context.Cause(ctx)) })
		if fault.ExitCode(err) != fault.Interrupted {
			t.Errorf("%v, exit code %d", err, fault.ExitCode(err))
		}
	})
}
