package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"airlift/scripts/fixtures/rig"
)

// TestPlantedOutputs: root writes files into a directory in which another user
// has prepared links and pipes.
func TestPlantedOutputs(t *testing.T) {
	rig.Root(t) // to create files that belong to another user
	const config = `apiVersion: kubeadm.k8s.io/v1beta3
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1}
nodeRegistration: {name: node, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
kubernetesVersion: v1.29.15
`
	commands := map[string]struct {
		name string // file that the command writes in the directory
		args func(config, dir string) []string
	}{
		"timeline": {"init.json", func(_, dir string) []string { return []string{"init", "--timeline", dir + "/init.json"} }},
		"migrate": {"new.yaml", func(config, dir string) []string {
			return []string{"config", "migrate", "--old-config", config, "--new-config", dir + "/new.yaml"}
		}},
		"generate-csr": {"ca.key", func(config, dir string) []string {
			return []string{"certs", "generate-csr", "--config", config, "--cert-dir", dir, "--kubeconfig-dir", dir}
		}},
		"generate-csr in a directory": {"x", func(config, dir string) []string {
			return []string{"certs", "generate-csr", "--config", config, "--rootfs", dir}
		}},
	}
	plants := map[string]func(t *testing.T, victim, path string){
		"symbolic link": func(t *testing.T, victim, path string) { must(t, os.Symlink(victim, path)) },
		"pipe":          func(t *testing.T, _, path string) { must(t, syscall.Mkfifo(path, 0o666)) },
	}
	for command, c := range commands {
		for plant, put := range plants {
			t.Run(command+" over a "+plant, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "theirs")
				must(t, os.Mkdir(dir, 0o777))
				victim, file := filepath.Join(t.TempDir(), "victim"), filepath.Join(t.TempDir(), "old.yaml")
				must(t, os.WriteFile(victim, []byte("secret"), 0o600))
				must(t, os.WriteFile(file, []byte(config), 0o600))
				put(t, victim, filepath.Join(dir, c.name))
				must(t, os.Chown(dir, 1000, 1000))
				_, stderr, code := install(t, c.args(file, dir)...)
				if code != 2 || !strings.Contains(stderr, "belongs to user 1000") || !strings.Contains(stderr, "hint: ") {
					t.Errorf("exit code %d\n%s", code, stderr)
				}
				if data, err := os.ReadFile(victim); err != nil || string(data) != "secret" {
					t.Errorf("the victim is %q (%v)", data, err)
				}
				if list, _ := os.ReadDir(dir); len(list) != 1 {
					t.Errorf("written there: %v", list)
				}
			})
		}
	}
}

// TestExamplesDoNotWriteToTmp: users copy examples from the help, so the
// examples must be safe.
func TestExamplesDoNotWriteToTmp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if strings.Contains(cmd.Example, "/tmp") {
			t.Errorf("%s: %s", cmd.CommandPath(), cmd.Example)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRootCmd())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
