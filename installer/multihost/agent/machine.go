package agent

import (
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

// installations are files and directories that installers of Kubernetes leave.
var installations = []string{
	config.KubernetesDir + "/admin.conf", config.KubernetesDir + "/bootstrap-kubelet.conf", config.ManifestsDir, config.CertificatesDir, config.KubeletConfigFile,
	"/var/lib/etcd/member", "/etc/cni/net.d", "/etc/rancher", "/var/lib/rancher", "/var/lib/k0s", "/var/snap/microk8s",
}

// leftovers returns the parts of another installation on a host that is no node. An empty directory is none.
func leftovers(h *host.Host) (list []string) {
	if h.Records().Used() { // a run of Airlift that did not finish
		return nil
	}
	for _, name := range installations {
		info, err := os.Stat(h.Path(name))
		if err != nil {
			continue
		}
		if inside, err := os.ReadDir(h.Path(name)); info.IsDir() && err == nil && len(inside) == 0 {
			continue
		}
		list = append(list, name)
	}
	return list
}
