package kubelet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// reservable are the resources that can be reserved.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

// reserved compares the reservations with the machine's resources.
func (c *check) reserved() {
	k := &c.config
	system, systemOK := c.quantities("systemReserved", k.SystemReserved)
	kube, kubeOK := c.quantities("kubeReserved", k.KubeReserved)
	cpus, cpusOK := c.reservedCPUs()
	if !systemOK || !kubeOK || !cpusOK {
		return
	}
	if len(cpus) > 0 {
		// The list replaces the cpu values of both.
		delete(kube, "cpu")
		system["cpu"] = *resource.NewQuantity(int64(len(cpus)), resource.DecimalSI)
	}
	eviction := c.evictionReserve()
	total := make(map[string]resource.Quantity)
	for _, m := range []map[string]resource.Quantity{system, kube, eviction} {
		for name, q := range m {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	machine := map[string]*resource.Quantity{}
	if c.CPUs > 0 {
		machine["cpu"] = resource.NewQuantity(int64(c.CPUs), resource.DecimalSI)
	}
	if c.MemoryBytes > 0 {
		machine["memory"] = resource.NewQuantity(int64(c.MemoryBytes), resource.BinarySI)
	}
	if c.PIDs > 0 {
		machine["pid"] = resource.NewQuantity(c.PIDs, resource.DecimalSI)
	}
	for _, name := range sortedKeys(machine) {
		sum, ok := total[name]
		if !ok {
			continue
		}
		var parts []string
		for _, part := range []struct {
			field string
			m     map[string]resource.Quantity
		}{{"systemReserved", system}, {"kubeReserved", kube}, {"evictionHard", eviction}} {
			if q, ok := part.m[name]; ok {
				at := c.named(part.field)
				if name == "cpu" && part.field == "systemReserved" && len(cpus) > 0 {
					at = c.named("reservedSystemCPUs")
				}
				parts = append(parts, fmt.Sprintf("%s %s", at, q.String()))
			}
		}
		what := fmt.Sprintf("%s of %s", name, strings.Join(parts, " and "))
		switch sum.Cmp(*machine[name]) {
		case 1:
			c.fail(Reserved, "reserve less: pods get only what is left", "%s is more than this machine has: %s", what, machine[name].String())
		case 0:
			c.warn(Reserved, "reserve less: pods get only what is left", "%s is all that this machine has: pods get nothing", what)
		}
	}
	if k.CPUManagerPolicy == "static" {
		if q := total["cpu"]; q.IsZero() {
			c.fail(Reserved, "set cpu in systemReserved or kubeReserved, or reservedSystemCPUs", "%s static needs a reservation of CPU greater than zero", c.named("cpuManagerPolicy"))
		}
	}
	c.reservedMemory(total["memory"])
}

// quantities reads one map of resources.
func (c *check) quantities(field string, given map[string]string) (map[string]resource.Quantity, bool) {
	out, good := make(map[string]resource.Quantity), true
	fix := fmt.Sprintf("correct %s in %s", field, c.where(field))
	for _, name := range sortedKeys(given) {
		if !slices.Contains(reservable, name) {
			c.fail(Reserved, fix, "%s: %q cannot be reserved, only %s", c.named(field), name, strings.Join(reservable, ", "))
			good = false
			continue
		}
		q, err := resource.ParseQuantity(given[name])
		if err != nil {
			c.fail(Reserved, fix, "%s: %s: %q is not a quantity such as 200m, 500Mi or 1Gi", c.named(field), name, given[name])
			good = false
			continue
		}
		if q.Sign() < 0 {
			c.fail(Reserved, fix, "%s: %s: %s is negative", c.named(field), name, given[name])
			good = false
			continue
		}
		out[name] = q
	}
	return out, good
}

// reservedCPUs checks the list of CPUs.
func (c *check) reservedCPUs() ([]int, bool) {
	list := c.config.ReservedSystemCPUs
	if list == "" {
		return nil, true
	}
	at := c.named("reservedSystemCPUs")
	good := true
	if c.config.SystemReservedCgroup != "" || c.config.KubeReservedCgroup != "" {
		c.fail(Reserved, "remove one of them", "%s cannot be used with systemReservedCgroup or kubeReservedCgroup", at)
		good = false
	}
	cpus, err := parseCPUs(list)
	if err != nil {
		c.fail(Reserved, "write a list of CPUs such as 0-1,4", "%s: %q: %v", at, list, err)
		return nil, false
	}
	if c.CPUs > 0 {
		for _, n := range cpus {
			if n >= c.CPUs {
				c.fail(Reserved, "name only CPUs that this machine has", "%s: %q names CPU %d; this machine has %d, from 0 to %d", at, list, n, c.CPUs, c.CPUs-1)
				good = false
				break
			}
		}
	}
	return cpus, good
}

// parseCPUs reads "0-3,8".
func parseCPUs(s string) ([]int, error) {
	var list []int
	for _, e := range strings.Split(s, ",") {
		first, last, isRange := strings.Cut(e, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		// The bound is larger than every machine.
		if err != nil || err2 != nil || a < 0 || b > 1<<16 {
			return nil, fmt.Errorf("%q is not a CPU or a range of CPUs", e)
		}
		if b < a {
			return nil, fmt.Errorf("the range %q ends before it begins", e)
		}
		for n := a; n <= b; n++ {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list, nil
}

// evictionReserve is what hard eviction keeps free, which the kubelet adds to the
// reservations. Malformed thresholds are reported by eviction.
func (c *check) evictionReserve() map[string]resource.Quantity {
	out := make(map[string]resource.Quantity)
	if c.flags["experimental-allocatable-ignore-eviction"] == "true" {
		return out
	}
	hard := c.config.EvictionHard
	if hard == nil {
		// pkg/kubelet/eviction, defaults_linux.go.
		hard = map[string]string{"memory.available": "100Mi"}
	}
	for signal, name := range map[string]string{"memory.available": "memory", "pid.available": "pid"} {
		value, ok := hard[signal]
		if !ok {
			continue
		}
		if percent, ok := strings.CutSuffix(value, "%"); ok {
			f, err := strconv.ParseFloat(percent, 64)
			has := int64(c.MemoryBytes)
			if name == "pid" {
				has = c.PIDs
			}
			if err == nil && f > 0 && f < 100 && has > 0 {
				out[name] = *resource.NewQuantity(int64(float64(has)*f/100), resource.BinarySI)
			}
		} else if q, err := resource.ParseQuantity(value); err == nil {
			out[name] = q
		}
	}
	return out
}

// reservedMemory checks the memory manager's reservations of the NUMA nodes: their
// sum must equal the memory that is reserved in total.
func (c *check) reservedMemory(reserved resource.Quantity) {
	sum := resource.NewQuantity(0, resource.BinarySI)
	at := c.named("reservedMemory")
	seen := make(map[string]bool)
	for _, r := range c.config.ReservedMemory {
		for _, name := range sortedKeys(stringKeys(r.Limits)) {
			q := r.Limits[corev1.ResourceName(name)]
			key := fmt.Sprintf("NUMA node %d, %s", r.NumaNode, name)
			switch {
			case name != "memory" && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
				c.fail(Reserved, "use memory or hugepages-SIZE", "%s: %s: only memory and hugepages-SIZE can be reserved", at, key)
			case q.IsZero():
				c.fail(Reserved, "give it a quantity such as 1Gi, or remove it", "%s: %s is zero", at, key)
			case seen[key]:
				c.fail(Reserved, "write it once", "%s: %s is given twice", at, key)
			case name == "memory":
				sum.Add(q)
			}
			seen[key] = true
		}
	}
	if c.config.MemoryManagerPolicy == "Static" && c.enabled("MemoryManager") && sum.Cmp(reserved) != 0 {
		c.fail(Reserved, fmt.Sprintf("make the memory of all NUMA nodes in reservedMemory add up to %s", reserved.String()), "%s Static: %s reserves %s of memory, and systemReserved, kubeReserved and evictionHard together reserve %s; both must be equal",
			c.named("memoryManagerPolicy"), at, sum.String(), reserved.String())
	}
}

func stringKeys(l corev1.ResourceList) map[string]resource.Quantity {
	out := make(map[string]resource.Quantity, len(l))
	for k, v := range l {
		out[string(k)] = v
	}
	return out
}

// parseReservedMemory reads --reserved-memory: 0:memory=1Gi,hugepages-2M=2Gi;1:memory=1Gi.
func parseReservedMemory(s string) (any, error) {
	var list []any
	if s == "" {
		return list, nil
	}
	for _, e := range strings.Split(s, ";") {
		node, limits, ok := strings.Cut(e, ":")
		n, err := strconv.Atoi(node)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q: want NODE:memory=QUANTITY, with the number of a NUMA node", e)
		}
		m, err := pairs(limits, "=")
		if err != nil {
			return nil, err
		}
		for name, q := range m {
			if name != "memory" && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
				return nil, fmt.Errorf("%q cannot be reserved, only memory and hugepages-SIZE", name)
			}
			if _, err := resource.ParseQuantity(q.(string)); err != nil {
				return nil, fmt.Errorf("%s: %q is not a quantity such as 1Gi", name, q)
			}
		}
		list = append(list, map[string]any{"numaNode": n, "limits": m})
	}
	return list, nil
}
