//go:build e2e

package e2e

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/images/release"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// volumeClient is a claim without a class, and a Job that adds a line to a file in the volume.
const volumeClient = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Mi}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: %[2]s}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: writer
        image: %[1]s
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        command: [sh, -c, "echo %[2]s >>/data/lines; cat /data/lines"]
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// kernelHas reports whether the kernel of the lab's hosts, which is this machine's, has an option.
func kernelHas(t *testing.T, option string) bool {
	t.Helper()
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^CONFIG_` + option + `=[ym]$`).Match(text)
}

// addOnsOfRig returns the add-ons of the tested release that the rig has: it builds each in one
// version.
func addOnsOfRig(t *testing.T) (names []string) {
	t.Helper()
	list, err := release.AddOns(version)
	if err != nil {
		t.Fatal(err)
	}
	rig := map[string]string{release.NetworkPolicy: components.NetworkPolicies, release.LocalPathStorage: components.LocalPathProvisioner, release.MetricsServer: components.MetricsServer, release.Ingress: components.Traefik}
	for _, a := range list {
		if rig[a.Name] == a.Version || a.Name == release.LoadBalancer { // its image is in every bundle
			names = append(names, a.Name)
		} else {
			t.Logf("NOT RUN: %s %s; the rig builds %s", a.Name, a.Version, rig[a.Name])
		}
	}
	return names
}

// TestAddOns installs a bundle with every optional add-on on two hosts. On a kernel that cannot
// enforce policies, init refuses network-policy; then the others are installed all the same, and
// TestNetworkPolicy in scripts/lab/vm shows the enforcement.
func TestAddOns(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-addons", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	names := addOnsOfRig(t)
	path := filepath.Join(t.TempDir(), "install")
	out := buildBundle(t, path, "--addon", strings.Join(names, ","))
	contains(t, out, "add-on v", "every image that the workloads in "+strings.Join(names, ", ")+" name is in the bundle")
	before := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
			t.Fatal(err)
		}
		before[h] = untouched(t, h)
	}
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	enforces := kernelHas(t, "NFT_QUEUE")
	var ignore, join []string
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"preflight knows whether the kernel can enforce policies", func(t *testing.T) {
			if enforces {
				install(t, control, 0, "preflight", "init")
				return
			}
			contains(t, install(t, control, 3, "init"), "NetworkPolicy", "would not enforce policies here", "CONFIG_NFT_QUEUE")
			same(t, before[control], untouched(t, control))
			ignore = []string{"--ignore-preflight-errors", "NetworkPolicy"}
		}},
		{"preflight refuses a host that serves port 80", func(t *testing.T) { refusesUsedPort(t, control) }},
		{"init applies the add-ons and waits for them", func(t *testing.T) {
			out := install(t, control, 0, append([]string{"init"}, ignore...)...)
			for _, name := range names {
				contains(t, out, name+": "+map[string]string{release.NetworkPolicy: "5", release.LocalPathStorage: "11", release.MetricsServer: "10", release.Ingress: "22", release.LoadBalancer: "11"}[name]+" objects")
			}
			if join, err = site.JoinArgs(out); err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, append(join, ignore...)...)
			out, _ = control.Output(t.Context(), "/root/install", "status") // it fails while a pod on the worker starts
			t.Log(out)
			contains(t, out, names...)
		}},
		{"the audit of the hardened profile", func(t *testing.T) {
			if *profile == "" {
				t.Log("NOT RUN without -profile hardened")
				return
			}
			r := audit(t, control)
			r.passes(t, control.Name)
			policies := map[bool]string{true: "passed", false: "failed"}
			for _, c := range r.Results {
				switch {
				case c.ID == "5.3.1" && c.Verdict != policies[enforces]:
					t.Errorf("%s: %s: %s, and the kernel enforces policies: %v", c.ID, c.Verdict, c.Found, enforces)
				case c.ID == "5.3.2" && c.Verdict != "passed": // before the test's own workloads
					t.Errorf("%s: %s: %s", c.ID, c.Verdict, c.Found)
				case c.ID == "5.3.1" || c.ID == "5.3.2":
					t.Logf("%s: %s: %s", c.ID, c.Verdict, c.Found)
				}
			}
		}},
		{"a volume is bound, and its data survives the pod", func(t *testing.T) {
			for _, job := range []string{"first", "second"} {
				if err := s.Apply(t.Context(), fmt.Sprintf(volumeClient, image, job)); err != nil {
					t.Fatal(err)
				}
				kubectl(t, s, "wait", "--for=condition=complete", "job/"+job, "--timeout=90s")
			}
			if lines := kubectl(t, s, "logs", "job/second"); lines != "first\nsecond\n" {
				t.Errorf("the second pod reads %q", lines)
			}
			state := kubectl(t, s, "get", "pvc,pv", "-o", "wide")
			t.Log(state)
			contains(t, state, "Bound", "local-path")
		}},
		{"kubectl top answers", func(t *testing.T) {
			if !slices.Contains(names, release.MetricsServer) {
				return
			}
			eventually(t, 2*time.Minute, func() string {
				out, err := s.Kubectl(t.Context(), "top", "nodes", "--no-headers")
				if err != nil || strings.Count(out, "%") != 4 {
					return fmt.Sprintf("%v\n%s", err, out)
				}
				t.Log(out)
				return ""
			})
			contains(t, install(t, control, 0, "status"), "metrics-server", "applied")
		}},
		{"routes and Ingresses answer on the ports of both nodes", func(t *testing.T) { answersAtNodes(t, s, image) }},
		{"policies are enforced", func(t *testing.T) {
			if !enforces {
				t.Log("NOT RUN on this kernel: it has no NFT_QUEUE. scripts/lab/vm runs it on another kernel")
				return
			}
			pods, err := s.Deploy(t.Context(), version)
			if err == nil {
				err = s.CheckPolicies(t.Context(), pods[0], pods[1], t.Logf)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"a second init changes nothing", func(t *testing.T) {
			contains(t, install(t, control, 0, append([]string{"init"}, ignore...)...), "Nothing was changed")
		}},
		{"reset keeps only the volumes", func(t *testing.T) {
			for _, h := range []*lab.Host{worker, control} {
				volumes := strings.TrimSpace(run(t, h, "sh", "-c", "ls "+release.VolumesDir+" 2>/dev/null || true"))
				out := install(t, h, 0, "reset", "--force")
				if volumes != "" {
					contains(t, out, release.VolumesDir, "volumes of the add-on local-path-storage are kept")
					contains(t, run(t, h, "sh", "-c", "cat "+release.VolumesDir+"/*/lines"), "first\nsecond")
					run(t, h, "rm", "-r", release.VolumesDir)
				}
				same(t, before[h], untouched(t, h))
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
