package oracle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// A Difference is an intended difference from kubeadm.
type Difference struct {
	What, Why string
	Minors    // whose kubeadm has the difference
	// Apply changes kubeadm's output to what Airlift renders. It is nil if
	// other tests check the difference, in the package that implements it.
	Apply func(w *Want, cfg *config.Config)
}

// Minors are the minor versions from Since to Until; 0 means no limit.
type Minors struct{ Since, Until int }

// Have reports whether a version is one of them.
func (m Minors) Have(version string) bool {
	c := config.Cluster{KubernetesVersion: version}
	return c.Minor() >= m.Since && (m.Until == 0 || c.Minor() <= m.Until)
}

// Differs reports whether a version's kubeadm has the difference with that beginning.
func Differs(version, what string) bool {
	for _, d := range Differences {
		if strings.HasPrefix(d.What, what) {
			return d.Have(version)
		}
	}
	panic("no such difference: " + what)
}

// Differences is the complete list. Everything else must have the same meaning.
var Differences = []Difference{
	{
		What: "new keys are ECDSA P-256 unless encryptionAlgorithm says RSA",
		Why:  "an RSA-2048 key takes up to a second on a small machine and there are fourteen of them; kubeadm has the algorithm behind a feature gate",
	}, {
		What:   "with ECDSA chosen, the kubeconfigs' client keys are ECDSA too",
		Why:    "kubeadm v1.29 ignores the algorithm there (newClientCertConfigFromKubeConfigSpec) and creates RSA keys",
		Minors: Minors{Until: 30},
	}, {
		What: "kubelet.conf refers to kubelet-client-current.pem from the start",
		Why:  "kubeadm embeds the certificate, then moves it there in kubelet-finalize and restarts the kubelet; the result is the same",
	}, {
		What: "an existing certificate that has expired, has not all usages or does not match its key, or a kubeconfig for another server, is an error",
		Why:  "kubeadm only warns or does not check, and the cluster fails later with a less clear message",
	}, {
		What: "a subject alternative name that is neither an address nor a DNS name is an error",
		Why:  "kubeadm drops it with a warning, and connections of clients fail",
	}, {
		What:   "a certificate becomes valid at the same time as its CA",
		Why:    "since kubeadm v1.31 it becomes valid five minutes before now, and the clock of a host without a time server may be slower than that",
		Minors: Minors{Since: 31},
	}, {
		What: "without encryptionAlgorithm, renewed keys have the old key's algorithm, and the keys of a joining control plane have the CA's",
		Why:  "v1beta3 has no field for the algorithm, and kubeadm replaces ECDSA keys by RSA keys one by one",
	}, {
		What: "certs renew NAME is an error for a missing file and for an external CA",
		Why:  "kubeadm prints a line about it and exits with 0",
	}, {
		What: "certs check-expiration shows <expired>, not <invalid>, and has JSON and YAML output for v1.29 too",
		Why:  "the certificate has only expired",
	}, {
		What: "certs generate-csr omits etcd's certificates with an external etcd, and adds ca.crt to the kubeconfigs if it is on the host",
		Why:  "nothing uses the former, and a person would have to add the latter",
	}, {
		What: "kubeconfig user without --config uses the host's admin.conf",
		Why:  "kubeadm uses defaults, and the kubeconfig does not have the control-plane endpoint",
	}, {
		What: "proxy variables of the installer's environment are not copied into static pods and kube-proxy",
		Why:  "an isolated host has no proxy; users can set extraEnvs",
	}, {
		What:   "a flag with a mergeMethod that kubeadm would not set itself gets the user's value",
		Why:    "kubeadm v1.37 merges only with what it sets, and silently drops the flag (util/arguments.go)",
		Minors: Minors{Since: 37},
	}, {
		What: "a patch that sets a field that does not exist, or whose type only starts with a known type, is an error",
		Why:  "kubeadm silently drops such a field, and treats +jsonx as +json",
	}, {
		What:   "patches for corednsdeployment and kubeproxydaemonset are used with every version",
		Why:    "kubeadm knows the first since v1.31 and the second since v1.37; nobody uses these file names by accident",
		Minors: Minors{Until: 36},
	}, {
		What:   "startup probes of static pods have the user's timeoutForControlPlane",
		Why:    "kubeadm v1.30 uses four minutes in any case, because it ignores the field when it converts v1beta3",
		Minors: Minors{Since: 30, Until: 30},
		Apply: func(w *Want, cfg *config.Config) {
			for _, pod := range w.Pods {
				for _, c := range pod.Spec.Containers {
					if probe := c.StartupProbe; probe != nil {
						period := time.Duration(probe.PeriodSeconds) * time.Second
						probe.FailureThreshold = int32((cfg.APIServer.TimeoutForControlPlane + period - 1) / period)
					}
				}
			}
		},
	}, {
		What: "startup probes of static pods probe every second, with kubeadm's total timeout",
		Why:  "kubeadm's startup probes probe every ten seconds, first after ten to twenty, and the pods are not Ready until then; a startup probe ends when the pod has started",
		Apply: func(w *Want, _ *config.Config) {
			for name, pod := range w.Pods {
				for _, c := range pod.Spec.Containers {
					if probe := c.StartupProbe; probe != nil {
						probe.FailureThreshold *= probe.PeriodSeconds
						probe.InitialDelaySeconds, probe.PeriodSeconds = 0, 1
						if name == "etcd" { // its success must come when the API server already answers
							probe.InitialDelaySeconds = 8
						}
					}
				}
			}
		},
	}, {
		What: "Service kube-dns has no resourceVersion",
		Why:  "kubeadm sets it to 0 only so that its own update call is accepted",
		Apply: func(w *Want, _ *config.Config) {
			if service, ok := w.Objects["Service kube-system/kube-dns"].(*corev1.Service); ok {
				service.ResourceVersion = ""
			}
		},
	}, {
		What: "without a nameserver on the host the Corefile has no forward",
		Why:  "CoreDNS does not start with a forward to an empty resolv.conf",
		Apply: func(w *Want, cfg *config.Config) {
			if len(cfg.Facts.Nameservers) == 0 {
				m := w.Objects["ConfigMap kube-system/coredns"].(*corev1.ConfigMap)
				m.Data["Corefile"] = strings.Replace(m.Data["Corefile"],
					"    forward . /etc/resolv.conf {\n       max_concurrent 1000\n    }\n", "", 1)
			}
		},
	}, {
		What: "where nf_conntrack_max cannot be set, kube-proxy is configured to keep it, and its ConfigMap is not signed as kubeadm's default",
		Why:  "kube-proxy would exit, and kubeadm upgrade would restore the default",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.ConntrackWritable {
				return
			}
			m := w.Objects["ConfigMap kube-system/kube-proxy"].(*corev1.ConfigMap)
			var k kubeproxyv1.KubeProxyConfiguration
			if err := yaml.Unmarshal([]byte(m.Data["config.conf"]), &k); err != nil {
				panic(err)
			}
			k.Conntrack.MaxPerCore, k.Conntrack.Min = new(int32(0)), new(int32(0))
			data, err := yaml.Marshal(k)
			if err != nil {
				panic(err)
			}
			m.Data["config.conf"] = string(data)
			m.Annotations = nil
		},
	}, {
		What: "the node's KubeletConfiguration has this host's cgroup driver",
		Why:  "kubeadm always sets systemd; a kubelet with another driver than the host's does not start",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Kubelet == nil {
				w.Kubelet.CgroupDriver = cfg.Facts.CgroupDriver
			}
		},
	}, {
		What:   "on cgroup v1 the kubelet gets failCgroupV1: false",
		Why:    "otherwise a kubelet since v1.35 does not start there; preflight warns of it",
		Minors: Minors{Since: 35},
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.CgroupVersion == 1 {
				w.Kubelet.FailCgroupV1 = new(false)
			}
		},
	}, {
		What: "the node's KubeletConfiguration has resolvConf if it is not /etc/resolv.conf; the cluster's does not",
		Why:  "kubeadm detects it on the first node and sets it for all nodes",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.ResolvConf != "/etc/resolv.conf" {
				w.Kubelet.ResolverConfig = &cfg.Facts.ResolvConf
			}
		},
	}, {
		What: "with swap in use the kubelet gets failSwapOn: false",
		Why:  "preflight reports swap, earlier and more clearly than a kubelet that does not start",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.SwapOn && w.Kubelet.FailSwapOn == nil {
				w.Kubelet.FailSwapOn = new(false)
			}
		},
	}, {
		What: "the kubelet gets --node-ip from join's flag, without a default route, with an IPv6 address, and with an address of each family in a dual-stack cluster",
		Why:  "otherwise it uses one address, from the default route, and prefers IPv4; without a default route it does not register",
		Apply: func(w *Want, cfg *config.Config) {
			ips := cfg.NodeIPs()
			if cfg.Facts.DefaultRoute && !cfg.Facts.NodeIPGiven && len(ips) == 1 && ips[0].Is4() {
				return
			}
			var list []string
			for _, ip := range ips {
				list = append(list, ip.String())
			}
			nodeIP := "--node-ip=" + strings.Join(list, ",")
			flags, err := strconv.Unquote(strings.TrimSpace(strings.TrimPrefix(w.KubeletFlags, "KUBELET_KUBEADM_ARGS=")))
			if err != nil {
				panic(err)
			}
			all := append(strings.Fields(flags), nodeIP)
			slices.Sort(all)
			w.KubeletFlags = "KUBELET_KUBEADM_ARGS=" + strconv.Quote(strings.Join(all, " ")) + "\n"
		},
	},
}
