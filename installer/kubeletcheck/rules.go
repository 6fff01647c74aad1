package kubeletcheck

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"
)

// A rule is a requirement of the kubelet for its options.
type rule struct {
	// options are fields of the KubeletConfiguration, which flags may also set, and
	// flags that set no field.
	options string
	// must reports what is wrong with an option's value. A row reads as a sentence:
	// maxPods must be at least 0. It is also called if the option is not set.
	must func(value)
}

// table has all rules, with the check that reports them and the packages of
// Kubernetes that have them.
var table = []struct {
	check, source string
	rules         []rule
}{
	{FeatureGates, "component-base/featuregate", []rule{
		{"featureGates", beKnownGates},
	}},
	{NodeLabels, "cmd/kubelet/app/options, plugin/pkg/admission/noderestriction", []rule{
		{"--node-labels", beOwnLabels},
	}},
	{Configuration, "pkg/kubelet/apis/config/validation, component-base/logs/api/v1", []rule{
		{"cpuCFSQuotaPeriod", needGate("CustomCPUCFSQuotaPeriod", last(time.Millisecond, time.Second))},
		{"crashLoopBackOff.maxContainerRestartPeriod", needGate("KubeletCrashLoopBackOffMax", last(time.Second, 5*time.Minute))},
		{"defaultPodSysctls", needGate("DefaultPodSysctls")},
		{"enableSystemLogQuery", needGate("NodeLogQuery")},
		{"imageMaximumGCAge", needGate("ImageMaximumGCAge")},
		{"imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist", needGate("KubeletEnsureSecretPulledImages")},
		{"memorySwap.swapBehavior", needGate("NodeSwap")},
		{"serverTLSBootstrap", needGate("RotateKubeletServerCertificate")},
		{"shutdownGracePeriod shutdownGracePeriodCriticalPods",
			needGate("GracefulNodeShutdown", be("0s, or 1s or more", isGracePeriod))},
		{"shutdownGracePeriodByPodPriority", needGate("GracefulNodeShutdownBasedOnPodPriority")},
		{"tracing", needGate("KubeletTracing")},

		{"eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS registryBurst registryPullQPS", beAtLeast(0)},
		{"maxOpenFiles maxPods podsPerCore", beAtLeast(0)},
		{"nodeLeaseDurationSeconds", beDefaultOr(beAtLeast(1))},
		{"nodeStatusMaxImages", beAtLeast(-1)},
		{"maxParallelImagePulls", beAtLeast(1)},
		{"containerLogMaxFiles", beAtLeast(2)},
		{"containerLogMaxWorkers", beAtLeast(1)},
		{"port", beDefaultOr(beBetween(1, 65535))},
		{"healthzPort readOnlyPort", beBetween(0, 65535)},
		{"imageGCHighThresholdPercent imageGCLowThresholdPercent", beBetween(0, 100)},
		{"iptablesDropBit iptablesMasqueradeBit", beBetween(0, 31)},
		{"logging.verbosity", beBetween(0, math.MaxInt32)},
		{"oomScoreAdj", beBetween(-1000, 1000)},

		{"authorization.mode", beOneOf("AlwaysAllow", "Webhook")},
		{"configMapAndSecretChangeDetectionStrategy", beOneOf("Get", "Cache", "Watch")},
		{"cpuManagerPolicy", beOneOf("none", "static")},
		{"hairpinMode", beOneOf("promiscuous-bridge", "hairpin-veth", "none")},
		{"imagePullCredentialsVerificationPolicy", beOneOf(
			"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")},
		{"imagePullCredentialsVerificationPolicy", when(verifiesImages, leaveImagesUsable)},
		{"eventRecordQPS", changedIn(37, func(v value) {
			v.ignoredIf(v.is == int64(0), "to keep a limit, set eventRecordQPS: 50, the default, in "+v.check.where(v.option),
				" is 0: since v1.37 that means no limit for events, and it was a small limit before")
		})},
		{"logging.format", beOneOf("text", "json")},
		{"memoryManagerPolicy", beOneOf("None", "Static")},
		{"memoryReservationPolicy", beOneOf("None", "TieredReservation")},
		{"memorySwap.swapBehavior", until(29, beOneOf("LimitedSwap", "UnlimitedSwap"))},
		{"memorySwap.swapBehavior", since(30, beOneOf("LimitedSwap", "NoSwap"))},
		{"topologyManagerPolicy", beOneOf("none", "best-effort", "restricted", "single-numa-node")},
		{"topologyManagerScope", beOneOf("container", "pod")},

		{"containerLogMonitorInterval", last(3*time.Second, forever)},
		{"imageMinimumGCAge", since(36, last(0, forever))},

		{"containerLogMaxSize", beDefaultOr(be("a quantity such as 10Mi", isQuantity(-1, 0, 1)))},
		{"podLogsDir", beDefaultOr(be("an absolute path in ASCII such as /var/log/pods, without .., // or a / at its end", isCleanPath))},
		{"qosReserved", have([]string{"memory"}, "a percentage such as 50%", isWholePercentage)},
		{"evictionHard evictionSoft",
			have(signals, "a quantity greater than zero such as 200Mi, or a percentage such as 10%", isThreshold)},
		{"evictionSoftGracePeriod", have(signals, "a duration such as 1m30s", isDuration(0, forever))},
		{"evictionMinimumReclaim", have(signals, "a quantity such as 200Mi, or a percentage such as 10%", isReclaim)},
		{"enforceNodeAllocatable", beEnforceable},
		{"registerWithTaints", beTaints},

		{"cgroupDriver", func(v value) {
			s := v.check.config.CgroupDriver
			v.ignoredIf(s != "" && s != "systemd" && s != "cgroupfs", "use systemd, or cgroupfs",
				" is %q: the kubelet treats every value except systemd as cgroupfs", s)
		}},
		{"cgroupsPerQOS", func(v value) {
			// The default is pods, and none means an empty list only since 1.31.
			list := v.check.config.EnforceNodeAllocatable
			off := list != nil && len(list) == 0 || v.check.minor >= 31 && len(list) == 1 && list[0] == "none"
			v.badIf(v.is == false && !off, "set enforceNodeAllocatable: [] too",
				" is false, and enforceNodeAllocatable (pods by default) needs it")
		}},
		{"clusterDNS", func(v value) {
			for _, s := range v.check.config.ClusterDNS {
				_, err := parseIP(s)
				v.ignoredIf(err != nil, "give the address of the cluster's DNS service", ": %v, and pods will not use it", err)
			}
		}},
		{"enableSystemLogQuery", func(v value) {
			v.badIf(v.is == true && v.check.value("enableSystemLogHandler") == false, "set enableSystemLogHandler: true",
				" needs enableSystemLogHandler")
		}},
		{"evictionSoft", func(v value) {
			for _, signal := range sortedKeys(v.check.config.EvictionSoft) {
				_, ok := v.check.config.EvictionSoftGracePeriod[signal]
				v.badIf(!ok && slices.Contains(signals, signal), "set evictionSoftGracePeriod: {"+signal+": 1m30s}",
					": %s has no evictionSoftGracePeriod", signal)
			}
		}},
		{"imageGCLowThresholdPercent", func(v value) {
			low, high := ptr.Deref(v.check.config.ImageGCLowThresholdPercent, 80), ptr.Deref(v.check.config.ImageGCHighThresholdPercent, 85)
			v.badIf(low >= high, "make it smaller",
				" is %d and %s is %d: the low threshold must be smaller (the defaults are 80 and 85)",
				low, v.check.named("imageGCHighThresholdPercent"), high)
		}},
		{"imageMaximumGCAge", func(v value) {
			longest := v.check.config.ImageMaximumGCAge.Duration
			shortest := cmp.Or(v.check.config.ImageMinimumGCAge.Duration, 2*time.Minute)
			v.badIf(longest < 0 || longest > 0 && longest <= shortest, "make it longer, or 0s for no limit",
				" is %v: it must be longer than imageMinimumGCAge, %v", longest, shortest)
		}},
		{"logging.vmodule", func(v value) {
			v.badIf(len(v.check.config.Logging.VModule) > 0 && v.check.config.Logging.Format == "json", "remove one of them",
				" works only with the format text, and %s is json", v.check.named("logging.format"))
		}},
		{"maxParallelImagePulls", func(v value) {
			v.badIf(ptr.Deref(v.check.config.MaxParallelImagePulls, 1) > 1 && v.check.value("serializeImagePulls") == true,
				"set serializeImagePulls: false", " is %d, and %s is true, which allows one pull at a time",
				v.is, v.check.named("serializeImagePulls"))
		}},
		{"memoryReservationPolicy", func(v value) {
			v.badIf(v.is == "TieredReservation" && !v.check.enabled("MemoryQoS"), "set featureGates: {MemoryQoS: true}",
				" TieredReservation needs the feature gate MemoryQoS")
		}},
		{"memoryThrottlingFactor", func(v value) {
			f := ptr.Deref(v.check.config.MemoryThrottlingFactor, 1)
			v.badIf(f <= 0 || f > 1, "", " is %v: it must be greater than 0 and at most 1", f)
		}},
		{"runOnce", since(32, func(v value) { v.badIf(v.is == true, "remove it", " was removed in v1.32") })},
		{"shutdownGracePeriodByPodPriority", func(v value) {
			others := v.check.config.ShutdownGracePeriod.Duration + v.check.config.ShutdownGracePeriodCriticalPods.Duration
			v.badIf(!isZero(v.is) && others > 0, "remove one of them",
				" cannot be used with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
		}},
		{"shutdownGracePeriodCriticalPods", func(v value) {
			critical, all := v.check.config.ShutdownGracePeriodCriticalPods.Duration, v.check.config.ShutdownGracePeriod.Duration
			v.badIf(critical > all, "make shutdownGracePeriod longer: it includes shutdownGracePeriodCriticalPods",
				" is %v, longer than shutdownGracePeriod, %v", critical, all)
		}},
		{"systemCgroups", haveAlso("cgroupRoot")},
		{"userNamespaces.idsPerPod", be("a multiple of 65536, and less than 4294967296", isBlock)},
		{"userNamespaces.idsPerPod", beMappable},
	}},
	{Flags, "cmd/kubelet/app, pkg/kubelet", []rule{
		{"--help --version", onlyPrints},
		{"--cloud-provider", beExternal},
		{"--config-dir", until(29, func(v value) {
			v.badIf(v.is != nil && !v.check.environment("KUBELET_CONFIG_DROPIN_DIR_ALPHA"), "write KUBELET_CONFIG_DROPIN_DIR_ALPHA=1 to /etc/default/kubelet, or use the KubeletConfiguration",
				" needs the variable KUBELET_CONFIG_DROPIN_DIR_ALPHA in v1.29")
		})},
		{"--exit-on-lock-contention", haveAlso("--lock-file")},
		{"--node-ip", beNodeAddresses},
	}},
	{TLS, "component-base/cli/flag, cmd/kubelet/app, net/http", []rule{
		{"tlsMinVersion", be("one of "+strings.Join(cliflag.TLSPossibleVersions(), ", "), isTLSVersion)},
		{"tlsCipherSuites", beSuites},
		{"tlsCertFile", haveAlso("tlsPrivateKeyFile")},
		{"tlsPrivateKeyFile", haveAlso("tlsCertFile")},
		{"tlsCertFile", fitKey},
	}},
	{ClientCA, "client-go/util/cert", []rule{
		{"authentication.x509.clientCAFile", beCertificates},
	}},
	{Reserved, "cmd/kubelet/app, pkg/kubelet/cm", []rule{
		{"systemReserved kubeReserved", have(resources, "a quantity such as 200m, 500Mi or 1Gi, and not negative", isQuantity(0, 1))},
		{"reservedSystemCPUs", beCPUs},
		{"reservedMemory", beMemoryOfNodes},
		{"systemReserved", leaveSomethingForPods}, // together with the others above, so it must be the last
	}},
}
