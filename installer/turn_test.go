package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
)

// turnAPI is an API server with one Lease. It is for tests of who asks when; package cluster tests the
// Lease with a real one.
type turnAPI struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	requests []string
}

func (a *turnAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	leases := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	if !strings.HasPrefix(r.URL.Path, leases) {
		switch path.Base(r.URL.Path) {
		case "version", "readyz":
			answer(map[string]string{"gitVersion": "v1.37.1"})
		case "nodes":
			answer(corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "host2"}}}})
		case "pods":
			answer(corev1.PodList{})
		default:
			http.NotFound(w, r)
		}
		return
	}
	a.requests = append(a.requests, r.Method)
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		var l coordinationv1.Lease
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &l)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.version++
		l.ResourceVersion = strconv.Itoa(a.version)
		a.lease = &l
		answer(a.lease)
	case a.lease == nil:
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	case r.Method == http.MethodDelete:
		a.lease = nil
		answer(metav1.Status{Status: metav1.StatusSuccess})
	default:
		answer(a.lease)
	}
}

// give gives the turn to another control plane.
func (a *turnAPI) give(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease.Spec.HolderIdentity = &holder
}

// turnHost returns a host with an API server, and the console's output.
func turnHost(t *testing.T, locked bool, server string) (*StaticPods, *strings.Builder) {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		adminConf: fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n", server),
	}
	for _, name := range staticPodOrder {
		files[manifestPath(name)] = "metadata: {name: " + name + "}\nspec: {containers: [{name: " + name + ", image: a, command: [" + name + "]}]}\n"
	}
	delete(files, etcdManifest) // this etcd is external
	for file, data := range files {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(root, file), []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	open := host.Open
	if locked {
		open = func(root string) (*host.Host, error) {
			h, unlock, err := host.OpenLocked(root)
			if err == nil {
				t.Cleanup(unlock)
			}
			return h, err
		}
	}
	h, err := open(root)
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	pods, err := NewStaticPods(&config.Config{}, h, &Console{Out: io.MultiWriter(out, t.Output()), Results: out, Verbosity: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pods.Close)
	return pods, out
}

// The lock of the host comes before the turn: without it, another process of the host may be alive.
func TestTurnNeedsTheLock(t *testing.T) {
	api := &turnAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	pods, _ := turnHost(t, false, server.URL)
	if err := pods.TakeTurn(t.Context(), adminConf); err == nil || !strings.Contains(err.Error(), "does not have the lock") || len(api.requests) > 0 {
		t.Errorf("%v, requests %q", err, api.requests)
	}
}

// A run whose turn was lost restarts nothing and writes no manifest. It leaves the turn to its holder.
func TestNoRestartWithoutTheTurn(t *testing.T) {
	api := &turnAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	pods, _ := turnHost(t, true, server.URL)
	for range 2 { // it does not take it twice
		if err := pods.TakeTurn(t.Context(), adminConf); err != nil {
			t.Fatal(err)
		}
	}
	api.give("host2_X")
	before := readTree(t, pods.host.Path(config.ManifestsDir))
	for name, do := range map[string]func() error{
		"Restart":        func() error { return pods.Restart(t.Context(), "kube-apiserver") },
		"RestartKubelet": func() error { return pods.RestartKubelet(t.Context()) },
		"Replace": func() error {
			_, err := pods.Replace(t.Context(), "kube-scheduler", []byte("{}"), nil)
			return err
		},
		"a stage of a rotation": func() error {
			r := &CARotation{machine: pods.machine, pods: pods, options: RotationOptions{Stage: RotationDistribute}}
			steps := r.Steps()
			i := slices.IndexFunc(steps, func(s Step) bool { return s.Name == "next-cas" })
			return steps[i].Run(t.Context())
		},
	} {
		err := do()
		if !errors.Is(err, cluster.ErrNoTurn) || !strings.Contains(err.Error(), "has lost its turn to host2") || !strings.Contains(fault.Hint(err), "when the command on host2 has finished") {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
	if after := readTree(t, pods.host.Path(config.ManifestsDir)); after != before {
		t.Errorf("manifests changed:\n%s", after)
	}
	pods.Close()
	if api.lease == nil {
		t.Error("it dropped the turn of host2")
	}
}

// readTree returns the names and contents of files.
func readTree(t *testing.T, dir string) (all string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all += e.Name() + "\n" + string(data)
	}
	return all
}

// Without an API server, a turn cannot be taken. Only commands for broken clusters go on.
func TestTurnWithoutAPI(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	}))
	defer server.Close()
	for _, url := range []string{server.URL, "http://127.0.0.1:1"} {
		pods, out := turnHost(t, true, url)
		if err := pods.TakeTurn(t.Context(), adminConf); !errors.Is(err, ErrNoAPI) || fault.Hint(err) == "" {
			t.Errorf("%s: %v", url, err)
		}
		if turn, err := tryTurn(t.Context(), pods.machine, adminConf, 0); turn != nil || err != nil || !strings.Contains(out.String(), "not waiting for other control planes") {
			t.Errorf("%s: %v, %v\n%s", url, turn, err, out)
		}
	}
}

// A control plane does not join a cluster whose CAs are being rotated.
func TestNoJoinDuringRotation(t *testing.T) {
	for stage, status := range map[string]int{"distribute": 200, "issue": 200, "cancel": 200, "none": 404, "forbidden": 403} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if status == http.StatusOK {
				_ = json.NewEncoder(w).Encode(corev1.ConfigMap{Data: map[string]string{"stage": stage}})
				return
			}
			reason := map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden}[status]
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Reason: reason})
		}))
		pods, _ := turnHost(t, false, server.URL)
		client, err := loadClient(pods.host, adminConf, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		err = checkNoRotation(t.Context(), client)
		if refused := status == http.StatusOK; (err != nil) != refused || refused && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), stage) || !strings.Contains(fault.Hint(err), "rotate-ca status")) {
			t.Errorf("%s: %v", stage, err)
		}
		server.Close()
	}
}

// TestSelectMember: an empty name, a part of an ID and a name that may be an ID select no member.
func TestSelectMember(t *testing.T) {
	members := []etcd.Member{
		{ID: 0x10, Name: "host1"},
		{ID: 0x8e9e05c52164694d, PeerURL: "https://10.0.0.4:2380", Learner: true}, // a host that joins
		{ID: 0x9f, Name: "8e9e05c52164694d"},
		{ID: 0xa1, Name: "twice"}, {ID: 0xa2, Name: "twice"},
	}
	for name, want := range map[string]uint64{
		"host1": 0x10, "10": 0x10, "0x10": 0x10, "0000000000000010": 0x10, "9f": 0x9f, "9F": 0x9f,
		"0x8e9e05c52164694d": 0x8e9e05c52164694d, "0X8E9E05C52164694D": 0x8e9e05c52164694d, "a2": 0xa2,
		"": 0, " ": 0, "0x": 0, "0": 0, "8e9e": 0, "host": 0, "HOST1": 0, "8e9e05c52164694d": 0, "twice": 0, "-10": 0, "10 ": 0,
	} {
		m, err := selectMember(members, name)
		if m.ID != want || (err == nil) != (want != 0) || err != nil && (fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "") {
			t.Errorf("%q: %x, %v, hint %q", name, m.ID, err, fault.Hint(err))
		}
	}
	if _, err := selectMember(members, "8e9e05c52164694d"); !strings.Contains(fault.Hint(err), "./install etcd member remove 0x8e9e05c52164694d, or ./install etcd member remove 0x000000000000009f") {
		t.Errorf("hint %q", fault.Hint(err))
	}
}
