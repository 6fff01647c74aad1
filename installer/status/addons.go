package status

import (
	"context"

	"airlift/installer/cluster/workloads"
)

// An AddOn is one that init installs: coredns, kube-proxy, kube-flannel. Optional add-ons are
// manifests.
type AddOn = workloads.AddOn

func (r *Reader) readAddOns(ctx context.Context) (found result, err error) {
	client, err := r.admin()
	if err != nil {
		return found, err
	}
	list, err := workloads.AddOns(ctx, client.API)
	if err != nil {
		return found, err
	}
	found.set = func(s *Status) { s.AddOns = append(s.AddOns, list...) }
	for _, a := range list {
		switch {
		case a.Ready >= a.Wanted || a.NodesNotReady: // the part api names the nodes
		case a.Starting:
			found.warn("look again in a minute: ./install status", "%s has %d of %d pods ready: the others have just been created", a.Name, a.Ready, a.Wanted)
		default:
			found.problem("kubectl get pods -A -o wide; kubectl describe pod -n NAMESPACE NAME", "%s has %d of %d pods ready: %s", a.Name, a.Ready, a.Wanted, a.Reason)
		}
	}
	return found, nil
}
