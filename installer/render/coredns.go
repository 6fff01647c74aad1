package render

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"airlift/installer/config"
	"airlift/installer/corefile"
)

// CoreDNS returns the cluster DNS add-on.
func CoreDNS(cfg *config.Config) ([]runtime.Object, error) {
	const name = "coredns"
	img, err := image(cfg, "coredns")
	if err != nil {
		return nil, err
	}
	dns, err := cfg.Networking.ServiceIP(config.DNSServiceIndex)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	labels := map[string]string{"k8s-app": "kube-dns"}
	watch := []string{"list", "watch"}

	deploymentMeta := meta
	deploymentMeta.Labels = labels
	return []runtime.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		clusterRole("system:coredns",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: watch},
			rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: watch}),
		clusterBinding("system:coredns", "system:coredns", account(metav1.NamespaceSystem, name)),
		configMap(metav1.NamespaceSystem, name, "Corefile", []byte(Corefile(cfg))),
		&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: deploymentMeta,
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(2)),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Strategy: appsv1.DeploymentStrategy{
					Type:          appsv1.RollingUpdateDeploymentStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(1))},
				},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       coreDNSPod(cfg, img),
				},
			},
		},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem,
				Name:      "kube-dns",
				Labels: map[string]string{
					"k8s-app":                       "kube-dns",
					"kubernetes.io/cluster-service": "true",
					"kubernetes.io/name":            "CoreDNS",
				},
				Annotations: map[string]string{"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
			},
			Spec: corev1.ServiceSpec{
				ClusterIP: dns.String(),
				Selector:  labels,
				Ports: []corev1.ServicePort{
					{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
					{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
					{Name: "metrics", Port: 9153, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(9153)},
				},
			},
		},
	}, nil
}

func coreDNSPod(cfg *config.Config, image string) corev1.PodSpec {
	get := func(path string, port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port, Scheme: corev1.URISchemeHTTP}}
	}
	ports := []corev1.ContainerPort{
		{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
		{Name: "metrics", ContainerPort: 9153, Protocol: corev1.ProtocolTCP},
	}
	live, ready := intstr.FromInt32(8080), intstr.FromInt32(8181)
	if minor(cfg) >= probePortFrom {
		ports = append(ports,
			corev1.ContainerPort{Name: "liveness-probe", ContainerPort: live.IntVal, Protocol: corev1.ProtocolTCP},
			corev1.ContainerPort{Name: "readiness-probe", ContainerPort: ready.IntVal, Protocol: corev1.ProtocolTCP})
		live, ready = intstr.FromString("liveness-probe"), intstr.FromString("readiness-probe")
	}
	return corev1.PodSpec{
		PriorityClassName:  "system-cluster-critical",
		ServiceAccountName: "coredns",
		DNSPolicy:          corev1.DNSDefault, // CoreDNS uses the node's resolver, not itself
		NodeSelector:       map[string]string{"kubernetes.io/os": "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100,
				PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: "kubernetes.io/hostname",
					LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "k8s-app", Operator: metav1.LabelSelectorOpIn, Values: []string{"kube-dns"}},
					}},
				},
			}},
		}},
		Containers: []corev1.Container{{
			Name:            "coredns",
			Image:           image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            []string{"-conf", "/etc/coredns/Corefile"},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
				Requests: requests("100m", "70Mi").Requests,
			},
			Ports: ports,
			LivenessProbe: &corev1.Probe{ProbeHandler: get("/health", live),
				InitialDelaySeconds: 60, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5},
			ReadinessProbe: &corev1.Probe{ProbeHandler: get("/ready", ready)},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				ReadOnlyRootFilesystem:   new(true),
				Capabilities: &corev1.Capabilities{
					Add:  []corev1.Capability{"NET_BIND_SERVICE"},
					Drop: []corev1.Capability{"ALL"},
				},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "config-volume", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "coredns"},
				Items:                []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
			},
		}}},
	}
}

// IsDefaultCorefile reports whether a Corefile is unchanged: it is the default of some kubeadm, or Corefile's of one of the
// Kubernetes versions, with or without a nameserver.
func IsDefaultCorefile(cfg *config.Config, text string, versions ...string) bool {
	if corefile.IsDefault(text) {
		return true
	}
	for _, version := range versions {
		for _, nameservers := range [][]string{nil, {"192.0.2.1"}} {
			c := *cfg
			c.Cluster.KubernetesVersion, c.Facts.Nameservers = version, nameservers
			if Corefile(&c) == text {
				return true
			}
		}
	}
	return false
}

// Corefile is kubeadm's Corefile. Without a nameserver on the host it has no
// forward: CoreDNS does not start with an empty one. CoreDNS then answers only
// names within the cluster, and all others fail at once.
func Corefile(cfg *config.Config) string {
	lines := []string{
		".:53 {",
		"    errors",
		"    health {",
		"       lameduck 5s",
		"    }",
		"    ready",
		"    kubernetes " + cfg.Networking.DNSDomain + " in-addr.arpa ip6.arpa {",
		"       pods insecure",
		"       fallthrough in-addr.arpa ip6.arpa",
		"       ttl 30",
		"    }",
		"    prometheus :9153",
	}
	if len(cfg.Facts.Nameservers) > 0 {
		lines = append(lines,
			"    forward . /etc/resolv.conf {",
			"       max_concurrent 1000",
			"    }")
	}
	lines = append(lines, "    cache 30")
	if minor(cfg) >= corednsUncachedFrom {
		lines[len(lines)-1] += " {"
		lines = append(lines,
			"       disable success "+cfg.Networking.DNSDomain,
			"       disable denial "+cfg.Networking.DNSDomain,
			"    }")
	}
	lines = append(lines,
		"    loop",
		"    reload",
		"    loadbalance",
		"}", "")
	return strings.Join(lines, "\n")
}
