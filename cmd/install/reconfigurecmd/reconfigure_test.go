package reconfigurecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/installer/reconfiguration"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// TestFlags: mistakes are found before this file or the host is opened.
func TestFlags(t *testing.T) {
	dir := t.TempDir()
	small, large, broken := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "large"), filepath.Join(dir, "kubeadm.yaml")
	for name, size := range map[string]int{small: 9, large: reconfiguration.MaxFiles + 1} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(broken, []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnoSuchField: one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--config -", "--yes"},
		{"--config " + small + " -o json", "--output is for --plan"},
		{"--config " + small + " --detailed-exitcode", "--detailed-exitcode is for --plan"},
		{"--plan", "nothing was given that changes the configuration"},
		{"--yes", "give --config, --file, --profile or --restore"},
		{"--config " + small + " --plan -c -1", "--context-lines -1 is negative"},
		{"--config " + broken + " --plan", "noSuchField"},
		{"--config " + dir + "/none --plan", "none"},
		{"--file policy.yaml=" + small, "PATH=FILE"},
		{"--file /etc/../policy.yaml=" + small, "PATH=FILE"},
		{"--file /etc/policy.yaml", "PATH=FILE"},
		{"--file /etc/policy.yaml=", "PATH=FILE"},
		{"--file /etc/policy.yaml=" + dir, "is not a file of at most 512 KiB"},
		{"--file /etc/policy.yaml=" + large, "is not a file of at most 512 KiB"},
		{"--file /etc/policy.yaml=" + dir + "/none", "none"},
		{"--file /etc/policy.yaml=" + small + " --file /etc/policy.yaml=" + small, "is given twice"},
		{"node --config " + broken, "ClusterConfiguration"},
		{"node --file /etc/policy.yaml=" + small, "unknown flag: --file"},
	} {
		cmd := New(nodecmd.Environment{Console: func(*cobra.Command) *workflow.Console { return &workflow.Console{Out: t.Output()} }})
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(strings.Fields(c.args))
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error()+fault.Hint(err), c.want) {
			t.Errorf("%s: %v\n%s\nwant %q", c.args, err, fault.Hint(err), c.want)
		}
	}
}
