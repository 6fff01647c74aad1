package kubelet

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A number is a field with bounds (pkg/kubelet/apis/config/validation).
type number struct {
	path     string
	min, max int64
	since    int
	// filled is set if the kubelet replaces a 0 in the file by its default.
	filled bool
}

const anyNumber = math.MaxInt64

var numbers = []number{
	{path: "containerLogMaxFiles", min: 2, max: anyNumber},
	{path: "containerLogMaxWorkers", min: 1, max: anyNumber, since: 30},
	{path: "eventBurst", min: 0, max: anyNumber},
	{path: "eventRecordQPS", min: 0, max: anyNumber},
	{path: "healthzPort", min: 0, max: 65535},
	{path: "imageGCHighThresholdPercent", min: 0, max: 100},
	{path: "imageGCLowThresholdPercent", min: 0, max: 100},
	{path: "iptablesDropBit", min: 0, max: 31},
	{path: "iptablesMasqueradeBit", min: 0, max: 31},
	{path: "kubeAPIBurst", min: 0, max: anyNumber},
	{path: "kubeAPIQPS", min: 0, max: anyNumber},
	{path: "logging.verbosity", min: 0, max: math.MaxInt32},
	{path: "maxOpenFiles", min: 0, max: anyNumber},
	{path: "maxParallelImagePulls", min: 1, max: anyNumber},
	{path: "maxPods", min: 0, max: anyNumber},
	{path: "nodeLeaseDurationSeconds", min: 1, max: anyNumber, filled: true},
	{path: "nodeStatusMaxImages", min: -1, max: anyNumber},
	{path: "oomScoreAdj", min: -1000, max: 1000},
	{path: "podsPerCore", min: 0, max: anyNumber},
	{path: "port", min: 1, max: 65535, filled: true},
	{path: "readOnlyPort", min: 0, max: 65535},
	{path: "registryBurst", min: 0, max: anyNumber},
	{path: "registryPullQPS", min: 0, max: anyNumber},
}

func (c *check) numbers() {
	for _, r := range numbers {
		v, ok := lookup(c.merged, r.path)
		n, isNumber := v.(int64)
		if !ok || !isNumber || r.since > c.minor || r.filled && n == 0 && c.from[r.path] == "" || r.min <= n && n <= r.max {
			continue
		}
		want := fmt.Sprintf("%d or more", r.min)
		if r.max != anyNumber {
			want = fmt.Sprintf("from %d to %d", r.min, r.max)
		}
		c.fail(Configuration, fmt.Sprintf("correct %s in %s", r.path, c.where(r.path)), "%s is %d: it must be %s", c.named(r.path), n, want)
	}
}

// A choice is a field with a list of allowed values.
type choice struct {
	path         string
	values       []string
	since, until int
}

var choices = []choice{
	{path: "authorization.mode", values: []string{"AlwaysAllow", "Webhook"}},
	{path: "configMapAndSecretChangeDetectionStrategy", values: []string{"Get", "Cache", "Watch"}},
	{path: "cpuManagerPolicy", values: []string{"none", "static"}},
	{path: "hairpinMode", values: []string{"promiscuous-bridge", "hairpin-veth", "none"}},
	{path: "imagePullCredentialsVerificationPolicy", values: []string{"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"}, since: 33},
	{path: "logging.format", values: []string{"text", "json"}},
	{path: "memoryManagerPolicy", values: []string{"None", "Static"}},
	{path: "memoryReservationPolicy", values: []string{"None", "TieredReservation"}, since: 36},
	{path: "memorySwap.swapBehavior", values: []string{"LimitedSwap", "UnlimitedSwap"}, until: 29},
	{path: "memorySwap.swapBehavior", values: []string{"LimitedSwap", "NoSwap"}, since: 30},
	{path: "topologyManagerPolicy", values: []string{"none", "best-effort", "restricted", "single-numa-node"}},
	{path: "topologyManagerScope", values: []string{"container", "pod"}},
}

func (c *check) choices() {
	for _, r := range choices {
		v, ok := lookup(c.merged, r.path)
		s, isText := v.(string)
		if !ok || !isText || r.since > c.minor || r.until != 0 && r.until < c.minor || slices.Contains(r.values, s) || s == "" && c.from[r.path] == "" {
			continue
		}
		c.fail(Configuration, fmt.Sprintf("correct %s in %s", r.path, c.where(r.path)), "%s is %q: it must be one of %s", c.named(r.path), s, strings.Join(r.values, ", "))
	}
	if d := c.config.CgroupDriver; d != "" && d != "systemd" && d != "cgroupfs" {
		c.warn(Configuration, "use systemd, or cgroupfs", "%s is %q: the kubelet treats every value except systemd as cgroupfs", c.named("cgroupDriver"), d)
	}
	for _, ip := range c.config.ClusterDNS {
		if parseIP(ip) == nil {
			c.warn(Configuration, "give the address of the cluster's DNS service", "%s: %q is not an IP address, and pods will not use it", c.named("clusterDNS"), ip)
		}
	}
}

// needs are the fields that require a feature gate.
var needs = []struct{ path, gate string }{
	{"cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod"},
	{"crashLoopBackOff.maxContainerRestartPeriod", "KubeletCrashLoopBackOffMax"},
	{"defaultPodSysctls", "DefaultPodSysctls"},
	{"imageMaximumGCAge", "ImageMaximumGCAge"},
	{"imagePullCredentialsVerificationPolicy", "KubeletEnsureSecretPulledImages"},
	{"memorySwap.swapBehavior", "NodeSwap"},
	{"preloadedImagesVerificationAllowlist", "KubeletEnsureSecretPulledImages"},
	{"shutdownGracePeriod", "GracefulNodeShutdown"},
	{"shutdownGracePeriodByPodPriority", "GracefulNodeShutdownBasedOnPodPriority"},
	{"shutdownGracePeriodCriticalPods", "GracefulNodeShutdown"},
	{"tracing", "KubeletTracing"},
	{"enableSystemLogQuery", "NodeLogQuery"},
	{"serverTLSBootstrap", "RotateKubeletServerCertificate"},
}

// empty reports whether a field's value means the same as no value.
func empty(path string, v any) bool {
	switch v := v.(type) {
	case string:
		d, err := time.ParseDuration(v)
		// The period's default needs no gate.
		return v == "" || err == nil && (d == 0 || path == "cpuCFSQuotaPeriod" && d == 100*time.Millisecond)
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0 && path != "tracing"
	}
	return false
}

// combinations checks rules about more than one field.
func (c *check) combinations() {
	k := &c.config
	bad := func(field, fix, format string, args ...any) {
		c.fail(Configuration, fix, "%s "+format, append([]any{c.named(field)}, args...)...)
	}
	for _, n := range needs {
		if v, ok := lookup(c.merged, n.path); ok && !empty(n.path, v) && !c.enabled(n.gate) {
			bad(n.path, fmt.Sprintf("remove it, or set featureGates: {%s: true}", n.gate), "needs the feature gate %s, which is off in v1.%d", n.gate, c.minor)
		}
	}
	// 85 and 80 are the kubelet's defaults.
	high, low := valueOr(k.ImageGCHighThresholdPercent, 85), valueOr(k.ImageGCLowThresholdPercent, 80)
	if low >= high && (k.ImageGCHighThresholdPercent != nil || k.ImageGCLowThresholdPercent != nil) {
		bad("imageGCLowThresholdPercent", "make it smaller", "is %d and %s is %d: the low threshold must be smaller (the defaults are 80 and 85)", low, c.named("imageGCHighThresholdPercent"), high)
	}
	minAge, maxAge := k.ImageMinimumGCAge.Duration, k.ImageMaximumGCAge.Duration
	if minAge == 0 {
		minAge = 2 * time.Minute // the kubelet's default
	}
	if maxAge < 0 || maxAge > 0 && maxAge <= minAge {
		bad("imageMaximumGCAge", "make it longer, or 0s for no limit", "is %v: it must be longer than imageMinimumGCAge, %v", maxAge, minAge)
	}
	if minAge < 0 && c.minor >= 36 {
		bad("imageMinimumGCAge", "make it 0s or more", "is %v: it must not be negative", minAge)
	}
	if k.CPUCFSQuotaPeriod != nil && c.enabled("CustomCPUCFSQuotaPeriod") {
		if d := k.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
			bad("cpuCFSQuotaPeriod", "correct it", "is %v: it must be from 1ms to 1s", d)
		}
	}
	if k.SerializeImagePulls != nil && *k.SerializeImagePulls && valueOr(k.MaxParallelImagePulls, 1) > 1 {
		bad("maxParallelImagePulls", "set serializeImagePulls: false", "is %d, and %s is true, which allows one pull at a time", *k.MaxParallelImagePulls, c.named("serializeImagePulls"))
	}
	c.shutdown(bad)
	c.enforcement(bad)
	if k.SystemCgroups != "" && k.CgroupRoot == "" {
		bad("systemCgroups", "set cgroupRoot too", "is set without cgroupRoot")
	}
	if k.RunOnce && c.minor >= 32 {
		bad("runOnce", "remove it", "was removed in v1.32")
	}
	if k.EnableSystemLogQuery != nil && *k.EnableSystemLogQuery && k.EnableSystemLogHandler != nil && !*k.EnableSystemLogHandler {
		bad("enableSystemLogQuery", "set enableSystemLogHandler: true", "needs enableSystemLogHandler")
	}
	if f := k.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		bad("memoryThrottlingFactor", "correct it", "is %v: it must be greater than 0 and at most 1", *f)
	}
	if k.MemoryReservationPolicy == "TieredReservation" && !c.enabled("MemoryQoS") {
		bad("memoryReservationPolicy", "set featureGates: {MemoryQoS: true}", "TieredReservation needs the feature gate MemoryQoS")
	}
	if p := k.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil && c.enabled("KubeletCrashLoopBackOffMax") && (p.Duration < time.Second || p.Duration > 300*time.Second) {
		bad("crashLoopBackOff.maxContainerRestartPeriod", "correct it", "is %v: it must be from 1s to 5m", p.Duration)
	}
	if s := k.ContainerLogMaxSize; s != "" {
		if _, err := resource.ParseQuantity(s); err != nil {
			bad("containerLogMaxSize", "use a quantity such as 10Mi", "is %q, which is not a quantity", s)
		}
	}
	if d := k.ContainerLogMonitorInterval; d != nil && c.minor >= 30 && d.Duration < 3*time.Second {
		bad("containerLogMonitorInterval", "make it longer", "is %v: it must be 3s or more", d.Duration)
	}
	if dir := k.PodLogsDir; dir != "" && c.minor >= 30 {
		ascii := !strings.ContainsFunc(dir, func(r rune) bool { return r > 127 })
		if !path.IsAbs(dir) || path.Clean(dir) != dir || !ascii {
			bad("podLogsDir", "use a path such as /var/log/pods", "is %q: it must be an absolute path in ASCII, without .., // or a / at its end", dir)
		}
	}
	for _, name := range sortedKeys(k.QOSReserved) {
		if name != "memory" || !percentage(k.QOSReserved[name]) {
			bad("qosReserved", "use memory: 50%", "has %s=%s: only memory can be reserved, in percent", name, k.QOSReserved[name])
		}
	}
	if format := k.Logging.Format; format == "json" && len(k.Logging.VModule) > 0 {
		bad("logging.vmodule", "remove one of them", "works only with the format text, and %s is json", c.named("logging.format"))
	}
}

func (c *check) shutdown(bad func(field, fix, format string, args ...any)) {
	k := &c.config
	all, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	if c.enabled("GracefulNodeShutdown") {
		if critical > all {
			bad("shutdownGracePeriodCriticalPods", "make shutdownGracePeriod longer: it includes shutdownGracePeriodCriticalPods", "is %v, longer than shutdownGracePeriod, %v", critical, all)
		}
		if all < 0 || all > 0 && all < time.Second {
			bad("shutdownGracePeriod", "use 0s or 1s and more", "is %v: it must be 0 or at least 1s", all)
		}
		if critical < 0 || critical > 0 && critical < time.Second {
			bad("shutdownGracePeriodCriticalPods", "use 0s or 1s and more", "is %v: it must be 0 or at least 1s", critical)
		}
	}
	if len(k.ShutdownGracePeriodByPodPriority) > 0 && (all > 0 || critical > 0) && c.enabled("GracefulNodeShutdownBasedOnPodPriority") {
		bad("shutdownGracePeriodByPodPriority", "remove one of them", "cannot be used with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
	}
}

// enforcement checks enforceNodeAllocatable.
func (c *check) enforcement(bad func(field, fix, format string, args ...any)) {
	const field = "enforceNodeAllocatable"
	k := &c.config
	list := k.EnforceNodeAllocatable
	known := []string{"pods", "system-reserved", "kube-reserved", "none"}
	if c.minor >= 32 {
		known = append(known, "system-reserved-compressible", "kube-reserved-compressible")
	}
	for i, name := range list {
		switch {
		case !slices.Contains(known, name):
			bad(field, "correct it", "contains %q: it must be one of %s", name, strings.Join(known, ", "))
		case name == "none" && len(list) > 1:
			bad(field, "remove the other values", "contains none and other values")
		case strings.HasPrefix(name, "system-reserved") && k.SystemReservedCgroup == "":
			bad(field, "set systemReservedCgroup to a cgroup that exists, such as /system.slice", "contains %s, which needs systemReservedCgroup", name)
		case strings.HasPrefix(name, "kube-reserved") && k.KubeReservedCgroup == "":
			bad(field, "set kubeReservedCgroup to a cgroup that exists", "contains %s, which needs kubeReservedCgroup", name)
		}
		if c.minor >= 31 && slices.Contains(list[:i], name) {
			bad(field, "write it once", "contains %s twice", name)
		}
		if whole, ok := strings.CutSuffix(name, "-compressible"); ok && slices.Contains(list, whole) {
			bad(field, "remove one of them", "contains both %s and %s", whole, name)
		}
	}
	if k.CgroupsPerQOS != nil && !*k.CgroupsPerQOS {
		// The default is pods, and "none" means an empty list only since 1.31.
		if list == nil || len(list) > 0 && !(c.minor >= 31 && slices.Equal(list, []string{"none"})) {
			bad("cgroupsPerQOS", "set enforceNodeAllocatable: [] too", "is false, and enforceNodeAllocatable (pods by default) needs it")
		}
	}
}

// signals are the eviction signals (pkg/kubelet/eviction/api).
var signals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
}

func (c *check) eviction() {
	k := &c.config
	each := func(field string, m map[string]string, good func(string) bool, want string) {
		for _, signal := range sortedKeys(m) {
			fix := fmt.Sprintf("correct %s in %s", field, c.where(field))
			if !slices.Contains(signals, signal) {
				c.fail(Configuration, fix, "%s: %q is not an eviction signal: use one of %s", c.named(field), signal, strings.Join(signals, ", "))
			} else if !good(m[signal]) {
				c.fail(Configuration, fix, "%s: %s is %q: it must be %s", c.named(field), signal, m[signal], want)
			}
		}
	}
	threshold := func(s string) bool {
		if strings.HasSuffix(s, "%") {
			return percentage(s)
		}
		q, err := resource.ParseQuantity(s)
		return err == nil && q.Sign() > 0
	}
	reclaim := func(s string) bool {
		if strings.HasSuffix(s, "%") {
			return percentage(s) && s != "0%"
		}
		q, err := resource.ParseQuantity(s)
		return err == nil && q.Sign() >= 0
	}
	period := func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && d >= 0
	}
	each("evictionHard", k.EvictionHard, threshold, "a quantity greater than zero such as 200Mi, or a percentage such as 10%")
	each("evictionSoft", k.EvictionSoft, threshold, "a quantity greater than zero such as 200Mi, or a percentage such as 10%")
	each("evictionMinimumReclaim", k.EvictionMinimumReclaim, reclaim, "a quantity such as 200Mi, or a percentage such as 10%")
	each("evictionSoftGracePeriod", k.EvictionSoftGracePeriod, period, "a duration such as 1m30s")
	for _, signal := range sortedKeys(k.EvictionSoft) {
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok && slices.Contains(signals, signal) {
			c.fail(Configuration, fmt.Sprintf("set evictionSoftGracePeriod: {%s: 1m30s}", signal), "%s: %s has no evictionSoftGracePeriod", c.named("evictionSoft"), signal)
		}
	}
}

// percentage reports whether s is from 0% to 100%.
func percentage(s string) bool {
	digits, ok := strings.CutSuffix(s, "%")
	var f float64
	return ok && json.Unmarshal([]byte(digits), &f) == nil && f >= 0 && f <= 100
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
