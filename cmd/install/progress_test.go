package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"airlift/internal/progress"
)

// events decodes the lines of an output of a command with --progress json.
func events(t *testing.T, text string) (list []progress.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var e progress.Event
		if err := d.Decode(&e); err != nil || e.Kind == "" || e.Time.IsZero() {
			t.Errorf("this line is no event: %q (%v)", line, err)
		}
		list = append(list, e)
	}
	return list
}

// TestProgressHasNoText runs commands, most of which fail before they change something. All that they print is events, and
// the last one is the error that they end with.
func TestProgressHasNoText(t *testing.T) {
	file := t.TempDir() + "/kubeadm.yaml"
	must(t, os.WriteFile(file, []byte("apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nkubernetesVersion: v1.29.15\n"), 0o600))
	for _, command := range []string{
		"", "init", "init --dry-run", "init --bogus", "init now", "init phase certs all", "init --config /nonexistent", "join 192.0.2.1:6443 --token abc", "join a:1 b:1",
		"upgrade apply", "upgrade node", "upgrade undo --dry-run", "upgrade plan", "upgrade diff", "reset --dry-run", "reset --force --bogus", "node remove", "node remove x --dry-run",
		"endpoint apply --control-plane-vip x", "endpoint node --dry-run", "endpoint status", "registry enable", "registry disable --dry-run", "registry mirrors --off --dry-run", "registry status", "import",
		"images list", "images prune", "apply", "preflight init", "preflight join a:1", "status", "etcd status", "etcd snapshot", "certs renew all --dry-run", "certs check-expiration",
		"certs rotate-ca status", "certs auto-renew", "token list", "token generate", "config validate --config " + file, "config images list", "version", "docs", "thin", "cluster", "cluster host nodes",
		"frobnicate", "--help", "init --help",
	} {
		t.Run(command, func(t *testing.T) {
			stdout, stderr, code := install(t, append([]string{"--progress", "json"}, strings.Fields(command)...)...)
			list := append(events(t, stderr), events(t, stdout)...)
			if len(list) == 0 {
				t.Fatal("it printed nothing")
			}
			last := list[len(list)-1]
			if ok := last.Kind == progress.Done && code == 0 || last.Kind == progress.Error && last.Code == code; !ok {
				t.Errorf("it ended with %d, its last event is %+v", code, last)
			}
		})
	}
}

// TestProgressLeavesDocuments: the document is on standard output, and all else on standard error.
func TestProgressLeavesDocuments(t *testing.T) {
	for _, command := range []string{"status -o json", "cluster host facts"} {
		t.Run(command, func(t *testing.T) {
			text, _, _ := install(t, strings.Fields(command)...)
			stdout, stderr, code := install(t, append([]string{"--progress", "json"}, strings.Fields(command)...)...)
			var before, document map[string]any
			if err := json.Unmarshal([]byte(text), &before); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(stdout), &document); err != nil || len(document) != len(before) {
				t.Errorf("%v: %s", err, stdout)
			}
			list := events(t, stderr)
			if last := list[len(list)-1]; last.Code != code {
				t.Errorf("it ended with %d, its last event is %+v", code, last)
			}
		})
	}
}

// TestDocumentedProgress reads the example in the documentation.
func TestDocumentedProgress(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```text\n{\"time\"")
	example, _, _ = strings.Cut("{\"time\""+example, "```")
	kinds := map[string]bool{}
	for _, e := range events(t, example) {
		kinds[e.Kind] = true
	}
	if len(kinds) < 4 {
		t.Errorf("the example has only %v", kinds)
	}
}
