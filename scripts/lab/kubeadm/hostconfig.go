package kubeadm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
)

// cgroupV1RefusedFrom is the first minor version that refuses cgroup v1, which lab hosts may
// have: the kubelet unless its configuration has failCgroupV1: false, and kubeadm's preflight
// check SystemVerification in any case.
const cgroupV1RefusedFrom = 35

// refusesCgroupV1 reports whether a Kubernetes version refuses cgroup v1.
func refusesCgroupV1(version string) bool {
	c := config.Cluster{KubernetesVersion: version}
	return c.Minor() >= cgroupV1RefusedFrom
}

// IgnoredChecks returns the preflight checks of kubeadm that fail on lab hosts for reasons outside
// of the hosts, as the value of --ignore-preflight-errors.
func (k *Kit) IgnoredChecks() string {
	// kubeadm v1.29 checks https://[10.96.0.1]:1234/, but Go 1.26, which builds it here,
	// rejects an IPv4 address in brackets.
	checks := []string{"HTTPProxyCIDR"}
	if refusesCgroupV1(k.Version) {
		checks = append(checks, "SystemVerification")
	}
	return strings.Join(checks, ",")
}

// Nameserver is the address in a host's resolv.conf: with kubeadm's Corefile, CoreDNS does
// not start without one. No server answers there.
func Nameserver(h *lab.Host) string { return h.Addr.String() }

// prepareScript does what upstream's instructions require before kubeadm, and what a host
// without a default route and without permission to lower OOM scores needs: a route to
// Services, the node's address, the cgroup driver.
func prepareScript(h *lab.Host, pause string) string {
	return strings.NewReplacer("{address}", h.Addr.String(), "{nameserver}", Nameserver(h), "{pause}", pause).Replace(`
cat >/etc/sysctl.d/k8s.conf <<'END'
net.bridge.bridge-nf-call-iptables = 1
net.bridge.bridge-nf-call-ip6tables = 1
net.ipv4.ip_forward = 1
END
for setting in net/bridge/bridge-nf-call-iptables net/bridge/bridge-nf-call-ip6tables net/ipv4/ip_forward; do
	echo 1 >/proc/sys/$setting
done
echo nameserver {nameserver} >/etc/resolv.conf
ip route replace 10.96.0.0/12 dev eth0

mkdir -p /etc/containerd /etc/cni/net.d
cat >/etc/containerd/config.toml <<'END'
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.k8s.io/pause:{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
END
cat >/etc/systemd/system/containerd.service <<'END'
[Unit]
After=network.target
[Service]
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
END

cat >/etc/default/kubelet <<'END'
KUBELET_EXTRA_ARGS=--node-ip={address} --cgroup-driver=cgroupfs
END
mkdir -p /etc/systemd/system/kubelet.service.d
cat >/etc/systemd/system/kubelet.service <<'END'
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10
[Install]
WantedBy=multi-user.target
END
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'END'
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
END
`) + FlannelPlugin + `
systemctl daemon-reload
systemctl enable --now containerd
systemctl enable kubelet
`
}

// FlannelPlugin installs flannel's CNI plugin on a host: a script that lets the bridge
// plugin connect a pod to flanneld's subnet, which is all that is needed here. The Go module
// proxy does not serve the real plugin's module.
const FlannelPlugin = `
mkdir -p /opt/cni/bin
cat >/opt/cni/bin/flannel <<'END'
#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && exec /opt/cni/bin/bridge
. /run/flannel/subnet.env || exit 1
# 10.244.1.1/24, the bridge's own address, stands for the subnet 10.244.1.0/24.
subnet=${FLANNEL_SUBNET%.1/*}.0/${FLANNEL_SUBNET#*/}
exec /opt/cni/bin/bridge <<CONFIG
{"cniVersion": "0.3.1", "name": "cbr0", "type": "bridge", "bridge": "cni0", "mtu": $FLANNEL_MTU,
 "hairpinMode": true, "isDefaultGateway": true, "ipMasq": false,
 "ipam": {"type": "host-local", "subnet": "$subnet", "routes": [{"dst": "$FLANNEL_NETWORK"}]}}
CONFIG
END
chmod 755 /opt/cni/bin/flannel
`

// resetScript is the cleanup that kubeadm reset leaves to the user.
const resetScript = `
rm -rf /etc/cni/net.d/* /run/flannel /var/lib/cni
for link in cni0 flannel.1; do
	if ip link show $link >/dev/null 2>&1; then ip link delete $link; fi
done
iptables-save | awk '/^\*/ {print} /^COMMIT/ {print}' | iptables-restore
`

// ConfigOptions are the options of Config.
type ConfigOptions struct {
	Version  string
	Endpoint string // controlPlaneEndpoint, if not empty
}

// Config returns kubeadm's configuration for the first control plane, in the version of the API
// that the kubeadm of the Kubernetes version writes. Lab hosts cannot set the size of conntrack,
// do not use systemd's cgroup driver, and may have cgroup v1.
func Config(h *lab.Host, o ConfigOptions) string {
	api, address := config.APIVersion(o.Version), h.Addr.String()
	nodeIP := "{node-ip: " + address + "}"
	if api != "v1beta3" {
		nodeIP = "[{name: node-ip, value: " + address + "}]"
	}
	endpoint, cgroupV1 := "", ""
	if o.Endpoint != "" {
		endpoint = "controlPlaneEndpoint: " + o.Endpoint + "\n"
	}
	if refusesCgroupV1(o.Version) {
		cgroupV1 = "failCgroupV1: false\n"
	}
	return `apiVersion: kubeadm.k8s.io/` + api + `
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: ` + address + `}
nodeRegistration:
  kubeletExtraArgs: ` + nodeIP + `
---
apiVersion: kubeadm.k8s.io/` + api + `
kind: ClusterConfiguration
kubernetesVersion: ` + o.Version + "\n" + endpoint + `networking: {podSubnet: 10.244.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
` + cgroupV1 + `---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`
}

// flannelManifest returns the manifest from flannel's module with two changes: it has no
// init container that installs the CNI plugin, and it sets flanneld's interface, which
// flanneld would find by the default route.
func flannelManifest(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/flannel-io/flannel@"+components.Flannel)
	cmd.Dir = os.TempDir() // outside of this module
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil || module.Error != "" {
		return "", fmt.Errorf("downloading flannel's module: %w: %s", err, module.Error)
	}
	data, err := os.ReadFile(filepath.Join(module.Dir, "Documentation", "kube-flannel.yml"))
	if err != nil {
		return "", err
	}
	var manifest strings.Builder
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(doc, &object); err != nil {
			return "", fmt.Errorf("reading flannel's manifest: %w", err)
		}
		if object["kind"] == "DaemonSet" {
			if err := fitFlannel(object); err != nil {
				return "", fmt.Errorf("changing flannel's manifest: %w", err)
			}
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		manifest.WriteString("---\n" + string(text))
	}
	return manifest.String(), nil
}

func fitFlannel(daemonSet map[string]any) error {
	pod, ok := daemonSet["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	if !ok {
		return fmt.Errorf("its DaemonSet has no pod")
	}
	first, ok := pod["initContainers"].([]any)
	if !ok || len(first) != 2 || first[0].(map[string]any)["name"] != "install-cni-plugin" {
		return fmt.Errorf("its first init container is not install-cni-plugin")
	}
	pod["initContainers"] = first[1:]
	flanneld := pod["containers"].([]any)[0].(map[string]any)
	flanneld["args"] = append(flanneld["args"].([]any), "--iface=eth0")
	return nil
}
