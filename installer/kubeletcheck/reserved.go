package kubeletcheck

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/cpuset"
)

// beCPUs is for a list of this machine's CPUs.
func beCPUs(v value) {
	list := v.check.config.ReservedSystemCPUs
	cpus, ok := parseCPUs(list)
	v.badIf(!ok, "write a list of CPUs such as 0-1,4", ": %q is not a list of CPUs", list)
	beyond := slices.DeleteFunc(cpus.List(), func(n int) bool { return n < v.check.CPUs })
	v.badIf(v.check.CPUs > 0 && len(beyond) > 0, "name only CPUs that this machine has",
		": %q names CPU %v; this machine has %d, from 0 to %d", list, cpuset.New(beyond...), v.check.CPUs, v.check.CPUs-1)
	v.badIf(list != "" && v.check.config.SystemReservedCgroup+v.check.config.KubeReservedCgroup != "",
		"remove one of them", " cannot be used with systemReservedCgroup or kubeReservedCgroup")
}

// parseCPUs reads 0-3,8. No machine has a CPU with a number of six digits, and a long
// range of them would need much memory.
func parseCPUs(s string) (cpuset.CPUSet, bool) {
	if regexp.MustCompile(`[0-9]{6}`).MatchString(s) {
		return cpuset.New(), false
	}
	cpus, err := cpuset.Parse(s)
	return cpus, err == nil
}

// beMemoryOfNodes is for the memory manager's reservations of the NUMA nodes.
func beMemoryOfNodes(v value) {
	seen := make(map[string]bool)
	for _, r := range v.check.config.ReservedMemory {
		for _, name := range sortedKeys(r.Limits) {
			q := r.Limits[name]
			key := fmt.Sprintf("NUMA node %d, %s", r.NumaNode, name)
			isMemory := name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
			v.badIf(!isMemory, "use memory or hugepages-SIZE", ": %s: only memory and hugepages-SIZE can be reserved", key)
			v.badIf(q.IsZero(), "give it a quantity such as 1Gi, or remove it", ": %s is zero", key)
			v.badIf(seen[key], "write it once", ": %s is given twice", key)
			seen[key] = true
		}
	}
}

// parseReservedMemory reads --reserved-memory: 0:memory=1Gi,hugepages-2M=2Gi;1:memory=1Gi.
func parseReservedMemory(s string) (any, error) {
	var list []map[string]any
	for _, e := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' }) {
		node, text, ok := strings.Cut(e, ":")
		n, err := strconv.ParseInt(node, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q: want NODE:memory=QUANTITY, with the number of a NUMA node", e)
		}
		var limits map[string]string
		if err := cliflag.NewMapStringString(&limits).Set(text); err != nil {
			return nil, err
		}
		for _, name := range sortedKeys(limits) {
			if _, err := resource.ParseQuantity(limits[name]); err != nil {
				return nil, fmt.Errorf("%s: %q is not a quantity such as 1Gi", name, limits[name])
			}
		}
		list = append(list, map[string]any{"numaNode": n, "limits": limits})
	}
	return list, nil
}

// leaveSomethingForPods compares the reservations with the machine's resources and with
// what the managers of CPUs and memory need, if each reservation is valid.
func leaveSomethingForPods(v value) {
	if slices.ContainsFunc(v.check.problems, func(p Problem) bool { return p.Name == Reserved && !p.Warning }) {
		return
	}
	cpu := v.check.reserve("cpu", resource.NewQuantity(int64(v.check.CPUs), resource.DecimalSI))
	memory := v.check.reserve("memory", resource.NewQuantity(int64(v.check.MemoryBytes), resource.BinarySI))
	v.check.reserve("pid", resource.NewQuantity(v.check.PIDs, resource.DecimalSI))
	if v.check.config.CPUManagerPolicy == "static" && cpu.IsZero() {
		v.check.fail(Reserved, "set cpu in systemReserved or kubeReserved, or reservedSystemCPUs",
			"%s static needs a reservation of CPU greater than zero", v.check.named("cpuManagerPolicy"))
	}
	var nodes resource.Quantity
	for _, r := range v.check.config.ReservedMemory {
		nodes.Add(r.Limits[corev1.ResourceMemory])
	}
	if v.check.config.MemoryManagerPolicy == "Static" && v.check.enabled("MemoryManager") && nodes.Cmp(memory) != 0 {
		v.check.fail(Reserved, "make the memory of all NUMA nodes in reservedMemory add up to "+memory.String(),
			"%s Static: %s reserves %s of memory, and systemReserved, kubeReserved and evictionHard together reserve %s; "+
				"both must be equal", v.check.named("memoryManagerPolicy"), v.check.named("reservedMemory"), nodes.String(), memory.String())
	}
}

// reserve adds up what the options reserve of a resource, and compares it with what the
// machine has.
func (c *check) reserve(name string, has *resource.Quantity) (sum resource.Quantity) {
	var options []string
	add := func(option, quantity string) {
		if q, err := resource.ParseQuantity(quantity); err == nil {
			sum.Add(q)
			options = append(options, c.named(option)+" "+q.String())
		}
	}
	// What hard eviction keeps free is reserved too.
	hard := c.config.EvictionHard
	if hard == nil {
		hard = map[string]string{"memory.available": "100Mi"} // pkg/kubelet/eviction, defaults_linux.go
	}
	threshold := hard[name+".available"]
	if f, ok := percentage(threshold); ok && f > 0 && f < 100 {
		threshold = resource.NewQuantity(int64(float64(has.Value())*f/100), resource.BinarySI).String()
	}
	if cpus, _ := parseCPUs(c.config.ReservedSystemCPUs); name == "cpu" && !cpus.IsEmpty() {
		add("reservedSystemCPUs", strconv.Itoa(cpus.Size())) // it replaces the numbers of CPUs
	} else {
		add("systemReserved", c.config.SystemReserved[name])
		add("kubeReserved", c.config.KubeReserved[name])
	}
	if c.value("--experimental-allocatable-ignore-eviction") != true {
		add("evictionHard", threshold)
	}
	reserved, fix := strings.Join(options, " and "), "reserve less: pods get only what is left"
	if more := sum.Cmp(*has); !has.IsZero() && more > 0 {
		c.fail(Reserved, fix, "%s of %s is more than this machine has: %v", name, reserved, has)
	} else if !has.IsZero() && more == 0 {
		c.warn(Reserved, fix, "%s of %s is all that this machine has: pods get nothing", name, reserved)
	}
	return sum
}
