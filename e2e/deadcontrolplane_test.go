//go:build e2e

package e2e

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// joinPlanes creates a cluster of all hosts as control planes, and returns the arguments with which
// the others have joined. Each host reaches the API server by its own address. more are arguments of init.
func joinPlanes(t *testing.T, hosts []*lab.Host, more ...string) (join []string) {
	t.Helper()
	for _, h := range hosts {
		endpointAt(t, h, hosts[0])
	}
	out := install(t, hosts[0], 0, append([]string{"init", "--control-plane-endpoint", endpoint + ":6443", "--upload-certs"}, more...)...)
	m := regexp.MustCompile(`(?m)(join ` + endpoint + `:6443 .* --control-plane --certificate-key [0-9a-f]{64})$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal("no join command for a control plane")
	}
	join = strings.Fields(m[1])
	for _, h := range hosts[1:] {
		install(t, h, 0, join...)
		endpointAt(t, h, h)
	}
	return join
}

// TestDeadControlPlane resets a control plane whose API server and etcd do not run, and joins it
// again under the same name. Then one control plane is restored from a backup, and the others join it.
func TestDeadControlPlane(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-dead", Hosts: 3})
	first, second, third := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	var join []string
	const file = "/root/cluster.tar"
	inOrder(t, s, []stage{
		{"three control planes", func(t *testing.T) {
			join = joinPlanes(t, s.Hosts)
			voters(t, first, 3)
		}},
		{"reset of one whose API server and etcd are down", func(t *testing.T) {
			run(t, third, "sh", "-c", "systemctl stop kubelet; pkill -9 -x etcd; pkill -9 -x kube-apiserver; sleep 1; ! pgrep -x 'etcd|kube-apiserver'")
			contains(t, install(t, third, 0, "reset", "--force"), "removed member "+third.Name)
			voters(t, first, 2)
			kubectl(t, s, "delete", "node", third.Name)
		}},
		{"it joins under the same name", func(t *testing.T) {
			endpointAt(t, third, first)
			install(t, third, 0, join...)
			endpointAt(t, third, third)
			voters(t, first, 3)
			systemIsUp(t, s, 3)
		}},
		{"reset of one whose manifests are lost, too", func(t *testing.T) {
			run(t, third, "sh", "-c", "systemctl stop kubelet; pkill -9 -x etcd; pkill -9 -x kube-apiserver; rm /etc/kubernetes/manifests/*.yaml")
			install(t, third, 0, "reset", "--force")
			kubectl(t, s, "delete", "node", third.Name)
			endpointAt(t, third, first)
			// Without its manifest, reset does not know that the host had an etcd: the member is still there.
			out := install(t, third, 1, join...)
			m := regexp.MustCompile(`hint: .*\./install (etcd member remove ([0-9a-f]{16}));`).FindStringSubmatch(out)
			if m == nil {
				t.Fatal("no command that removes the member")
			}
			contains(t, out, "etcd still has the member "+third.Name+" ")
			if status := install(t, first, 0, "etcd", "status"); !regexp.MustCompile(m[2] + ` +` + third.Name + ` `).MatchString(status) {
				t.Errorf("the hint names member %s:\n%s", m[2], status)
			}
			contains(t, install(t, first, 0, strings.Fields(m[1])...), "removed member "+third.Name+" ")
			install(t, third, 0, join...)
			endpointAt(t, third, third)
			voters(t, first, 3)
			systemIsUp(t, s, 3)
		}},
		{"one of three is restored, the others join again", func(t *testing.T) {
			kubectl(t, s, "create", "configmap", "saved")
			install(t, first, 0, "etcd", "snapshot", file)
			kubectl(t, s, "create", "configmap", "too-late")
			backup := run(t, first, "cat", file)
			for _, h := range s.Hosts {
				install(t, h, 0, "reset", "--force")
			}
			if err := second.Exec(t.Context(), strings.NewReader(backup), io.Discard, io.Discard, "sh", "-c", "cat >"+file); err != nil {
				t.Fatal(err)
			}
			endpointAt(t, second, second)
			out := install(t, second, 0, "etcd", "restore", file, "--upload-certs")
			m := regexp.MustCompile(`(?m)(join ` + endpoint + `:6443 .* --control-plane --certificate-key [0-9a-f]{64})$`).FindStringSubmatch(out)
			if m == nil {
				t.Fatal("no join command for a control plane")
			}
			for i, h := range []*lab.Host{first, third} {
				endpointAt(t, h, second)
				install(t, h, 0, strings.Fields(m[1])...)
				endpointAt(t, h, h)
				voters(t, second, i+2)
			}
			maps := kubectlAt(t, third, "get", "configmaps", "-o", "name")
			if contains(t, maps, "configmap/saved"); strings.Contains(maps, "too-late") {
				t.Error("an object is there that was created after the backup")
			}
			eventually(t, 2*time.Minute, func() string {
				nodes := strings.Fields(kubectlAt(t, third, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`))
				slices.Sort(nodes)
				if want := []string{first.Name + "=True", second.Name + "=True", third.Name + "=True"}; !slices.Equal(nodes, want) {
					return strings.Join(nodes, " ")
				}
				return ""
			})
		}},
	})
}
