package render

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
)

// Flannel returns the pod network: flannel's own manifest without its init
// containers. They install flannel's CNI plugin and configuration, but the
// installer writes a configuration that needs no plugin of flannel
// (CNIConflist). On nodes that the installer did not add, a hook writes it.
func Flannel(cfg *config.Config) ([]runtime.Object, error) {
	const namespace, name, netConfMap = "kube-flannel", "flannel", "kube-flannel-cfg"
	img, err := image(cfg, "flannel")
	if err != nil {
		return nil, err
	}
	api, err := url.Parse(cmp.Or(cfg.FlannelServer, cfg.NodeURL()))
	if err != nil {
		return nil, err
	}
	network, err := flannelNetwork(cfg.Networking.PodSubnet.Prefixes())
	if err != nil {
		return nil, err
	}
	script, err := flannelCNIScript(cfg.Networking.PodSubnet.Prefixes())
	if err != nil {
		return nil, err
	}
	own := map[string]string{"k8s-app": name}
	daemon := map[string]string{"tier": "node", "app": name}

	role := clusterRole(name,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}})
	role.Labels = own
	binding := clusterBinding(name, name, account(namespace, name))
	binding.Labels = own
	netConf := configMap(namespace, netConfMap, "net-conf.json", network)
	netConf.Labels = map[string]string{"tier": "node", "app": name, "k8s-app": name}

	return []runtime.Object{
		&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
				"k8s-app":                            name,
				"pod-security.kubernetes.io/enforce": "privileged",
			}},
		},
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: own},
		},
		// No pod uses it: it has no token (CIS 5.1.5).
		&corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta:                   metav1.ObjectMeta{Namespace: namespace, Name: "default"},
			AutomountServiceAccountToken: new(false),
		},
		role,
		binding,
		netConf,
		&appsv1.DaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-flannel-ds", Labels: netConf.Labels},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: daemon},
					Spec:       flannelPod(img, netConfMap, script, api),
				},
			},
		},
	}, nil
}

func flannelPod(image, netConfMap, script string, api *url.URL) corev1.PodSpec {
	return corev1.PodSpec{
		PriorityClassName:  "system-node-critical",
		ServiceAccountName: "flannel",
		HostNetwork:        true,
		Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
					},
				}},
			},
		}},
		Containers: []corev1.Container{{
			Name:    "kube-flannel",
			Image:   image,
			Command: []string{"/opt/bin/flanneld"},
			// Without a default route flanneld does not find the interface,
			// and with several it may choose the wrong one.
			Args:      []string{"--ip-masq", "--kube-subnet-mgr", "--iface=$(NODE_IP)"},
			Resources: requests("100m", "50Mi"),
			SecurityContext: &corev1.SecurityContext{
				Privileged:   new(false),
				Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
			},
			Env: []corev1.EnvVar{
				fromField("POD_NAME", "metadata.name"),
				fromField("POD_NAMESPACE", "metadata.namespace"),
				fromField("NODE_IP", "status.hostIP"),
				// The API server's own address, so that the pod network does
				// not wait for kube-proxy to serve the Service's address.
				{Name: "KUBERNETES_SERVICE_HOST", Value: api.Hostname()},
				{Name: "KUBERNETES_SERVICE_PORT", Value: api.Port()},
				{Name: "EVENT_QUEUE_DEPTH", Value: "5000"},
				{Name: "CONT_WHEN_CACHE_NOT_READY", Value: "false"},
			},
			Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
				Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", script}},
			}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "run", MountPath: "/run/flannel"},
				{Name: "cni", MountPath: config.CNIConfDir},
				{Name: "flannel-cfg", MountPath: "/etc/kube-flannel/"},
				{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
			},
		}},
		Volumes: []corev1.Volume{
			hostPathVolume("run", "/run/flannel", corev1.HostPathUnset),
			hostPathVolume("cni", config.CNIConfDir, corev1.HostPathUnset),
			configMapVolume("flannel-cfg", netConfMap),
			hostPathVolume("xtables-lock", "/run/xtables.lock", corev1.HostPathFileOrCreate),
		},
	}
}

// netConf is flannel's configuration (pkg/subnet/config.go).
type netConf struct {
	EnableIPv4     *bool  `json:",omitempty"` // true by default
	EnableIPv6     bool   `json:",omitempty"`
	Network        string `json:",omitempty"`
	IPv6Network    string `json:",omitempty"`
	EnableNFTables bool   // iptables, as kube-proxy's default mode
	Backend        backend
}

type backend struct{ Type string }

// flannelNetwork is net-conf.json for one or two pod CIDRs.
func flannelNetwork(podSubnets []netip.Prefix) ([]byte, error) {
	conf := netConf{Backend: backend{"vxlan"}}
	for _, subnet := range podSubnets {
		if subnet.Addr().Is6() {
			conf.EnableIPv6, conf.IPv6Network = true, subnet.String()
		} else {
			conf.Network = subnet.String()
		}
	}
	if conf.Network == "" {
		conf.EnableIPv4 = new(false)
	}
	data, err := json.MarshalIndent(conf, "", "  ")
	return append(data, '\n'), err
}
