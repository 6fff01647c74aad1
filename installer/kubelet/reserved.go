package kubelet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// beCPUs is for a list of this machine's CPUs.
func beCPUs(v value) {
	list := v.config.ReservedSystemCPUs
	cpus, ok := parseCPUs(list)
	v.badIf(!ok, "write a list of CPUs such as 0-1,4", ": %q is not a list of CPUs", list)
	for _, n := range cpus.List() {
		if v.CPUs > 0 && n >= v.CPUs {
			v.bad("name only CPUs that this machine has", ": %q names CPU %d; this machine has %d, from 0 to %d", list, n, v.CPUs, v.CPUs-1)
			return
		}
	}
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
	for _, r := range v.config.ReservedMemory {
		for _, name := range sortedKeys(r.Limits) {
			q := r.Limits[name]
			key := fmt.Sprintf("NUMA node %d, %s", r.NumaNode, name)
			switch {
			case !isMemory(string(name)):
				v.bad("use memory or hugepages-SIZE", ": %s: only memory and hugepages-SIZE can be reserved", key)
			case q.IsZero():
				v.bad("give it a quantity such as 1Gi, or remove it", ": %s is zero", key)
			case seen[key]:
				v.bad("write it once", ": %s is given twice", key)
			}
			seen[key] = true
		}
	}
}

func isMemory(name string) bool {
	return name == "memory" || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// parseReservedMemory reads --reserved-memory: 0:memory=1Gi,hugepages-2M=2Gi;1:memory=1Gi.
func parseReservedMemory(s string) (any, error) {
	var list []any
	for e := range strings.SplitSeq(s, ";") {
		node, limits, ok := strings.Cut(e, ":")
		n, err := strconv.ParseInt(node, 10, 32)
		if s == "" {
			return list, nil
		} else if !ok || err != nil {
			return nil, fmt.Errorf("%q: want NODE:memory=QUANTITY, with the number of a NUMA node", e)
		}
		m, err := pairs(limits, "=")
		if err != nil {
			return nil, err
		}
		for name, q := range m {
			if !isMemory(name) {
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

// leaveSomethingForPods compares the reservations with the machine's resources and with
// what the managers of CPUs and memory need, if each reservation is valid.
func leaveSomethingForPods(v value) {
	if slices.ContainsFunc(v.problems, func(p Problem) bool { return p.Name == Reserved && !p.Warning }) {
		return
	}
	type part struct {
		field string
		has   map[string]resource.Quantity
	}
	parts := []part{
		{"systemReserved", quantities(v.config.SystemReserved)},
		{"kubeReserved", quantities(v.config.KubeReserved)},
		{"evictionHard", v.evictionReserve()},
	}
	if cpus, _ := parseCPUs(v.config.ReservedSystemCPUs); !cpus.IsEmpty() {
		// The list replaces the numbers of CPUs.
		delete(parts[0].has, "cpu")
		delete(parts[1].has, "cpu")
		parts = append(parts, part{"reservedSystemCPUs", quantities(map[string]string{"cpu": strconv.Itoa(cpus.Size())})})
	}
	total := make(map[string]resource.Quantity)
	for _, machine := range []struct {
		name string
		has  *resource.Quantity
	}{
		{"cpu", resource.NewQuantity(int64(v.CPUs), resource.DecimalSI)},
		{"memory", resource.NewQuantity(int64(v.MemoryBytes), resource.BinarySI)},
		{"pid", resource.NewQuantity(v.PIDs, resource.DecimalSI)},
	} {
		var sum resource.Quantity
		var reserved []string
		for _, p := range parts {
			if q, ok := p.has[machine.name]; ok {
				sum.Add(q)
				reserved = append(reserved, v.named(p.field)+" "+q.String())
			}
		}
		total[machine.name] = sum
		if machine.has.IsZero() || reserved == nil || sum.Cmp(*machine.has) < 0 {
			continue
		}
		report, than := v.fail, "is more than this machine has: "+machine.has.String()
		if sum.Cmp(*machine.has) == 0 {
			report, than = v.warn, "is all that this machine has: pods get nothing"
		}
		report(Reserved, "reserve less: pods get only what is left", "%s of %s %s", machine.name, strings.Join(reserved, " and "), than)
	}
	if q := total["cpu"]; v.config.CPUManagerPolicy == "static" && q.IsZero() {
		v.fail(Reserved, "set cpu in systemReserved or kubeReserved, or reservedSystemCPUs", "%s static needs a reservation of CPU greater than zero", v.named("cpuManagerPolicy"))
	}
	var nodes resource.Quantity
	for _, r := range v.config.ReservedMemory {
		nodes.Add(r.Limits[corev1.ResourceMemory])
	}
	if memory := total["memory"]; v.config.MemoryManagerPolicy == "Static" && v.enabled("MemoryManager") && nodes.Cmp(memory) != 0 {
		v.fail(Reserved, "make the memory of all NUMA nodes in reservedMemory add up to "+memory.String(), "%s Static: %s reserves %s of memory, and systemReserved, kubeReserved and evictionHard together reserve %s; both must be equal",
			v.named("memoryManagerPolicy"), v.named("reservedMemory"), nodes.String(), memory.String())
	}
}

// quantities parses a map of resources, without what cannot be parsed.
func quantities(given map[string]string) map[string]resource.Quantity {
	out := make(map[string]resource.Quantity)
	for name, s := range given {
		if q, err := resource.ParseQuantity(s); err == nil {
			out[name] = q
		}
	}
	return out
}

// evictionReserve is what hard eviction keeps free, which the kubelet adds to the
// reservations.
func (c *check) evictionReserve() map[string]resource.Quantity {
	hard := c.config.EvictionHard
	if c.value("--experimental-allocatable-ignore-eviction") == true {
		return nil
	} else if hard == nil {
		hard = map[string]string{"memory.available": "100Mi"} // pkg/kubelet/eviction, defaults_linux.go
	}
	out := quantities(map[string]string{"memory": hard["memory.available"], "pid": hard["pid.available"]})
	for name, machine := range map[string]int64{"memory": int64(c.MemoryBytes), "pid": c.PIDs} {
		if f, ok := percentage(hard[name+".available"]); ok && f > 0 && f < 100 && machine > 0 {
			out[name] = *resource.NewQuantity(int64(float64(machine)*f/100), resource.BinarySI)
		}
	}
	return out
}
