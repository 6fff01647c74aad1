package render

// Paths of the units, and of the drop-in that kubeadm's packages add.
const (
	KubeletUnitPath    = "/etc/systemd/system/kubelet.service"
	KubeletDropInPath  = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
	ContainerdUnitPath = "/etc/systemd/system/containerd.service"
)

// KubeletUnit is the unit of the Kubernetes packages
// (github.com/kubernetes/release, cmd/krel/templates) with two changes: the path
// of the binary, and it starts after containerd instead of failing until
// containerd runs.
const KubeletUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target containerd.service

[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
`

// KubeletDropIn is kubeadm's drop-in for the kubelet, with the same files and
// variables as in the packages. /etc/default/kubelet is for administrators.
const KubeletDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// ContainerdUnit is containerd's own unit. KillMode=process keeps
// the containers running while containerd restarts.
const ContainerdUnit = `[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`
