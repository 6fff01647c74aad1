package agent

import (
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/ledger"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/seed"
	"airlift/internal/fault"
)

// readMachine reads what identifies this host.
func readMachine(f *facts.Facts, h *host.Host) {
	var err error
	f.Hostname, err = os.Hostname()
	unknown(f, "hostname", err)
	id, err := os.ReadFile(h.Path("/etc/machine-id"))
	f.MachineID = strings.TrimSpace(string(id))
	unknown(f, "machineID", err)
	f.MACs, f.Addresses = []string{}, []string{}
	addresses, err := detection.Addresses()
	unknown(f, "addresses", err)
	for _, a := range addresses {
		f.Addresses = append(f.Addresses, a.IP.String())
		link, err := net.InterfaceByName(a.Interface)
		unknown(f, "macs", err)
		if err == nil && len(link.HardwareAddr) > 0 && !slices.Contains(f.MACs, link.HardwareAddr.String()) {
			f.MACs = append(f.MACs, link.HardwareAddr.String())
		}
	}
}

// readSeed reads whether this host runs a seed.
func readSeed(f *facts.Facts, h *host.Host) {
	r, err := seed.ReadRecord(h.Path("/"))
	unknown(f, "seed", err)
	if r != nil && r.State == seed.Running {
		f.Seed = r.Cluster
	}
}

// refused are the exit codes of commands that changed nothing.
var refused = []int{int(fault.Usage), int(fault.Preflight), int(fault.Bundle)}

// readRuns reads the last commands. A command is unfinished if it was the last one of its kind that began to change the
// host, and failed: "upgrade undo" finishes "upgrade apply", and an hourly backup finishes nothing.
func readRuns(f *facts.Facts, h *host.Host, damaged error) {
	list, err := h.Records().Runs()
	if damaged != nil {
		err = damaged
	}
	unknown(f, "runs", err)
	last := map[string]ledger.Run{} // by the first word of the command
	for _, r := range list {
		f.Runs = append(f.Runs, runOf(r))
		if !r.Ended() || !slices.Contains(refused, *r.ExitCode) {
			kind, _, _ := strings.Cut(r.Command, " ")
			last[kind] = r
		}
	}
	var newest time.Time
	for _, r := range last {
		if failed := !r.Ended() || *r.ExitCode != 0; failed && r.Began.After(newest) {
			f.Unfinished, newest = r.Command, r.Began
		}
	}
	if r, ran := last["reconfigure"]; ran && (!r.Ended() || *r.ExitCode != 0) {
		f.Reconfiguring = r.Command
	}
}

func runOf(r ledger.Run) facts.Run {
	run := facts.Run{Command: r.Command, Version: r.Version, Began: r.Began, ExitCode: r.ExitCode, Error: r.Error}
	if r.Ended() {
		ended := r.Began.Add(time.Duration(r.Seconds * float64(time.Second)))
		run.Ended = &ended
	}
	return run
}

// installations are files and directories that installers of Kubernetes leave, as patterns. Units are of distributions whose directories
// can be elsewhere.
var installations = []string{
	config.KubernetesDir + "/admin.conf", config.KubernetesDir + "/bootstrap-kubelet.conf", config.ManifestsDir, config.CertificatesDir, config.KubeletConfigFile,
	"/var/lib/etcd/member", "/etc/cni/net.d", "/etc/rancher", "/var/lib/rancher", "/etc/k0s", "/var/lib/k0s", "/var/lib/k8e", "/var/snap/microk8s", "/var/snap/k8s",
	"/opt/kube/bin", "/etc/embedded-cluster", "/var/lib/embedded-cluster",
	"/etc/systemd/system/k3s*.service", "/etc/systemd/system/k8e*.service", "/etc/systemd/system/k0s*.service",
	"/etc/systemd/system/rke2-*.service", "/usr/local/lib/systemd/system/rke2-*.service", "/usr/lib/systemd/system/rke2-*.service",
	"/etc/systemd/system/snap.microk8s.daemon-*", "/etc/systemd/system/snap.k8s.*",
}

// Leftovers returns the parts of another installation on a host that is no node. An empty directory is none.
func Leftovers(h *host.Host) (list []string) {
	if h.Records().Manages() { // a run of Airlift that did not finish
		return nil
	}
	files := os.DirFS(h.Path("/"))
	for _, pattern := range installations {
		found, _ := fs.Glob(files, pattern[1:]) // the patterns are valid
		for _, name := range found {
			if inside, err := fs.ReadDir(files, name); err == nil && len(inside) == 0 {
				continue
			}
			list = append(list, "/"+name)
		}
	}
	return list
}
