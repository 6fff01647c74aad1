package preflight

import "airlift/installer/runtimecheck"

// OfRuntime returns the problems with files that containerd reads at its start.
func OfRuntime(list []runtimecheck.Problem) (found []Problem) {
	for _, p := range list {
		found = append(found, Problem{Message: p.Message, Fix: p.Fix, Warning: p.Warning})
	}
	return found
}
