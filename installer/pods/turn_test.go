package pods

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// turnPods returns the static pods of a host with an API server, and the console's output.
func turnPods(t *testing.T, locked bool, server string) (*StaticPods, *strings.Builder) {
	t.Helper()
	out := &strings.Builder{}
	pods, err := NewStaticPods(&config.Config{}, testhost.OfServer(t, server, locked), &workflow.Console{Out: io.MultiWriter(out, t.Output()), Results: out, Verbosity: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pods.Close)
	return pods, out
}

// The lock of the host comes before the turn: without it, another process of the host may be alive.
func TestTurnNeedsTheLock(t *testing.T) {
	api := &testhost.LeaseAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	pods, _ := turnPods(t, false, server.URL)
	if err := pods.TakeTurn(t.Context(), node.AdminConf); err == nil || !strings.Contains(err.Error(), "does not have the lock") || len(api.Requests()) > 0 {
		t.Errorf("%v, requests %q", err, api.Requests())
	}
}

// A run whose turn was lost restarts nothing and writes no manifest. It leaves the turn to its holder.
func TestNoRestartWithoutTheTurn(t *testing.T) {
	api := &testhost.LeaseAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	pods, _ := turnPods(t, true, server.URL)
	for range 2 { // it does not take it twice
		if err := pods.TakeTurn(t.Context(), node.AdminConf); err != nil {
			t.Fatal(err)
		}
	}
	api.Give("host2_X")
	before := readTree(t, pods.Host.Path(config.ManifestsDir))
	for name, do := range map[string]func() error{
		"Restart":        func() error { return pods.Restart(t.Context(), "kube-apiserver") },
		"RestartKubelet": func() error { return pods.RestartKubelet(t.Context()) },
		"Replace": func() error {
			_, err := pods.Replace(t.Context(), "kube-scheduler", []byte("{}"), nil)
			return err
		},
	} {
		err := do()
		if !errors.Is(err, lease.ErrNoTurn) || !strings.Contains(err.Error(), "has lost its turn to host2") || !strings.Contains(fault.Hint(err), "when the command on host2 has finished") {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
	if after := readTree(t, pods.Host.Path(config.ManifestsDir)); after != before {
		t.Errorf("manifests changed:\n%s", after)
	}
	pods.Close()
	if !api.Held() {
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
		pods, out := turnPods(t, true, url)
		if err := pods.TakeTurn(t.Context(), node.AdminConf); !errors.Is(err, node.ErrNoAPI) || fault.Hint(err) == "" {
			t.Errorf("%s: %v", url, err)
		}
		if turn, err := node.TryTurn(t.Context(), pods.Machine, node.AdminConf, 0); turn != nil || err != nil || !strings.Contains(out.String(), "not waiting for other control planes") {
			t.Errorf("%s: %v, %v\n%s", url, turn, err, out)
		}
	}
}
