//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// A planned is what upgrade plan -o json prints.
type planned struct {
	From, To         string
	Nodes            []struct{ Name, Kubelet, To, Kernel, ContainerRuntime string }
	Components       []struct{ Name, Node, From, To string }
	Changes          []struct{ Name, Diff string }
	Warnings, Errors []struct{ Name, Message, Fix string }
}

// find returns the findings of a check.
func (p planned) find(list []struct{ Name, Message, Fix string }, name string) string {
	var all []string
	for _, f := range list {
		if f.Name == name {
			all = append(all, f.Message+" fix: "+f.Fix)
		}
	}
	return strings.Join(all, "\n")
}

// plan runs upgrade plan of a bundle on a host and expects an exit code.
func plan(t *testing.T, h *lab.Host, wantCode int, file string, args ...string) (p planned) {
	t.Helper()
	var out, errs bytes.Buffer
	err := h.Exec(t.Context(), nil, &out, &errs, append([]string{file, "upgrade", "plan", "-o", "json"}, args...)...)
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s upgrade plan %s: exit code %d, want %d\n%s%s", file, args, code, wantCode, out.String(), errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	return p
}

// carryPlan writes bundles for the plan, with a changed manifest, to a host. They have the
// newer file's installer, and no layers: a plan reads only the manifest.
func carryPlan(t *testing.T, h *lab.Host, name string, change func(*bundle.Manifest)) string {
	t.Helper()
	f, err := bundle.Open(*newerPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	manifest, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	launcher, err := io.ReadAll(f.Launcher())
	if err != nil {
		t.Fatal(err)
	}
	m := *manifest
	m.SBOMs, m.Components, m.Manifests, m.Files, m.Units = nil, nil, nil, nil, nil
	m.NearestKnown, m.Images = "", slices.Clone(m.Images)
	change(&m)
	m.Entries = nil
	blobs := map[string][]byte{} // by name
	for i := range m.Images {
		image := &m.Images[i]
		image.Layers = nil
		for _, d := range []*bundle.Descriptor{&image.Target, &image.Manifest, &image.Config} {
			text := fmt.Sprintf("{%q: %q}", image.Name, d.MediaType)
			sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
			name := "blobs/sha256/" + sum
			d.Digest, d.Size = "sha256:"+sum, int64(len(text))
			if blobs[name] == nil {
				blobs[name] = []byte(text)
				m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: d.Size, SHA256: sum})
			}
		}
	}
	path := filepath.Join(t.TempDir(), name)
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: launcher, Installer: installerOf(t, f)}, &m, bundle.Fastest, blobs)
	if _, err := h.CopyIn(t.Context(), path, "/root/"+name, 0o755); err != nil {
		t.Fatal(err)
	}
	return "/root/" + name
}

// planState lists the checksums of the configuration, and the processes.
func planState(t *testing.T, h *lab.Host) string {
	t.Helper()
	return hostState(t, h) + run(t, h, "sh", "-c", `
		find /etc/kubernetes /var/lib/airlift /var/lib/kubelet -maxdepth 3 -type f -not -path '*/pods/*' -not -path '*/device-plugins/*' -not -path '*/plugins*' -not -name '*_state' -not -name runs.json | sort | xargs sha256sum
		ctr -n k8s.io images ls -q | sort`)
}

// TestUpgradePlan plans the upgrade of a cluster of two hosts with a newer file, with unsuitable
// files, and with everything in the cluster that is in the way.
func TestUpgradePlan(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-plan", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	join, err := site.JoinArgs(install(t, control, 0, "init"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, join...)
	systemIsUp(t, s, 2)
	to := carryNewer(t, s.Hosts...)
	before := planState(t, control)

	t.Run("a plan", func(t *testing.T) {
		p := plan(t, control, 0, newerFile)
		if p.From != version || p.To != to || len(p.Nodes) != 2 || len(p.Errors) > 0 {
			t.Errorf("%+v", p)
		}
		for _, n := range p.Nodes {
			if n.Kubelet != version || n.To != to || n.Kernel == "" || !strings.HasPrefix(n.ContainerRuntime, "containerd://") {
				t.Errorf("%+v", n)
			}
		}
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
			if !slices.ContainsFunc(p.Components, func(c struct{ Name, Node, From, To string }) bool {
				return c.Name == name && c.From == version && c.To == to
			}) {
				t.Errorf("%s is not in %+v", name, p.Components)
			}
		}
		for _, name := range []string{"/etc/kubernetes/manifests/kube-apiserver.yaml", "ConfigMap kube-system/kubeadm-config", "/usr/local/bin/kubelet"} {
			if !slices.ContainsFunc(p.Changes, func(c struct{ Name, Diff string }) bool { return c.Name == name }) {
				t.Errorf("%s is not in the changes", name)
			}
		}
		text := run(t, control, newerFile, "upgrade", "plan", to)
		t.Log("\n" + text)
		contains(t, text, "The cluster has Kubernetes "+version, control.Name, "control plane", " upgrade apply")
		diff := run(t, control, newerFile, "upgrade", "diff")
		t.Log("\n" + diff)
		contains(t, diff, "--- /etc/kubernetes/manifests/kube-apiserver.yaml", "-    image: registry.k8s.io/kube-apiserver:"+version, "+    image: registry.k8s.io/kube-apiserver:"+to, "kubernetesVersion: "+to)
	})
	t.Run("unsuitable files", func(t *testing.T) {
		for name, c := range map[string]struct {
			change       func(*bundle.Manifest)
			check, wants string
		}{
			"older":   {func(m *bundle.Manifest) { m.KubernetesVersion = "v1.28.15" }, "KubernetesVersion", "a downgrade is not possible"},
			"same":    {func(m *bundle.Manifest) { m.KubernetesVersion = version }, "KubernetesVersion", "nothing to upgrade"},
			"skipped": {func(m *bundle.Manifest) { m.KubernetesVersion = "v1.39.0" }, "KubernetesVersion", "cannot skip a minor version"},
			"images": {func(m *bundle.Manifest) {
				m.Images = slices.DeleteFunc(m.Images, func(i bundle.Image) bool { return i.Name == "flannel" })
			}, "ImagePull", "an image of flannel"},
		} {
			file := carryPlan(t, control, "plan-"+name, c.change)
			p := plan(t, control, 3, file)
			contains(t, p.find(p.Errors, c.check), c.wants, "fix: ")
			run(t, control, "rm", file)
		}
		file := carryPlan(t, control, "plan-arch", func(m *bundle.Manifest) { m.Platform = "linux/s390x" })
		contains(t, failure(t, control, 3, file, "upgrade", "plan"), "this bundle is for linux/s390x", "hint: ")
		run(t, control, "rm", file)
		contains(t, failure(t, worker, 3, newerFile, "upgrade", "plan"), "this host is a worker", "hint: ")
		contains(t, failure(t, control, 2, newerFile, "upgrade", "plan", "v1.99.0"), "v1.99.0", "hint: ")
	})
	t.Run("what is in the way", func(t *testing.T) {
		pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","labels":{"app":"%[1]s"}},"spec":{"nodeName":"%s","terminationGracePeriodSeconds":0,"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"%s"}],"volumes":[{"name":"scratch","emptyDir":{}}]}}`
		image := strings.TrimSpace(run(t, control, "sh", "-c", "ctr -n k8s.io images ls -q | grep -m1 /pause:"))
		documents := []string{
			fmt.Sprintf(pod, "bare-here", control.Name, image), fmt.Sprintf(pod, "bare-there", worker.Name, image),
			`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"never"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"bare-here"}}}}`,
		}
		list := `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(documents, ",") + "]}"
		run(t, control, "sh", "-c", "printf '%s' '"+list+"' | kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -")
		eventually(t, time.Minute, func() string {
			if out, err := s.Kubectl(t.Context(), "get", "poddisruptionbudget", "never", "-o", "jsonpath={.status.expectedPods}/{.status.currentHealthy}"); err != nil || out != "1/1" {
				return fmt.Sprintf("%s (%v)", out, err)
			}
			return ""
		})
		p := plan(t, control, 3, newerFile)
		contains(t, p.find(p.Errors, "Drain"), "PodDisruptionBudget default/never never allows the eviction of default/bare-here", "pod default/bare-here on "+control.Name+" has no controller")
		contains(t, p.find(p.Warnings, "Drain"), "pod default/bare-there on "+worker.Name+" has no controller", "emptyDir volumes (scratch)")
		plan(t, control, 0, newerFile, "--drain=false")
		contains(t, newer(t, control, 3, "upgrade", "apply", "--yes"), "[ERROR Drain]: PodDisruptionBudget default/never", "hint: ")
		plan(t, control, 0, newerFile, "--ignore-preflight-errors", "drain")
		run(t, control, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf delete --wait pod/bare-here pod/bare-there pdb/never")
	})
	t.Run("real kubeadm plans the same", func(t *testing.T) { plansEqual(t, control, to) })
	t.Run("nothing was changed", func(t *testing.T) { same(t, before, planState(t, control)) })
	t.Run("nodes that are not Ready", func(t *testing.T) {
		for _, h := range s.Hosts {
			run(t, h, "systemctl", "stop", "kubelet")
		}
		eventually(t, 2*time.Minute, func() string {
			out, err := s.Kubectl(t.Context(), "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
			if err != nil || out != "Unknown Unknown" {
				return fmt.Sprintf("%s (%v)", out, err)
			}
			return ""
		})
		p := plan(t, control, 3, newerFile)
		contains(t, p.find(p.Errors, "ControlPlaneNodesReady"), "control plane "+control.Name+" is not Ready")
		contains(t, p.find(p.Warnings, "NodesReady"), "node "+worker.Name+" is not Ready")
	})
}

// failure runs a command that must fail with an exit code, and returns its output.
func failure(t *testing.T, h *lab.Host, wantCode int, argv ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := exitCode(h.Exec(t.Context(), nil, &out, &out, argv...)); code != wantCode {
		t.Errorf("%s: exit code %d, want %d\n%s", argv, code, wantCode, out.String())
	}
	return out.String()
}

// plansEqual compares the versions of the plan with those of real kubeadm upgrade plan.
func plansEqual(t *testing.T, h *lab.Host, to string) {
	t.Helper()
	kubeadm, err := components.Path(to, "kubeadm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CopyIn(t.Context(), kubeadm, "/root/kubeadm-next", 0o755); err != nil {
		t.Fatal(err)
	}
	out := run(t, h, "sh", "-c", "KUBECONFIG=/etc/kubernetes/admin.conf /root/kubeadm-next upgrade plan "+to+" --ignore-preflight-errors=all -o json 2>/run/kubeadm-plan.log || { cat /run/kubeadm-plan.log; exit 1; }; rm /root/kubeadm-next")
	var theirs struct {
		AvailableUpgrades []struct {
			Components []struct{ Name, CurrentVersion, NewVersion, NodeName string }
		}
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &theirs); err != nil || len(theirs.AvailableUpgrades) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	ours := plan(t, h, 0, newerFile)
	compared := 0
	for _, c := range theirs.AvailableUpgrades[0].Components {
		name := strings.ToLower(c.Name)
		if name == "kubelet" {
			if !slices.ContainsFunc(ours.Nodes, func(n struct{ Name, Kubelet, To, Kernel, ContainerRuntime string }) bool {
				return n.Name == c.NodeName && n.Kubelet == c.CurrentVersion && n.To == c.NewVersion
			}) {
				t.Errorf("kubeadm's plan has %+v, and the nodes are %+v", c, ours.Nodes)
			}
			compared++
			continue
		}
		i := slices.IndexFunc(ours.Components, func(o struct{ Name, Node, From, To string }) bool { return o.Name == name })
		if i < 0 {
			t.Logf("only in kubeadm's plan: %+v", c)
			continue
		}
		o := ours.Components[i]
		if o.To == "" {
			o.To = o.From
		}
		// v1.29.15 has a newer etcd than v1.30.4. kubeadm prints the older one, and then keeps the newer.
		if name == "etcd" && utilversion.MustParseGeneric(c.NewVersion).LessThan(utilversion.MustParseGeneric(c.CurrentVersion)) {
			c.NewVersion = c.CurrentVersion
		}
		// kubeadm writes kube-proxy's version without its v.
		if strings.TrimPrefix(o.From, "v") != strings.TrimPrefix(c.CurrentVersion, "v") || o.To != c.NewVersion {
			t.Errorf("%s: %s to %s, and kubeadm's plan has %s to %s", name, o.From, o.To, c.CurrentVersion, c.NewVersion)
		}
		compared++
	}
	if compared < 7 {
		t.Errorf("only %d components were compared\n%s", compared, out)
	}
}
