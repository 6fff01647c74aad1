package oracle

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// A Difference is something that we want otherwise than kubeadm has it.
type Difference struct {
	What, Why string
	// Versions of kubeadm that differ so; none means all.
	Versions []string
	// Apply makes kubeadm's output ours. It is nil where tests of their own
	// check the difference, in the package that makes it.
	Apply func(w *Want, cfg *config.Config)
}

// Differences is the complete list. Everything else must be equal in meaning.
var Differences = []Difference{
	{
		What: "new keys are ECDSA P-256 unless encryptionAlgorithm says RSA",
		Why:  "an RSA-2048 key takes up to a second on a small machine and there are fourteen of them; kubeadm has the algorithm behind a feature gate",
	}, {
		What:     "with ECDSA chosen, the kubeconfigs' client keys are ECDSA too",
		Why:      "kubeadm v1.29 forgets the setting there (newClientCertConfigFromKubeConfigSpec) and makes RSA keys",
		Versions: []string{Version},
	}, {
		What: "kubelet.conf points at kubelet-client-current.pem from the start",
		Why:  "kubeadm embeds the certificate, then moves it there in kubelet-finalize and restarts the kubelet; the end is the same",
	}, {
		What: "an existing certificate that has expired, lacks a usage or does not match its key, or a kubeconfig for another server, is an error",
		Why:  "kubeadm warns or does not look, and the cluster then fails later with a worse message",
	}, {
		What: "a subject alternative name that is neither an address nor a DNS name is an error",
		Why:  "kubeadm drops it with a warning, and clients find out",
	}, {
		What:     "a certificate below an older CA begins when the CA does",
		Why:      "kubeadm v1.37 lets it begin five minutes before now, and a host without a time server may be further behind",
		Versions: []string{Newest},
	}, {
		What: "where no encryptionAlgorithm is set, renewed keys are of the old key's kind, and a joining control plane's of its CA's",
		Why:  "v1beta3 cannot say what a cluster has, and kubeadm turns ECDSA keys into RSA ones file by file",
	}, {
		What: "certs renew NAME is an error for a file that is missing or below an external CA",
		Why:  "kubeadm prints a line about it and ends as if it had been done",
	}, {
		What: "certs check-expiration shows <expired>, not <invalid>, and its JSON and YAML are there for v1.29 too",
		Why:  "an expired certificate is valid in every other way",
	}, {
		What: "certs generate-csr leaves etcd's certificates out with an external etcd, and puts ca.crt into the kubeconfigs where it is on the host",
		Why:  "nothing would use the former, and somebody would have to fill in the latter by hand",
	}, {
		What: "kubeconfig user without --config goes by the host's admin.conf",
		Why:  "kubeadm goes by defaults, and the kubeconfig then misses the control-plane endpoint",
	}, {
		What: "proxy variables of the installer's environment are not copied into static pods and kube-proxy",
		Why:  "an isolated host has no proxy; extraEnvs are there for who wants them",
	}, {
		What:     "a flag with a mergeMethod that kubeadm would not set itself gets the user's value",
		Why:      "kubeadm v1.37 merges only with what it sets, and so drops the flag without a word (util/arguments.go)",
		Versions: []string{Newest},
	}, {
		What: "a patch that leads to a field which does not exist, or whose type after the plus only begins like a known one, is an error",
		Why:  "kubeadm drops such a field without a word, and takes +jsonx for +json",
	}, {
		What:     "patches for corednsdeployment and kubeproxydaemonset are used with every version",
		Why:      "kubeadm knows the first since v1.31 and the second since v1.37; nobody names a file so by accident",
		Versions: []string{Version},
	}, {
		What: "static pods are asked every second whether they have started, for as long in all as kubeadm allows",
		Why:  "kubeadm's startup probes ask every ten seconds, the first time after ten to twenty, and the pods are shown as not Ready until then; nothing asks once they have started",
		Apply: func(w *Want, _ *config.Config) {
			for name, pod := range w.Pods {
				for _, c := range pod.Spec.Containers {
					if probe := c.StartupProbe; probe != nil {
						probe.FailureThreshold *= probe.PeriodSeconds
						probe.InitialDelaySeconds, probe.PeriodSeconds = 0, 1
						if name == "etcd" { // it is shown in the API when this succeeds, which must not be before there is one
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
		What: "where nf_conntrack_max cannot be set, kube-proxy is told to leave it, and its ConfigMap is not signed as kubeadm's default",
		Why:  "kube-proxy would exit; and kubeadm upgrade would put the default back",
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
		Why:  "kubeadm always says systemd; a kubelet that disagrees with the host's cgroups does not start",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Kubelet == nil {
				w.Kubelet.CgroupDriver = cfg.Facts.CgroupDriver
			}
		},
	}, {
		What:     "on cgroup v1 the kubelet gets failCgroupV1: false",
		Why:      "a kubelet since v1.35 does not start there otherwise; preflight has spoken about it",
		Versions: []string{Newest},
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.CgroupVersion == 1 && cfg.Minor() >= 35 {
				w.Kubelet.FailCgroupV1 = new(false)
			}
		},
	}, {
		What: "the node's KubeletConfiguration has resolvConf where it is not /etc/resolv.conf; the cluster's has not",
		Why:  "kubeadm finds out on the first node only and makes it every node's",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.ResolvConf != "/etc/resolv.conf" {
				w.Kubelet.ResolverConfig = &cfg.Facts.ResolvConf
			}
		},
	}, {
		What: "with swap in use the kubelet gets failSwapOn: false",
		Why:  "preflight has spoken about swap; a kubelet that does not start says it later and worse",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.SwapOn && w.Kubelet.FailSwapOn == nil {
				w.Kubelet.FailSwapOn = new(false)
			}
		},
	}, {
		What: "without a default route the kubelet gets --node-ip",
		Why:  "it finds its address by the default route and does not register without one",
		Apply: func(w *Want, cfg *config.Config) {
			if cfg.Facts.DefaultRoute {
				return
			}
			flags, err := strconv.Unquote(strings.TrimSpace(strings.TrimPrefix(w.KubeletFlags, "KUBELET_KUBEADM_ARGS=")))
			if err != nil {
				panic(err)
			}
			list := append(strings.Fields(flags), "--node-ip="+cfg.Facts.NodeIP)
			slices.Sort(list)
			w.KubeletFlags = "KUBELET_KUBEADM_ARGS=" + strconv.Quote(strings.Join(list, " ")) + "\n"
		},
	},
}
