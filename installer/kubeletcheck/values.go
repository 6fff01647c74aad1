package kubeletcheck

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A value is an option's value, as one rule checks it.
type value struct {
	check        *check
	name, option string
	// is has the type that it has in the file: string, int64, float64, bool, []any or
	// map[string]any. It is nil if the option is not set.
	is any
}

// badIf reports what is wrong with a value. The option comes before the message. An
// empty fix tells the user where to correct the value.
func (v value) badIf(wrong bool, fix, format string, args ...any) {
	if wrong {
		fix = cmp.Or(fix, "correct "+v.option+" in "+v.check.where(v.option))
		v.check.fail(v.name, fix, "%s%s", v.check.named(v.option), fmt.Sprintf(format, args...))
	}
}

// ignoredIf warns about a value that does not prevent the kubelet's start.
func (v value) ignoredIf(wrong bool, fix, format string, args ...any) {
	v.badIf(wrong, fix, format, args...)
	if wrong {
		v.check.problems[len(v.check.problems)-1].Warning = true
	}
}

// isZero reports whether a value can mean the same as no value.
func isZero(is any) bool {
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, show(is)) || equal(is, "0s")
}

func isSet(is any) bool { return is != nil && is != "" && is != false }

// when is for a rule that applies only under a condition.
func when(applies func(value) bool, must func(value)) func(value) {
	return func(v value) {
		if applies(v) {
			must(v)
		}
	}
}

func since(minor int, must func(value)) func(value) {
	return when(func(v value) bool { return v.check.minor >= minor }, must)
}

// changedIn is for a value whose meaning changed: for an upgrade from an older version.
func changedIn(minor int, must func(value)) func(value) {
	return since(minor, when(func(v value) bool { return v.check.From != "" && minorOf(v.check.From) < minor }, must))
}

func until(minor int, must func(value)) func(value) {
	return when(func(v value) bool { return v.check.minor <= minor }, must)
}

// beDefaultOr is for a value that the kubelet replaces by its default if it is zero in
// the file, but not if a flag sets it to zero.
func beDefaultOr(must func(value)) func(value) {
	return when(func(v value) bool { return v.is != "" && v.is != int64(0) || v.check.from[v.option] != "" }, must)
}

// be is for an option with one value, of the type that good takes.
func be[T any](want string, good func(T) bool) func(value) {
	return func(v value) {
		is, ok := v.is.(T)
		v.badIf(ok && !good(is), "", " is %s: it must be %s", show(v.is), want)
	}
}

func beAtLeast(least int64) func(value) {
	return be(fmt.Sprintf("%d or more", least), func(n int64) bool { return n >= least })
}

func beBetween(least, most int64) func(value) {
	return be(fmt.Sprintf("from %d to %d", least, most), func(n int64) bool { return least <= n && n <= most })
}

func beOneOf(words ...string) func(value) {
	return beDefaultOr(be("one of "+strings.Join(words, ", "), func(s string) bool { return slices.Contains(words, s) }))
}

const forever = time.Duration(math.MaxInt64)

func last(least, most time.Duration) func(value) {
	want := fmt.Sprintf("from %v to %v", least, most)
	if most == forever {
		want = fmt.Sprintf("%v or more", least)
	}
	return be(want, isDuration(least, most))
}

// needGate is for a field that can only be set if a feature gate is on, and then follows
// other rules. An empty tracing is set, and the default of cpuCFSQuotaPeriod is not.
func needGate(gate string, rules ...func(value)) func(value) {
	return func(v value) {
		if v.check.enabled(gate) {
			for _, must := range rules {
				must(v)
			}
			return
		}
		isDefault := isZero(v.is) || v.option == "cpuCFSQuotaPeriod" && equal(v.is, "100ms")
		v.badIf(!isDefault || v.option == "tracing" && v.is != nil, "remove it, or set featureGates: {"+gate+": true}",
			" needs the feature gate %s, which is off in v1.%d", gate, v.check.minor)
	}
}

// verifiesImages reports whether the kubelet checks the credentials for images that it did not pull.
func verifiesImages(v value) bool { return v.check.enabled("KubeletEnsureSecretPulledImages") }

// leaveImagesUsable is for the policy of credentials: imported images have none, so that the kubelet
// pulls them again.
func leaveImagesUsable(v value) {
	const fix = "use NeverVerifyPreloadedImages, the default, unless every node can pull its images from a registry"
	v.ignoredIf(v.is == "AlwaysVerify", fix,
		" is AlwaysVerify: the kubelet pulls each imported image again before a pod may use it, and without a registry no pod starts")
	v.ignoredIf(v.is == "NeverVerifyAllowlistedImages", fix+", or name all imported images in preloadedImagesVerificationAllowlist",
		" is NeverVerifyAllowlistedImages: the kubelet pulls an imported image again if preloadedImagesVerificationAllowlist does not name it, and without a registry its pods do not start")
}

// haveAlso is for an option that needs another one.
func haveAlso(other string) func(value) {
	return func(v value) {
		v.badIf(isSet(v.is) && !isSet(v.check.value(other)),
			"set "+other+" too, or remove "+v.option, " is set without %s", other)
	}
}

// have is for a map with known keys.
func have(keys []string, want string, good func(string) bool) func(value) {
	return func(v value) {
		m, _ := v.is.(map[string]any)
		for _, key := range sortedKeys(m) {
			s, _ := m[key].(string)
			known := slices.Contains(keys, key)
			v.badIf(!known, "", ": %q is unknown: use one of %s", key, strings.Join(keys, ", "))
			v.badIf(known && !good(s), "", ": %s is %q: it must be %s", key, s, want)
		}
	}
}

var (
	resources = []string{"cpu", "memory", "ephemeral-storage", "pid"}
	signals   = []string{ // of eviction
		"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
	}
)

func isDuration(least, most time.Duration) func(string) bool {
	return func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && least <= d && d <= most
	}
}

func isGracePeriod(s string) bool { return isDuration(0, 0)(s) || isDuration(time.Second, forever)(s) }

// isQuantity is for a quantity with one of these signs: -1, 0, 1.
func isQuantity(signs ...int) func(string) bool {
	return func(s string) bool {
		q, err := resource.ParseQuantity(s)
		return err == nil && slices.Contains(signs, q.Sign())
	}
}

// percentage is 12.5 for 12.5%; not ok if it is not from 0% to 100%.
func percentage(s string) (float64, bool) {
	digits, ok := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(digits, 64)
	return f, ok && err == nil && f >= 0 && f <= 100
}

func isThreshold(s string) bool {
	_, ok := percentage(s)
	return ok || isQuantity(1)(s)
}

func isReclaim(s string) bool {
	f, ok := percentage(s)
	return ok && f > 0 || isQuantity(0, 1)(s)
}

func isWholePercentage(s string) bool {
	_, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	_, ok := percentage(s)
	return ok && err == nil
}

func isCleanPath(s string) bool {
	return path.IsAbs(s) && path.Clean(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func beEnforceable(v value) {
	list := v.check.config.EnforceNodeAllocatable
	cgroups := map[string]string{"system-reserved": "systemReservedCgroup", "kube-reserved": "kubeReservedCgroup"}
	known := []string{"pods", "system-reserved", "kube-reserved", "none"}
	if v.check.minor >= 32 {
		known = append(known, "system-reserved-compressible", "kube-reserved-compressible")
	}
	for i, name := range list {
		whole, compressible := strings.CutSuffix(name, "-compressible")
		isKnown, cgroup := slices.Contains(known, name), cgroups[whole]
		v.badIf(!isKnown, "", " contains %q: it must be one of %s", name, strings.Join(known, ", "))
		v.badIf(name == "none" && len(list) > 1, "remove the other values", " contains none and other values")
		v.badIf(isKnown && cgroup != "" && !isSet(v.check.value(cgroup)),
			"set "+cgroup+" to a cgroup that exists, such as /system.slice", " contains %s, which needs %s", name, cgroup)
		v.badIf(compressible && slices.Contains(list, whole),
			"remove one of them", " contains both %s and %s", whole, name)
		v.badIf(v.check.minor >= 31 && slices.Contains(list[:i], name), "write it once", " contains %s twice", name)
	}
}

// beExternal is for the cloud provider.
func beExternal(v value) {
	report := v.badIf
	if v.check.minor >= 34 { // the kubelet does not check it any more
		report = v.ignoredIf
	}
	report(isSet(v.is) && v.is != "external", `use "external" and install the provider's controller manager`,
		"=%s: the kubelet has no built-in cloud providers any more", v.is)
}

// onlyPrints is for a flag with which the kubelet prints and exits. --version=v1.2.3 only
// changes the version that the kubelet reports.
func onlyPrints(v value) {
	s := fmt.Sprint(v.is)
	v.badIf(v.is != nil && s != "false" && !strings.HasPrefix(s, "v"), "remove it", " makes the kubelet print and exit")
}

// beNodeAddresses is for one address, or one of each family.
func beNodeAddresses(v value) {
	const fix = "give one address of this host, or one of each family, separated by a comma"
	list, _ := v.is.(string)
	var ips []net.IP
	for s := range strings.SplitSeq(list, ",") {
		ip, err := parseIP(s)
		if err == nil {
			ips = append(ips, ip)
		}
		v.ignoredIf(err != nil && list != "", fix, "=%s: %v, and the kubelet will ignore it", list, err)
	}
	oneOfEach := len(ips) == 2 && (ips[0].To4() == nil) != (ips[1].To4() == nil)
	v.badIf(len(ips) > 1 && !oneOfEach, fix, "=%s: it must be one address, or one of IPv4 and one of IPv6", list)
	v.badIf(oneOfEach && (ips[0].IsUnspecified() || ips[1].IsUnspecified()), fix,
		"=%s: 0.0.0.0 and :: cannot be one of two addresses", list)
}
