package render

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// KubeProxy returns the kube-proxy add-on.
func KubeProxy(cfg *config.Config) ([]runtime.Object, error) {
	const name = "kube-proxy"
	img, err := image(cfg, name)
	if err != nil {
		return nil, err
	}
	configuration, err := kubeProxyConfigMap(cfg)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	labels := map[string]string{"k8s-app": name}
	daemonMeta := meta
	daemonMeta.Labels = labels

	objects := []runtime.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		clusterBinding("kubeadm:node-proxier", "system:node-proxier", account(metav1.NamespaceSystem, name)),
	}
	// Joining nodes read the ConfigMap too, for kubeadm's preflight checks.
	objects = append(objects, readable(metav1.NamespaceSystem, name, "configmaps", name, group(tokensGroup))...)
	return append(objects, configuration, &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: daemonMeta,
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName:  "system-node-critical",
					ServiceAccountName: name,
					HostNetwork:        true,
					NodeSelector:       map[string]string{"kubernetes.io/os": "linux"},
					Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name:            name,
						Image:           img,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{
							"/usr/local/bin/kube-proxy",
							"--config=/var/lib/kube-proxy/config.conf",
							"--hostname-override=$(NODE_NAME)",
						},
						Env:             []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
						SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
						VolumeMounts: []corev1.VolumeMount{
							{Name: name, MountPath: "/var/lib/kube-proxy"},
							{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
							{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
						},
					}},
					Volumes: []corev1.Volume{
						configMapVolume(name, name),
						hostPathVolume("xtables-lock", "/run/xtables.lock", corev1.HostPathFileOrCreate),
						hostPathVolume("lib-modules", "/lib/modules", corev1.HostPathUnset),
					},
				},
			},
		},
	}), nil
}

// kubeProxyConfigMap has the KubeProxyConfiguration, the user's with kubeadm's
// defaults, and the kubeconfig to which it refers.
func kubeProxyConfigMap(cfg *config.Config) (*corev1.ConfigMap, error) {
	k := &kubeproxyv1.KubeProxyConfiguration{}
	if cfg.KubeProxy != nil {
		k = cfg.KubeProxy.DeepCopy()
	}
	k.APIVersion, k.Kind = kubeproxyv1.SchemeGroupVersion.String(), "KubeProxyConfiguration"
	bind := "0.0.0.0"
	if isIPv6(cfg.LocalAPIEndpoint.AdvertiseAddress) {
		bind = "::"
	}
	fill(&k.BindAddress, bind)
	fill(&k.ClusterCIDR, cfg.Networking.PodSubnet.String())
	fill(&k.ClientConnection.Kubeconfig, "/var/lib/kube-proxy/kubeconfig.conf")
	if minor(cfg) >= proxyModeFrom {
		fill(&k.Mode, "iptables")
	}
	if !cfg.Facts.ConntrackWritable {
		// 0 keeps the host's limit; otherwise kube-proxy would fail to
		// raise it, and exit.
		fillPointer(&k.Conntrack.MaxPerCore, 0)
		fillPointer(&k.Conntrack.Min, 0)
	}
	doc, err := explicit(k)
	if err != nil {
		return nil, err
	}
	configuration, err := yaml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	server := cfg.ProxyServer
	server = cmp.Or(server, cfg.NodeURL())
	m := configMap(metav1.NamespaceSystem, "kube-proxy", "config.conf", configuration)
	m.Labels = map[string]string{"app": "kube-proxy"}
	m.Data["kubeconfig.conf"] = strings.Replace(kubeProxyKubeconfig, "SERVER", server, 1)
	if cfg.KubeProxy == nil && cfg.Facts.ConntrackWritable {
		signDefaults(m)
	}
	return m, nil
}

// kubeProxyKubeconfig uses the pod's service account, but connects to the API
// server's own address: the Service "kubernetes" works only with kube-proxy.
const kubeProxyKubeconfig = `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: SERVER
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token`

func fromField(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: field},
	}}
}

func configMapVolume(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
	}}}
}

func hostPathVolume(name, path string, kind corev1.HostPathType) corev1.Volume {
	source := &corev1.HostPathVolumeSource{Path: path}
	if kind != corev1.HostPathUnset {
		source.Type = &kind
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: source}}
}
