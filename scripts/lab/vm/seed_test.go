//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab/vm"
)

// seedLimit limits the time from the power on of a machine to the end of its seed.
const seedLimit = 90 * time.Minute

// TestSeed powers a machine on that has Debian's cloud-init, and a drive with what `bundle seed` wrote. Nobody logs in: it becomes a cluster, and
// its serial console shows how far it is. The guest agent only looks, afterwards.
func TestSeed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := create(t, func(o *vm.Options) {
		o.Machines, o.Bundle = 1, empty                                                 // the machine has the bundle only on the drive
		o.ExtraPackages = append(o.ExtraPackages, "cloud-init", "python3-cffi-backend") // debootstrap does not find what provides a virtual package
	})[0]
	match := "{serial: VM-0001}"
	if *arch == "amd64" {
		m.Flags = append(m.Flags, "-smbios", "type=1,serial=VM-0001")
	} else { // QEMU's arm64 machine has no firmware without UEFI
		match = "{label: vm-1}"
		m.Append += " airlift.label=vm-1"
	}
	image := seedDrive(t, fmt.Sprintf("apiVersion: airlift/v1\nkind: Cluster\nname: plant-7\nhosts:\n- {name: cp-1, role: control-plane, nodeIP: %s, match: %s, taints: []}\n", m.Addr.Addr(), match))
	m.Flags = append(m.Flags, "-drive", "file="+image+",format=raw,if=none,id=seed,readonly=on", "-device", "virtio-blk-pci,drive=seed")
	timed(t, "power on", func() error { return m.PowerOn(t.Context()) })
	timed(t, "the seed", func() error { return waitConsole(t, m, "airlift seed: this host is done: cp-1") })

	console := consoleOf(t, m)
	for _, line := range []string{
		"airlift seed: this host is cp-1 (", "control-plane of cluster plant-7; copying the drive", "airlift seed: the copy is complete: the drive may be removed",
		"airlift seed: running install init", "airlift seed: all 1 hosts are done",
	} {
		if !strings.Contains(console, line) {
			t.Errorf("the console has no %q", line)
		}
	}
	for line := range strings.Lines(console) {
		if strings.Contains(line, "airlift") {
			t.Logf("console: %s", strings.TrimSpace(line))
		}
	}
	systemIsUp(t, m, 1)
	t.Log(run(t, m, "sh", "-c", "cloud-init status --long; /usr/local/bin/airlift seed status; kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes,pods -A -o wide"))
	if out := run(t, m, "sh", "-c", "ls /var/lib/airlift/seed; systemctl is-enabled airlift-seed; grep airlift-seed /proc/mounts; true"); strings.TrimSpace(out) != "record.json\ndisabled" {
		t.Errorf("the machine still has %s", out)
	}
	if out := run(t, m, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-system", "get", "secrets,roles,rolebindings", "-o", "name"); strings.Contains(out, "bootstrap-token") || strings.Contains(out, "kubeadm-certs") || strings.Contains(out, "airlift-seed") {
		t.Errorf("the seed has left %s", out)
	}
	if out := run(t, m, "sh", "-c", "last -f /var/log/wtmp 2>/dev/null | grep -v -e reboot -e wtmp; true"); strings.TrimSpace(out) != "" {
		t.Errorf("logins: %s", out)
	}
}

// seedDrive runs `bundle seed` for a cluster.yaml, and returns the image of a drive with its files, in a file system that cloud-init looks for.
func seedDrive(t *testing.T, clusterYAML string) (image string) {
	t.Helper()
	dir := t.TempDir()
	command := func(argv ...string) {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
		t.Logf("%s\n%s", strings.Join(argv, " "), out)
	}
	bundle, key, file, drive := filepath.Join(dir, "bundle"), filepath.Join(dir, "site"), filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "drive")
	if err := os.WriteFile(file, []byte(clusterYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(drive, 0o700); err != nil {
		t.Fatal(err)
	}
	command("go", "build", "-tags", "grpcnotrace", "-o", bundle, "airlift/cmd/bundle")
	command(bundle, "keygen", "--out", key, "--no-password")
	command(bundle, "seed", *bundlePath, "--file", file, "--key", key+".key", "--out", drive, "--format", "cloud-init")
	info, err := os.Stat(filepath.Join(drive, "install"))
	if err != nil {
		t.Fatal(err)
	}
	image = filepath.Join(dir, "drive.img")
	command("mkfs.vfat", "-n", "CIDATA", "-C", image, fmt.Sprint(info.Size()>>10+8<<10)) // KiB
	files, err := filepath.Glob(filepath.Join(drive, "*"))
	if err != nil {
		t.Fatal(err)
	}
	command(append(append([]string{"mcopy", "-i", image}, files...), "::")...)
	return image
}

func consoleOf(t *testing.T, m *vm.Machine) string {
	t.Helper()
	text, err := os.ReadFile(m.ConsoleLog())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitConsole waits until the serial console of a machine has shown a text.
func waitConsole(t *testing.T, m *vm.Machine, text string) error {
	t.Helper()
	for end := time.Now().Add(seedLimit); ; time.Sleep(time.Second) {
		console := consoleOf(t, m)
		if strings.Contains(console, text) {
			return nil
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			return fmt.Errorf("the console has no %q; its end:\n%s", text, console[max(0, len(console)-4000):])
		}
	}
}
