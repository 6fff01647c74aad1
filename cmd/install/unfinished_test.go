package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// continues are the commands that finish an interrupted reset or restore, begin anew after it, or save what it left. The driver's commands change this
// host only through the commands of the agent.
var continues = []string{"reset", "init", "join", "disown", "etcd restore", "etcd snapshot", "cluster"}

// arguments has the arguments of commands whose examples need more files on a host.
var arguments = map[string][]string{
	"cluster host hold":  {"--who root@driver"},
	"etcd member remove": {"host2"},
	"node addresses":     {"host2"},
	"images unpin":       {"--all"},
	"certs generate-csr": {"--kubeconfig-dir /root/csr --cert-dir /root/csr"},
	"registry mirrors":   {"--off"},
	"config validate":    {"--config /root/kubeadm.yaml"},
	"config migrate":     {"--old-config /root/kubeadm.yaml"},
	"kubeconfig user":    {"--client-name jane"},
	"token delete":       {"abcdef"},
	"certs approve":      {""},
	"docs":               {"--help"},
}

// TestUnfinishedRunsRefuseChanges: on a host with an interrupted reset or restore, each command of the command tree is typed as its examples have it. None
// changes a file, and commands that would change the host refuse before they begin.
func TestUnfinishedRunsRefuseChanges(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "unshare")
	for name, interrupt := range map[string]func(root string) error{
		"reset": func(root string) error {
			return testhost.Open(t, root).Records().BeginReset(ledger.Identity{Node: "host1"})
		},
		"restore": func(root string) error {
			return node.WriteRecord(testhost.Open(t, root), node.RestoreMarkPath, node.RestoreMark{File: "/mnt/usb/cluster.tar"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			must(t, layouts.Kubeadm(layouts.Options{Version: "v1.37.1"}).WriteInside(root))
			must(t, os.MkdirAll(filepath.Join(root, "root"), 0o700))
			must(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
			must(t, os.Rename(bundleFile(t, "v1.37.1"), filepath.Join(root, "root/install")))
			must(t, os.WriteFile(filepath.Join(root, "root/kubeadm.yaml"), []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n"), 0o600))
			must(t, os.WriteFile(filepath.Join(root, "root/policy.yaml"), []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600))
			must(t, interrupt(root))
			before, refused := onSystem(t, root), 0
			for _, line := range lines(newRootCmd()) {
				out, code := inRoot(t, root, line)
				after := onSystem(t, root)
				if !maps.Equal(before, after) {
					t.Errorf("%q (exit code %d) changed %q\n%s", line, code, differing(before, after), out)
					before = after
				}
				if strings.Contains(out, "a "+name+" o") && strings.Contains(out, "is not finished") {
					refused++
					if code != 3 || !strings.Contains(out, "hint: ") {
						t.Errorf("%q: exit code %d\n%s", line, code, out)
					}
				} else {
					t.Logf("%q: %d %.120q", line, code, out)
				}
			}
			if refused < 30 {
				t.Errorf("only %d commands refused", refused)
			}
		})
	}
}

// lines returns command lines for each command below cmd: its examples, or the command alone.
func lines(cmd *cobra.Command) (list []string) {
	for _, sub := range cmd.Commands() {
		list = append(list, lines(sub)...)
	}
	name := commandName(cmd)
	ends := func(of string) bool {
		return name == of || strings.HasPrefix(name, of+" ") && !strings.HasPrefix(name, "cluster host")
	}
	if !cmd.Runnable() || cmd.Name() == "help" || slices.ContainsFunc(continues, ends) {
		return list
	}
	given, known := arguments[name]
	for _, args := range given {
		list = append(list, strings.TrimSpace(name+" "+args))
	}
	if known {
		return list
	}
	found := false
	for line := range strings.Lines(cmd.Example) {
		line, _, _ = strings.Cut(line, " #")
		line, _, _ = strings.Cut(line, " >")
		line, _, _ = strings.Cut(line, " |")
		_, line, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && (line == name || strings.HasPrefix(line, name+" ")) {
			list, found = append(list, strings.TrimSpace(line)), true
		}
	}
	if !found {
		list = append(list, name)
	}
	return list
}

// inRoot runs the bundle below root, without a network. It answers each question with yes.
func inRoot(t *testing.T, root, line string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a command that waits for ever
	defer cancel()
	args := strings.Fields(strings.NewReplacer(`'`, "", `"`, "").Replace(line))
	const script = `mount --bind /proc "$0/proc"; mount -o remount,bind,ro "$0/proc"; exec unshare --root="$0" --wd=/root /root/install "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--net", "sh", "-ec", script, root}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1", "HOME=/root")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = strings.NewReader("y\n")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%q: %v, %v\n%s", line, err, ctx.Err(), out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// onSystem returns the files below root that are no user's.
func onSystem(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := testhost.Tree(t, root)
	maps.DeleteFunc(tree, func(name, _ string) bool {
		return name == "" || slices.ContainsFunc([]string{"/root", "/run", "/tmp"}, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
	})
	return tree
}

func differing(a, b map[string]string) (names []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for name := range all {
		was, existed := a[name]
		if is, exists := b[name]; was != is || existed != exists {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
