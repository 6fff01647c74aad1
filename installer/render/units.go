package render

// Where the units go, and the drop-in that kubeadm's packages add.
const (
	KubeletUnitPath    = "/etc/systemd/system/kubelet.service"
	KubeletDropInPath  = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
	ContainerdUnitPath = "/etc/systemd/system/containerd.service"
)

// KubeletUnit does what the unit of the Kubernetes packages does
// (github.com/kubernetes/release, cmd/krel/templates), with the binary where
// the installer puts it, and waits for containerd at boot instead of failing
// until it is there.
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

// KubeletDropIn is kubeadm's contract with the kubelet: the same files and
// variables as in the packages, so that whoever knows one node knows this one.
// /etc/default/kubelet is for the machine's owner.
const KubeletDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// ContainerdUnit does what containerd's own unit does. KillMode=process leaves
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
