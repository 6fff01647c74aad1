package preflight

import (
	"context"

	"airlift/installer/gpucheck"
)

// gpu warns of what the GPUs of this host need before containers can use them.
func (s *subject) gpu(context.Context) []Problem { return OfGPU(gpucheck.OnHost(s.host.Path("/"))) }

// OfGPU returns what GPUs need, as warnings.
func OfGPU(list []gpucheck.Problem) (found []Problem) {
	for _, p := range list {
		found = append(found, Problem{Message: p.Message, Fix: p.Fix, Minor: p.Minor, Warning: true})
	}
	return found
}
