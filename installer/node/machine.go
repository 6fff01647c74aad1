// Package node reads what is on a host: its static pods, its etcd, its container runtime, and what
// earlier or unfinished runs left. It also takes the turn in which a host's control plane may restart.
package node

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A Machine is the host that a run changes, and the number of changes so far.
type Machine struct {
	Host *host.Host
	// Existing is the host itself. In a dry run, Host is a directory that
	// receives the files. Otherwise both are the same.
	Existing *host.Host
	Console  *workflow.Console
	Changes  int // changes on the host and in the cluster
}

// nvidiaDevice exists if the driver of NVIDIA is loaded.
const nvidiaDevice = "/dev/nvidiactl"

// NewMachine returns the Machine of a host, which prints warnings on the console. h may be nil, for the
// names of steps.
func NewMachine(h *host.Host, c *workflow.Console) *Machine {
	if h != nil {
		h.Warn = c.Warn
		h.Units.Reloaded = func(unit string) {
			c.Debug(1, "systemd has read its units again, because the file of %s changed", unit)
			if FileExists(h, nvidiaDevice) {
				c.Warn("systemd has read its units again, because the file of %s changed: containers that got GPUs without CDI may have lost them; restart pods that report \"Failed to initialize NVML\"", unit)
			}
		}
	}
	return &Machine{Host: h, Existing: h, Console: c}
}

// Changed counts a change if yes is true.
func (m *Machine) Changed(yes bool) {
	if yes {
		m.Changes++
	}
}

// Write writes files to the host and counts the changed files.
func (m *Machine) Write(files ...pki.File) error {
	for _, f := range files {
		var changed bool
		var err error
		if f.Link != "" {
			changed, err = m.Host.WriteSymlink(f.Path, f.Link)
		} else {
			changed, err = m.Host.WriteFile(f.Path, f.Data, f.Mode)
		}
		if err != nil {
			return err
		}
		if changed {
			m.Console.Debug(1, "wrote %s", f.Path)
		}
		m.Changed(changed)
	}
	return nil
}

// Applied counts the changed objects in the cluster.
func (m *Machine) Applied(changed []string, err error) error {
	for _, c := range changed {
		m.Console.Debug(1, "applied %s", c)
	}
	m.Changes += len(changed)
	return err
}

// Files returns the host's files. In a dry run, the files that it wrote hide the host's files.
func (m *Machine) Files() fs.FS {
	files := layered{os.DirFS(m.Host.Path("/"))}
	if m.Existing != m.Host {
		files = append(files, os.DirFS(m.Existing.Path("/")))
	}
	return files
}

// Exists reports whether the host has a file.
func (m *Machine) Exists(path string) bool { return FileExists(m.Host, path) }

// FileExists reports whether a host has a file.
func FileExists(h *host.Host, path string) bool {
	_, err := os.Stat(h.Path(path))
	return err == nil
}

// Report prints the state of a wait with -v 1.
func (m *Machine) Report(state string) { m.Console.Debug(1, "%s", state) }

// ReportKept prints how many files were created and how many were kept.
func (m *Machine) ReportKept(r pki.Result) {
	if len(r.Kept) > 0 && len(r.Files)+len(r.Kept) > 1 {
		m.Console.Note("%d created, %d valid ones kept", len(r.Files), len(r.Kept))
	}
	for _, f := range r.Kept {
		m.Console.Debug(1, "kept %s", f)
	}
}

// ReportPatched prints which patches were applied to a target.
func (m *Machine) ReportPatched(target string, files []string) {
	if len(files) > 0 {
		m.Console.Note("%s is patched with %s", target, strings.Join(files, ", "))
	}
}

// LoadClient returns a client for a kubeconfig on the host. server, if not
// empty, replaces the kubeconfig's.
func LoadClient(h *host.Host, kubeconfig, server string, timeout time.Duration) (*cluster.Client, error) {
	c, err := cluster.Load(h.Path(kubeconfig), server)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	c.SetTimeout(timeout)
	return c, nil
}

// IsControlPlane reports whether this host runs an API server.
func (m *Machine) IsControlPlane() bool { return FileExists(m.Existing, APIServerManifest) }

// CAFile returns the path of the cluster's CA on a node: ca.crt in the directory of certificates; without that, the file by which
// the kubelet with this configuration knows its clients. kubeadm gives both the same file.
func CAFile(h *host.Host, certificates, kubeletConfig string) string {
	usual := path.Join(certificates, "ca.crt")
	if FileExists(h, usual) || kubeletConfig == "" {
		return usual
	}
	data, err := os.ReadFile(h.Path(kubeletConfig))
	if err != nil {
		return usual
	}
	var is kubeletv1.KubeletConfiguration
	if err := documents.Unmarshal(data, &is); err != nil || !path.IsAbs(is.Authentication.X509.ClientCAFile) {
		return usual
	}
	return is.Authentication.X509.ClientCAFile
}

// AdminClient connects to the cluster with the kubeconfig of an administrator.
func AdminClient(ctx context.Context, h *host.Host, kubeconfig string) (*cluster.Client, error) {
	if kubeconfig == AdminConf && !FileExists(h, AdminConf) {
		is := "not a node of a cluster"
		if FileExists(h, KubeletConf) {
			is = "a worker"
		}
		return nil, fault.New(fault.Failure, "this host is %s: it has no kubeconfig of an administrator", is).Hint("run it on a control plane, or set --kubeconfig")
	}
	if kubeconfig == AdminConf {
		kubeconfig = h.Path(AdminConf)
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it on a control plane as root, or set --kubeconfig")
	}
	if err := cluster.Answering(ctx, client, fault.Failure); err != nil {
		return nil, err
	}
	return client, nil
}
