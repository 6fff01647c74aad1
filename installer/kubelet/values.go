package kubelet

import (
	"fmt"
	"math"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
)

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
	return be(want, func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && least <= d && d <= most
	})
}

// beDefaultOr is for a value that the kubelet replaces by its default if it is zero in
// the file, but not if a flag sets it to zero.
func beDefaultOr(must func(value)) func(value) {
	return func(v value) {
		if v.is != "" && v.is != int64(0) || v.from[v.option] != "" {
			must(v)
		}
	}
}

// isZero reports whether a value that is not a number means the same as no value.
func isZero(v any) bool {
	switch v := v.(type) {
	case string:
		d, err := time.ParseDuration(v)
		return v == "" || err == nil && d == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil || v == false
}

// withGate is for a rule that applies only if a feature gate is on.
func withGate(gate string, must func(value)) func(value) {
	return func(v value) {
		if v.enabled(gate) {
			must(v)
		}
	}
}

// needGate is for a field that can only be set if a feature gate is on. An empty
// tracing is set, and the default of cpuCFSQuotaPeriod is not.
func needGate(gate string) func(value) {
	return func(v value) {
		set := !isZero(v.is) && !(v.option == "cpuCFSQuotaPeriod" && equal(v.is, "100ms")) || v.option == "tracing" && v.is != nil
		v.badIf(set && !v.enabled(gate), "remove it, or set featureGates: {"+gate+": true}", " needs the feature gate %s, which is off in v1.%d", gate, v.minor)
	}
}

// haveAlso is for an option that needs another one.
func haveAlso(other string) func(value) {
	isSet := func(is any) bool { return is != nil && is != "" && is != false }
	return func(v value) {
		v.badIf(isSet(v.is) && !isSet(v.value(other)), "set "+other+" too, or remove "+v.option, " is set without %s", other)
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

func isGracePeriod(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && (d == 0 || d >= time.Second)
}

func isSize(s string) bool {
	_, err := resource.ParseQuantity(s)
	return s == "" || err == nil
}

func isTLSVersion(s string) bool {
	_, err := cliflag.TLSVersion(s)
	return err == nil
}

func isAmount(s string) bool { // a quantity that is not negative
	q, err := resource.ParseQuantity(s)
	return err == nil && q.Sign() >= 0
}

func isThreshold(s string) bool {
	_, ok := percentage(s)
	q, err := resource.ParseQuantity(s)
	return ok || err == nil && q.Sign() > 0
}

func isReclaim(s string) bool {
	f, ok := percentage(s)
	return ok && f > 0 || isAmount(s)
}

func isPeriod(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && d >= 0
}

// percentage is 12.5 for 12.5%; not ok if it is not from 0% to 100%.
func percentage(s string) (float64, bool) {
	digits, ok := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(digits, 64)
	return f, ok && err == nil && f >= 0 && f <= 100
}

func isWholePercentage(s string) bool {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	return ok && err == nil && n >= 0 && n <= 100
}

func isCleanPath(s string) bool {
	return s == "" || path.IsAbs(s) && path.Clean(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func beEnforceable(v value) {
	list := v.config.EnforceNodeAllocatable
	known := []string{"pods", "system-reserved", "kube-reserved", "none"}
	if v.minor >= 32 {
		known = append(known, "system-reserved-compressible", "kube-reserved-compressible")
	}
	for i, name := range list {
		switch {
		case !slices.Contains(known, name):
			v.bad("", " contains %q: it must be one of %s", name, strings.Join(known, ", "))
		case name == "none" && len(list) > 1:
			v.bad("remove the other values", " contains none and other values")
		case strings.HasPrefix(name, "system-reserved") && v.config.SystemReservedCgroup == "":
			v.bad("set systemReservedCgroup to a cgroup that exists, such as /system.slice", " contains %s, which needs systemReservedCgroup", name)
		case strings.HasPrefix(name, "kube-reserved") && v.config.KubeReservedCgroup == "":
			v.bad("set kubeReservedCgroup to a cgroup that exists", " contains %s, which needs kubeReservedCgroup", name)
		}
		v.badIf(v.minor >= 31 && slices.Contains(list[:i], name), "write it once", " contains %s twice", name)
		whole, ok := strings.CutSuffix(name, "-compressible")
		v.badIf(ok && slices.Contains(list, whole), "remove one of them", " contains both %s and %s", whole, name)
	}
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
	v.badIf(oneOfEach && (ips[0].IsUnspecified() || ips[1].IsUnspecified()), fix, "=%s: 0.0.0.0 and :: cannot be one of two addresses", list)
}
