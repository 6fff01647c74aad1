//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle"
)

// A reconfigured is a cluster whose configuration changes while a workload answers.
type reconfigured struct {
	*upgraded
	rows []string // the table of the results
}

// given writes documents and files to the control plane, and returns the arguments that name them.
func (r *reconfigured) given(t *testing.T, documents string, files map[string]string) (args []string) {
	t.Helper()
	put := func(name, text string) {
		if err := r.control.Exec(t.Context(), strings.NewReader(text), t.Output(), t.Output(), "sh", "-c", "mkdir -p /root/given && cat >"+name); err != nil {
			t.Fatal(err)
		}
	}
	if documents != "" {
		put("/root/given/kubeadm.yaml", documents)
		args = append(args, "--config", "/root/given/kubeadm.yaml")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		local := "/root/given/" + path.Base(name)
		put(local, files[name])
		args = append(args, "--file", name+"="+local)
	}
	return args
}

// follow lets the other nodes follow, the control planes first.
func (r *reconfigured) follow(t *testing.T) {
	t.Helper()
	for _, h := range r.hosts[1:] {
		install(t, h, 0, "reconfigure", "node")
	}
}

// processes are the ids of what a reconfiguration restarts on a host, by name.
func processes(t *testing.T, h *lab.Host) map[string]string {
	t.Helper()
	ids := map[string]string{}
	out := run(t, h, "sh", "-c", `for p in /proc/[0-9]*; do
	e=$(readlink $p/exe) || continue
	case ${e##*/} in etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet) echo ${e##*/} ${p#/proc/};; esac
done`)
	for line := range strings.Lines(out) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		ids[name] = id
	}
	return ids
}

// addOns are the generations of the add-ons.
func (r *reconfigured) addOns(t *testing.T) map[string]string {
	t.Helper()
	g := map[string]string{}
	for name, kind := range map[string]string{"kube-proxy": "daemonset", "coredns": "deployment"} {
		g[name] = kubectl(t, r.Site, "-n", "kube-system", "get", kind+"/"+name, "-o", "jsonpath={.metadata.generation}")
	}
	return g
}

// differ are the names with another value, sorted.
func differ(before, after map[string]string) (names []string) {
	for name, value := range after {
		if before[name] != value {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sorted is a sorted copy.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// row adds a result to the table.
func (r *reconfigured) row(t *testing.T, name, result string, took time.Duration) {
	t.Helper()
	var gap time.Duration
	lost := 0
	for _, a := range r.stop(t) {
		switch a.name {
		case "api":
			gap = max(gap, a.gap)
		case "service":
			lost += a.failed
		}
	}
	r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %d s | %.1f s | %d |", name, result, int(took.Seconds()), gap.Seconds(), lost))
	t.Log(r.rows[len(r.rows)-1])
	if lost > 0 {
		t.Errorf("%d requests to the Service failed", lost)
	}
}

// change makes one change on all nodes, and undoes it if the cluster has one control plane.
func (r *reconfigured) change(c oracle.Change) func(t *testing.T) {
	return func(t *testing.T) {
		args := append([]string{"reconfigure"}, r.given(t, c.Documents(version), c.Files)...)
		before, ids, generations := checksums(t, r.control, configured), processes(t, r.control), r.addOns(t)
		install(t, r.control, 5, append(slices.Clone(args), "--plan", "--detailed-exitcode")...)
		same(t, fmt.Sprint(before), fmt.Sprint(checksums(t, r.control, configured)))

		r.start(t)
		started := time.Now()
		out := install(t, r.control, 0, append(slices.Clone(args), "--yes")...)
		r.follow(t)
		if strings.Contains(out, "Add-ons wait until all nodes have their images.") {
			out := install(t, r.control, 0, append(slices.Clone(args), "--yes")...)
			if strings.Contains(out, "is postponed") {
				t.Error("add-ons wait, and all nodes follow the change")
			}
		}
		took := time.Since(started)
		systemIsUp(t, r.Site, len(r.hosts))
		restarted := slices.Concat(differ(ids, processes(t, r.control)), differ(generations, r.addOns(t)))
		r.row(t, c.Name, "done", took)

		install(t, r.control, 0, append(slices.Clone(args), "--plan")...) // there is nothing to do
		contains(t, install(t, r.control, 0, append(slices.Clone(args), "--yes")...), "Nothing was changed")
		if r.planes > 1 {
			return // the next change begins with this one, so it restarts more
		}
		want := slices.Concat(c.Restarts, c.Pods)
		if slices.Contains(want, "kube-apiserver") || slices.Contains(want, "etcd") {
			// They end by themselves if they cannot renew their lease for ten seconds.
			restarted = slices.DeleteFunc(restarted, func(name string) bool {
				return !slices.Contains(want, name) && (name == "kube-controller-manager" || name == "kube-scheduler")
			})
		}
		if !slices.Equal(sorted(restarted), sorted(want)) {
			t.Errorf("%q restarted, want %q", restarted, want)
		}
		install(t, r.control, 0, "reconfigure", "undo", "--yes")
		r.follow(t)
		systemIsUp(t, r.Site, len(r.hosts))
		after := checksums(t, r.control, configured)
		for _, name := range slices.Concat(differ(before, after), differ(after, before)) {
			t.Errorf("after undo, %s is another", name)
		}
	}
}

// changes makes all changes, one after the other.
func (r *reconfigured) changes(t *testing.T) {
	for _, c := range oracle.Changes(version) {
		if !t.Run(c.Name, r.change(c)) {
			diagnose(t, r.Site)
		}
	}
	if r.planes > 1 { // back to the first configuration
		install(t, r.control, 0, append([]string{"reconfigure", "--yes"}, r.given(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n", nil)...)...)
		r.follow(t)
	}
}

// refused are the changes that a running cluster cannot make.
func (r *reconfigured) refused(t *testing.T) {
	before := hostState(t, r.control)
	for _, c := range oracle.Refused {
		args := append([]string{"reconfigure"}, r.given(t, c.Documents(version), nil)...)
		if c.Field == "cgroupDriver" && strings.Contains(run(t, r.control, "cat", "/var/lib/kubelet/config.yaml"), "cgroupDriver: cgroupfs") {
			continue // hosts with cgroup v1 have that
		}
		contains(t, install(t, r.control, 3, append(slices.Clone(args), "--yes")...), c.Field)
		contains(t, install(t, r.control, 3, append(args, "--plan")...), c.Field)
	}
	same(t, before, hostState(t, r.control))
}

// failures are changes with which a component does not start. They are undone as a whole.
func (r *reconfigured) failures(t *testing.T) {
	audit := oracle.Changes(version)
	audit = audit[slices.IndexFunc(audit, func(c oracle.Change) bool { return c.Name == "an audit policy" }):][:1]
	broken := map[string]string{audit[0].Paths()[0]: "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n"}
	for _, c := range []oracle.Change{
		{Name: "an audit policy that is wrong", Cluster: audit[0].Cluster, Files: broken},
		{Name: "an unknown argument of the API server", Cluster: "apiServer: {extraArgs: {no-such-flag: one}}"},
		{Name: "an unknown argument of the scheduler, after the API server changed", Cluster: "apiServer: {certSANs: [lost.site.example], extraArgs: {profiling: \"false\"}}\nscheduler: {extraArgs: {no-such-flag: one}}"},
		{Name: "an unknown argument of etcd", Cluster: "etcd: {local: {extraArgs: {no-such-flag: one}}}"},
	} {
		t.Run(c.Name, func(t *testing.T) {
			before := checksums(t, r.control, configured)
			stored := kubectl(t, r.Site, "-n", "kube-system", "get", "configmap/kubeadm-config", "-o", "jsonpath={.data}")
			args := append([]string{"reconfigure"}, r.given(t, c.Documents(version), c.Files)...)
			r.start(t)
			started := time.Now()
			contains(t, install(t, r.control, 1, append(slices.Clone(args), "--yes")...), "the change is undone")
			took := time.Since(started)
			systemIsUp(t, r.Site, len(r.hosts))
			r.row(t, c.Name, "undone", took)
			after := checksums(t, r.control, configured)
			for _, name := range slices.Concat(differ(before, after), differ(after, before)) {
				t.Errorf("%s is another", name)
			}
			same(t, stored, kubectl(t, r.Site, "-n", "kube-system", "get", "configmap/kubeadm-config", "-o", "jsonpath={.data}"))
		})
	}
}

// encryption encrypts the Secrets, in the order that docs/reconfigure.md gives.
func (r *reconfigured) encryption(t *testing.T) {
	keys := func(providers ...string) []string {
		return append([]string{"reconfigure", "--yes"}, r.given(t, "", map[string]string{oracle.EncryptionFile: oracle.Keys(providers...)})...)
	}
	first := r.given(t, oracle.Change{Cluster: oracle.EncryptionCluster}.Documents(version), map[string]string{oracle.EncryptionFile: oracle.Keys("key1", "identity")})
	contains(t, install(t, r.control, 3, append([]string{"reconfigure", "--yes"}, first...)...), "key1")
	first = r.given(t, oracle.Change{Cluster: oracle.EncryptionCluster}.Documents(version), map[string]string{oracle.EncryptionFile: oracle.Keys("identity", "key1")})
	install(t, r.control, 0, append([]string{"reconfigure", "--yes"}, first...)...)
	if r.planes > 1 {
		// The other control planes do not have the key yet.
		install(t, r.control, 3, keys("key1", "identity")...)
	}
	r.follow(t)
	install(t, r.control, 0, keys("key1", "identity")...)
	r.follow(t)
	install(t, r.control, 3, keys("key1")...) // etcd has Secrets that are not encrypted
	run(t, r.control, "sh", "-c", "export KUBECONFIG=/etc/kubernetes/admin.conf; kubectl get secrets -A -o json | kubectl replace -f - >/dev/null")
	install(t, r.control, 0, keys("key1")...)
	r.follow(t)
	kubectl(t, r.Site, "create", "secret", "generic", "sealed", "--from-literal=word=airlift-secret-word")
	if found := run(t, r.control, "sh", "-c", "sync; grep -l airlift-secret-word /var/lib/etcd/member/wal/*.wal /var/lib/etcd/member/snap/db || true"); found != "" {
		t.Errorf("etcd has the Secret as it is: %s", found)
	}
	for _, h := range r.hosts[:r.planes] {
		if text := run(t, h, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "--server", "https://"+h.Addr.String()+":6443", "get", "secret/sealed", "-o", "jsonpath={.data.word}"); text == "" {
			t.Errorf("%s does not read the Secret", h.Name)
		}
	}
	systemIsUp(t, r.Site, len(r.hosts))
}

// all is the test for a number of control planes.
func (r *reconfigured) all(t *testing.T) {
	inOrder(t, r.Site, []stage{
		{"a cluster", func(t *testing.T) {
			if r.planes > 1 {
				r.create(t)
				r.stop(t)
				return
			}
			// The controller manager and the scheduler end while the only API server restarts. After many changes in ten
			// minutes, the kubelet would start them minutes later.
			write(t, r.control, "/root/init.yaml", "apiVersion: kubeadm.k8s.io/"+config.APIVersion(version)+"\nkind: ClusterConfiguration\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}\n")
			r.init = []string{"--config", "/root/init.yaml"}
			r.create(t)
			r.stop(t)
		}},
		{"a change that is not one", func(t *testing.T) {
			run(t, r.control, "sh", "-c", site.Installer+" reconfigure print >/root/printed.yaml")
			install(t, r.control, 0, "reconfigure", "--config", "/root/printed.yaml", "--plan")
			contains(t, install(t, r.control, 0, "reconfigure", "--config", "/root/printed.yaml", "--yes"), "Nothing was changed")
		}},
		{"edits", r.edits},
		{"refused", r.refused},
		{"failures", r.failures},
		{"changes", r.changes},
		{"encryption", r.encryption},
	})
	t.Logf("%d control planes\n| change | result | all nodes | without API | lost requests |\n| --- | --- | --- | --- | --- |\n%s", r.planes, strings.Join(r.rows, "\n"))
}

// TestReconfigure changes the configuration of a control plane and a worker while a workload answers.
func TestReconfigure(t *testing.T) {
	r := &reconfigured{upgraded: newSteady(t, "e2e-reconf", 1, 1)}
	r.all(t)
}

// TestReconfigureControlPlanes does the same with three control planes and a worker.
func TestReconfigureControlPlanes(t *testing.T) {
	r := &reconfigured{upgraded: newSteady(t, "e2e-reconf3", 3, 1)}
	r.all(t)
}
