package kubelet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
)

// A rule is what the kubelets of some minor versions demand of their options.
type rule struct {
	// options are fields of the KubeletConfiguration, which flags may also set, and
	// flags that set no field.
	options string
	in      versions
	// must reports what is wrong with an option's value. A row reads as a sentence:
	// maxPods must always be at least 0. It is also called if the option is not set.
	must func(value)
}

type versions struct{ first, last int }

var always = versions{0, math.MaxInt}

func since(minor int) versions { return versions{minor, math.MaxInt} }
func until(minor int) versions { return versions{0, minor} }

// table has all rules, with the check that reports them and the packages of
// Kubernetes that have them.
var table = []struct {
	check, source string
	rules         []rule
}{
	{FeatureGates, "component-base/featuregate", []rule{
		{"featureGates", always, beKnownGates},
	}},
	{NodeLabels, "cmd/kubelet/app/options, plugin/pkg/admission/noderestriction", []rule{
		{"--node-labels", always, beOwnLabels},
	}},
	{Configuration, "pkg/kubelet/apis/config/validation, component-base/logs/api/v1", []rule{
		{"cpuCFSQuotaPeriod", always, needGate("CustomCPUCFSQuotaPeriod")},
		{"crashLoopBackOff.maxContainerRestartPeriod", always, needGate("KubeletCrashLoopBackOffMax")},
		{"defaultPodSysctls", always, needGate("DefaultPodSysctls")},
		{"enableSystemLogQuery", always, needGate("NodeLogQuery")},
		{"imageMaximumGCAge", always, needGate("ImageMaximumGCAge")},
		{"imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist", always, needGate("KubeletEnsureSecretPulledImages")},
		{"memorySwap.swapBehavior", always, needGate("NodeSwap")},
		{"serverTLSBootstrap", always, needGate("RotateKubeletServerCertificate")},
		{"shutdownGracePeriod shutdownGracePeriodCriticalPods", always, needGate("GracefulNodeShutdown")},
		{"shutdownGracePeriodByPodPriority", always, needGate("GracefulNodeShutdownBasedOnPodPriority")},
		{"tracing", always, needGate("KubeletTracing")},

		{"eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS maxOpenFiles maxPods podsPerCore registryBurst registryPullQPS", always, beAtLeast(0)},
		{"nodeLeaseDurationSeconds", always, beDefaultOr(beAtLeast(1))},
		{"nodeStatusMaxImages", always, beAtLeast(-1)},
		{"maxParallelImagePulls", always, beAtLeast(1)},
		{"containerLogMaxFiles", always, beAtLeast(2)},
		{"containerLogMaxWorkers", since(30), beAtLeast(1)},
		{"port", always, beDefaultOr(beBetween(1, 65535))},
		{"healthzPort readOnlyPort", always, beBetween(0, 65535)},
		{"imageGCHighThresholdPercent imageGCLowThresholdPercent", always, beBetween(0, 100)},
		{"iptablesDropBit iptablesMasqueradeBit", always, beBetween(0, 31)},
		{"logging.verbosity", always, beBetween(0, math.MaxInt32)},
		{"oomScoreAdj", always, beBetween(-1000, 1000)},

		{"authorization.mode", always, beOneOf("AlwaysAllow", "Webhook")},
		{"configMapAndSecretChangeDetectionStrategy", always, beOneOf("Get", "Cache", "Watch")},
		{"cpuManagerPolicy", always, beOneOf("none", "static")},
		{"hairpinMode", always, beOneOf("promiscuous-bridge", "hairpin-veth", "none")},
		{"imagePullCredentialsVerificationPolicy", since(33), beOneOf("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")},
		{"logging.format", always, beOneOf("text", "json")},
		{"memoryManagerPolicy", always, beOneOf("None", "Static")},
		{"memoryReservationPolicy", since(36), beOneOf("None", "TieredReservation")},
		{"memorySwap.swapBehavior", until(29), beOneOf("LimitedSwap", "UnlimitedSwap")},
		{"memorySwap.swapBehavior", since(30), beOneOf("LimitedSwap", "NoSwap")},
		{"topologyManagerPolicy", always, beOneOf("none", "best-effort", "restricted", "single-numa-node")},
		{"topologyManagerScope", always, beOneOf("container", "pod")},

		{"containerLogMonitorInterval", since(30), last(3*time.Second, forever)},
		{"cpuCFSQuotaPeriod", always, withGate("CustomCPUCFSQuotaPeriod", last(time.Millisecond, time.Second))},
		{"crashLoopBackOff.maxContainerRestartPeriod", always, withGate("KubeletCrashLoopBackOffMax", last(time.Second, 5*time.Minute))},
		{"imageMinimumGCAge", since(36), last(0, forever)},
		{"shutdownGracePeriod shutdownGracePeriodCriticalPods", always, withGate("GracefulNodeShutdown", be("0s, or 1s or more", isGracePeriod))},

		{"containerLogMaxSize", always, be("a quantity such as 10Mi", isSize)},
		{"podLogsDir", since(30), be("an absolute path in ASCII such as /var/log/pods, without .., // or a / at its end", isCleanPath)},
		{"qosReserved", always, have([]string{"memory"}, "a percentage such as 50%", isWholePercentage)},
		{"evictionHard evictionSoft", always, have(signals, "a quantity greater than zero such as 200Mi, or a percentage such as 10%", isThreshold)},
		{"evictionSoftGracePeriod", always, have(signals, "a duration such as 1m30s", isPeriod)},
		{"evictionMinimumReclaim", always, have(signals, "a quantity such as 200Mi, or a percentage such as 10%", isReclaim)},
		{"enforceNodeAllocatable", always, beEnforceable},
		{"registerWithTaints", always, beTaints},

		{"cgroupDriver", always, func(v value) {
			s := v.config.CgroupDriver
			v.ignoredIf(s != "" && s != "systemd" && s != "cgroupfs", "use systemd, or cgroupfs", " is %q: the kubelet treats every value except systemd as cgroupfs", s)
		}},
		{"cgroupsPerQOS", always, func(v value) {
			// The default is pods, and none means an empty list only since 1.31.
			list := v.config.EnforceNodeAllocatable
			off := list != nil && len(list) == 0 || v.minor >= 31 && len(list) == 1 && list[0] == "none"
			v.badIf(v.is == false && !off, "set enforceNodeAllocatable: [] too", " is false, and enforceNodeAllocatable (pods by default) needs it")
		}},
		{"clusterDNS", always, func(v value) {
			for _, s := range v.config.ClusterDNS {
				_, err := parseIP(s)
				v.ignoredIf(err != nil, "give the address of the cluster's DNS service", ": %v, and pods will not use it", err)
			}
		}},
		{"enableSystemLogQuery", always, func(v value) {
			v.badIf(v.is == true && v.value("enableSystemLogHandler") == false, "set enableSystemLogHandler: true", " needs enableSystemLogHandler")
		}},
		{"evictionSoft", always, func(v value) {
			for _, signal := range sortedKeys(v.config.EvictionSoft) {
				_, ok := v.config.EvictionSoftGracePeriod[signal]
				v.badIf(!ok && slices.Contains(signals, signal), "set evictionSoftGracePeriod: {"+signal+": 1m30s}", ": %s has no evictionSoftGracePeriod", signal)
			}
		}},
		{"imageGCLowThresholdPercent", always, func(v value) {
			low, high := or(v.config.ImageGCLowThresholdPercent, 80), or(v.config.ImageGCHighThresholdPercent, 85)
			v.badIf(low >= high, "make it smaller", " is %d and %s is %d: the low threshold must be smaller (the defaults are 80 and 85)", low, v.named("imageGCHighThresholdPercent"), high)
		}},
		{"imageMaximumGCAge", always, func(v value) {
			shortest, longest := cmp.Or(v.config.ImageMinimumGCAge.Duration, 2*time.Minute), v.config.ImageMaximumGCAge.Duration
			v.badIf(longest < 0 || longest > 0 && longest <= shortest, "make it longer, or 0s for no limit", " is %v: it must be longer than imageMinimumGCAge, %v", longest, shortest)
		}},
		{"logging.vmodule", always, func(v value) {
			v.badIf(len(v.config.Logging.VModule) > 0 && v.config.Logging.Format == "json", "remove one of them", " works only with the format text, and %s is json", v.named("logging.format"))
		}},
		{"maxParallelImagePulls", always, func(v value) {
			v.badIf(or(v.config.MaxParallelImagePulls, 1) > 1 && v.value("serializeImagePulls") == true, "set serializeImagePulls: false", " is %d, and %s is true, which allows one pull at a time", v.is, v.named("serializeImagePulls"))
		}},
		{"memoryReservationPolicy", always, func(v value) {
			v.badIf(v.is == "TieredReservation" && !v.enabled("MemoryQoS"), "set featureGates: {MemoryQoS: true}", " TieredReservation needs the feature gate MemoryQoS")
		}},
		{"memoryThrottlingFactor", always, func(v value) {
			f := or(v.config.MemoryThrottlingFactor, 1)
			v.badIf(f <= 0 || f > 1, "", " is %v: it must be greater than 0 and at most 1", f)
		}},
		{"runOnce", since(32), func(v value) { v.badIf(v.is == true, "remove it", " was removed in v1.32") }},
		{"shutdownGracePeriodByPodPriority", always, withGate("GracefulNodeShutdownBasedOnPodPriority", func(v value) {
			others := v.config.ShutdownGracePeriod.Duration + v.config.ShutdownGracePeriodCriticalPods.Duration
			v.badIf(!isZero(v.is) && others > 0, "remove one of them", " cannot be used with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
		})},
		{"shutdownGracePeriodCriticalPods", always, withGate("GracefulNodeShutdown", func(v value) {
			critical, all := v.config.ShutdownGracePeriodCriticalPods.Duration, v.config.ShutdownGracePeriod.Duration
			v.badIf(critical > all, "make shutdownGracePeriod longer: it includes shutdownGracePeriodCriticalPods", " is %v, longer than shutdownGracePeriod, %v", critical, all)
		})},
		{"systemCgroups", always, haveAlso("cgroupRoot")},
	}},
	{Flags, "cmd/kubelet/app, pkg/kubelet", []rule{
		{"--help --version", always, onlyPrints},
		{"--cloud-provider", always, func(v value) {
			report := v.badIf
			if v.minor >= 34 {
				report = v.ignoredIf // the kubelet does not check it any more
			}
			report(v.is != nil && v.is != "" && v.is != "external", `use "external" and install the provider's controller manager`, "=%s: the kubelet has no built-in cloud providers any more", v.is)
		}},
		{"--config-dir", until(29), func(v value) {
			v.badIf(v.is != nil, "set KUBELET_CONFIG_DROPIN_DIR_ALPHA in the kubelet's environment, or use the KubeletConfiguration", " needs the variable KUBELET_CONFIG_DROPIN_DIR_ALPHA in v1.29")
		}},
		{"--exit-on-lock-contention", always, haveAlso("--lock-file")},
		{"--node-ip", always, beNodeAddresses},
	}},
	{TLS, "component-base/cli/flag, cmd/kubelet/app, net/http", []rule{
		{"tlsMinVersion", always, be("one of "+strings.Join(cliflag.TLSPossibleVersions(), ", "), isTLSVersion)},
		{"tlsCipherSuites", always, beSuites},
		{"tlsCertFile", always, haveAlso("tlsPrivateKeyFile")},
		{"tlsPrivateKeyFile", always, haveAlso("tlsCertFile")},
		{"tlsCertFile", always, fitKey},
	}},
	{ClientCA, "client-go/util/cert", []rule{
		{"authentication.x509.clientCAFile", always, beCertificates},
	}},
	{Reserved, "cmd/kubelet/app, pkg/kubelet/cm", []rule{
		{"systemReserved kubeReserved", always, have(resources, "a quantity such as 200m, 500Mi or 1Gi, and not negative", isAmount)},
		{"reservedSystemCPUs", always, beCPUs},
		{"reservedSystemCPUs", always, func(v value) {
			v.badIf(v.config.ReservedSystemCPUs != "" && v.config.SystemReservedCgroup+v.config.KubeReservedCgroup != "", "remove one of them", " cannot be used with systemReservedCgroup or kubeReservedCgroup")
		}},
		{"reservedMemory", always, beMemoryOfNodes},
		// This one must be the last.
		{"", always, leaveSomethingForPods},
	}},
}

// A value is what an option was set to, for one rule.
type value struct {
	*check
	name, option string
	// is has the type that it has in the file: string, int64, float64, bool, []any or
	// map[string]any. It is nil if the option is not set.
	is any
}

// bad reports what is wrong with a value. The option comes before the message. An
// empty fix tells the user where to correct the value.
func (v value) bad(fix, format string, args ...any) {
	v.fail(v.name, cmp.Or(fix, "correct "+v.option+" in "+v.where(v.option)), "%s"+format, append([]any{v.named(v.option)}, args...)...)
}

func (v value) badIf(wrong bool, fix, format string, args ...any) {
	if wrong {
		v.bad(fix, format, args...)
	}
}

// ignoredIf warns of a value with which the kubelet starts.
func (v value) ignoredIf(wrong bool, fix, format string, args ...any) {
	if wrong {
		v.bad(fix, format, args...)
		v.problems[len(v.problems)-1].Warning = true
	}
}

// or is what a pointer points to.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
