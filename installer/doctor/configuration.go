package doctor

import (
	"airlift/installer/endpoint"
	"airlift/installer/host/ledger"
	"airlift/installer/redact"
	"airlift/installer/status"
)

// configuration returns the configuration files of the node's components, and Airlift's own
// records.
func (d *Doctor) configuration() []source {
	return append([]source{
		d.file("airlift/ledger.json", ledger.Path, redact.As[ledger.Document]()),
		d.file("airlift/runs.json", ledger.StateDir+"/runs.json", redact.As[[]ledger.Run]()),
		d.file("airlift/backup.json", ledger.StateDir+"/backup.json", redact.As[status.Backup]()),
		d.file("airlift/endpoint.yaml", endpoint.SettingsPath, redact.As[endpoint.Settings]()),
		d.file("airlift/control-planes.txt", endpoint.StateFile, redact.Log),
	}, d.files("files",
		"/etc/kubernetes/manifests/*.yaml",
		"/etc/kubernetes/*.conf", // the keys in them are redacted
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env",
		"/etc/default/kubelet", "/etc/sysconfig/kubelet",
		"/etc/containerd/*.toml", "/etc/containerd/*/*.toml", "/etc/containerd/certs.d/*/hosts.toml",
		"/etc/cni/net.d/*", "/run/flannel/subnet.env",
		"/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/*.conf",
		"/etc/systemd/system/containerd.service", "/etc/systemd/system/containerd.service.d/*.conf",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d/*.conf",
		"/etc/sysctl.d/*.conf", "/etc/modules-load.d/*.conf",
		"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/fstab", "/etc/os-release",
	)...)
}
