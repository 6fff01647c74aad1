//go:build e2e

package e2e

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/scripts/lab"
)

// drive is the directory on each host that the test uses as the mounted drive.
const drive = "/srv/drive"

// TestSeed powers on five hosts and one that is in no list, in random order, with nothing but the user data of `bundle seed` and a drive. Two
// power cuts come at random moments: during init, and during a join. They become the cluster, and nothing of the seed is left in it. The
// seed uses no SSH; only the plan at the end does, from another host. AIRLIFT_SEED repeats a run.
func TestSeed(t *testing.T) {
	bundle := buildBundleCommand(t) // before the hosts are there
	m := newMultihost(t, "e2e-seed", 3, 3)
	stranger := m.nodes[5]
	m.nodes, m.Site.Nodes = m.nodes[:5], 5
	random := seedRandom(t)
	var hosts strings.Builder
	for i, h := range m.nodes {
		match := "{mac: " + strings.TrimSpace(run(t, h, "sh", "-c", "ip -brief link show eth0 | tr -s ' ' | cut -d ' ' -f 3")) + "}"
		if i%2 == 1 {
			match = "{label: rack-" + h.Name + "}"
			run(t, h, "mkdir", "-p", "/etc/airlift")
			write(t, h, "/etc/airlift/label", "rack-"+h.Name+"\n")
		}
		more := ", nodeIP: " + h.Addr.String() + ", match: " + match
		if i == 4 {
			more += ", labels: {site/rack: b}"
		}
		hosts.WriteString(m.entry(h, more))
	}
	m.describeHosts(t, withBalancer+"certificates: {autoRenew: true}\n", hosts.String())
	m.cluster(t, 0, "validate")
	all := append(m.nodes[:5:5], stranger)
	userData := writeSeed(t, bundle, run(t, m.driver, "cat", "/root/cluster.yaml"), all)
	for _, h := range all {
		firstBoot(t, h, userData)
	}
	bare := untouched(t, stranger)
	atOnce(all, func(h *lab.Host) {
		if err := h.PowerCut(t.Context()); err != nil {
			t.Error(err)
		}
	})

	order := random.Perm(len(all))
	t.Logf("power on in the order %v", order)
	cutDuring := map[*lab.Host]string{m.nodes[0]: "running install init", m.nodes[1+random.IntN(4)]: "running install join"}
	began := time.Now()
	var cuts sync.WaitGroup
	for _, i := range order {
		h := all[i]
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if line := cutDuring[h]; line != "" {
			after := time.Duration(500+random.IntN(9000)) * time.Millisecond
			cuts.Go(func() { cutAfter(t, h, line, after) })
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	cuts.Wait()
	eventually(t, 7*time.Minute, func() string {
		out, err := m.nodes[0].Output(t.Context(), "cat", "/var/lib/airlift/seed/record.json")
		if err != nil || !strings.Contains(out, `"state": "ended"`) {
			return "the first control plane: " + seedLog(t, m.nodes[0], 2)
		}
		return ""
	})
	t.Logf("power on to the end of the seed took %.0f s", time.Since(began).Seconds())
	systemIsUp(t, m.Site, 5)

	command := "/usr/local/bin/airlift"
	status := run(t, m.nodes[0], command, "seed", "status")
	t.Log(status)
	for _, h := range m.nodes {
		contains(t, status, h.Name)
		contains(t, run(t, h, command, "seed", "status", "-o", "json"), `"host": "`+h.Name+`"`)
		eventually(t, time.Minute, func() string { // a worker settles after its report
			if out := run(t, h, "sh", "-c", "ls /var/lib/airlift/seed; systemctl is-enabled airlift-seed; true"); strings.TrimSpace(out) != "record.json\ndisabled" {
				return h.Name + " still has " + out
			}
			return ""
		})
	}
	if got := strings.Count(status, "Ready"); got != 5 || strings.Count(status, "done") != 5 {
		t.Errorf("%d hosts are Ready in:\n%s", got, status)
	}
	if members := kubectl(t, m.Site, "-n", "kube-system", "get", "pods", "-l", "component=etcd", "--no-headers"); strings.Count(members, "Running") != 3 {
		t.Errorf("etcd: %s", members)
	}
	if left := kubectl(t, m.Site, "-n", "kube-system", "get", "secrets", "--no-headers", "-o", "name"); strings.Contains(left, "bootstrap-token") || strings.Contains(left, "kubeadm-certs") {
		t.Errorf("secrets of the seed are left: %s", left)
	}
	if left := kubectl(t, m.Site, "-n", "kube-system", "get", "roles,rolebindings", "-o", "name"); strings.Contains(left, "airlift-seed") {
		t.Errorf("the permission to report is left: %s", left)
	}
	contains(t, kubectl(t, m.Site, "get", "node", m.nodes[4].Name, "--show-labels"), "site/rack=b")
	m.cluster(t, 0, "plan", "--detailed-exitcode")

	// The stranger changed nothing, and printed why.
	log := seedLog(t, stranger, 20)
	contains(t, log, "this host is in no row of the seed")
	same(t, bare, untouched(t, stranger))
	contains(t, run(t, stranger, "systemctl", "show", "--property", "StandardOutput", "airlift-seed"), "StandardOutput=journal+console")
	t.Log("NOT RUN: what is on a console. The console of these hosts is a pipe, and journald writes only to terminals")
	noEscapes(t, m.Site)

	// A host that was reset does not become a node again.
	worker := m.nodes[4]
	run(t, worker, command, "reset", "--force")
	if err := worker.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := run(t, worker, "sh", "-c", "ls /etc/systemd/system/airlift-seed.service /etc/kubernetes/kubelet.conf 2>&1; true"); strings.Count(out, "No such file") != 2 {
		t.Errorf("after reset and a reboot: %s", out)
	}
}

// seedRandom returns the random numbers of AIRLIFT_SEED.
func seedRandom(t *testing.T) *rand.Rand {
	n, err := strconv.ParseUint(os.Getenv("AIRLIFT_SEED"), 10, 64)
	if err != nil {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("AIRLIFT_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 57))
}

// buildBundleCommand returns the path of the command bundle. Its builds would need executables in it; a seed needs none.
func buildBundleCommand(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-o", path, "./cmd/bundle")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the command bundle: %v\n%s", err, out)
	}
	return path
}

// writeSeed runs bundle seed, gives each host a copy of the drive, and returns the user data.
func writeSeed(t *testing.T, command, clusterYAML string, hosts []*lab.Host) string {
	t.Helper()
	dir := t.TempDir()
	bundle := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("bundle %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("%s", out)
	}
	file, key := filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte(clusterYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "drive")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	bundle("keygen", "--out", key, "--no-password")
	bundle("seed", *bundlePath, "--file", file, "--key", key+".key", "--out", out, "--format", "cloud-init", "--drive", drive)
	for _, h := range hosts {
		run(t, h, "mkdir", "-p", drive)
		for _, name := range []string{"airlift-seed.json", "airlift-seed.json.minisig", "install"} {
			if _, err := h.CopyIn(t.Context(), filepath.Join(out, name), drive+"/"+name, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "user-data"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// firstBoot does what cloud-init does with the user data, except that the unit starts at the next boot.
func firstBoot(t *testing.T, h *lab.Host, userData string) {
	t.Helper()
	var data struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
		Run   [][]string                                    `json:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(userData), &data); err != nil {
		t.Fatal(err)
	}
	for _, f := range data.Files {
		run(t, h, "mkdir", "-p", filepath.Dir(f.Path))
		write(t, h, f.Path, f.Content)
		run(t, h, "chmod", f.Permissions, f.Path)
	}
	for _, argv := range data.Run {
		var args []string
		for _, a := range argv {
			if a != "--now" && a != "--no-block" {
				args = append(args, a)
			}
		}
		run(t, h, args...)
	}
}

// cutAfter cuts the power of a host some time after its unit printed a line, and boots it again.
func cutAfter(t *testing.T, h *lab.Host, line string, after time.Duration) {
	for end := time.Now().Add(6 * time.Minute); !strings.Contains(seedLog(t, h, 1000), line); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s never printed %q: %s", h.Name, line, seedLog(t, h, 5))
			return
		}
	}
	time.Sleep(after)
	last := lastLine(seedLog(t, h, 1))
	if err := powerCycle(t, h); err != nil {
		t.Error(err)
		return
	}
	t.Logf("%s had a power cut %.1f s after %q; its last line was %q", h.Name, after.Seconds(), line, last)
}

// seedLog returns the last lines of the unit, "" while the host is off.
func seedLog(t *testing.T, h *lab.Host, lines int) string {
	out, _ := h.Output(t.Context(), "journalctl", "-u", "airlift-seed", "-o", "cat", "--no-pager", "-n", strconv.Itoa(lines))
	return out
}
