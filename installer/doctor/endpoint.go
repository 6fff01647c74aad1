package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"airlift/installer/endpoint/neighbours"
	"airlift/installer/endpoint/service"
	"airlift/installer/endpoint/vip"
	"airlift/installer/preflight"
	"airlift/installer/status"
)

// endpointProblems are why the status' problems with the endpoint matter, by their names, and their ranks.
var endpointProblems = map[string]struct {
	at  rank
	why string
}{
	status.EndpointMissing:     {anEndpoint, "the kubelet and kube-proxy of this node reach the API only through what the cluster has, and a control plane without the service never has the virtual address"},
	status.EndpointSettings:    {anEndpoint, "the service of this host does something else than the services of the other hosts"},
	status.EndpointDisabled:    {aLeftover, "after a reboot, the kubelet of this host does not reach the API through the balancer, and this host does not have the virtual address"},
	status.EndpointInterface:   {anEndpoint, "this host cannot have the virtual address"},
	status.EndpointConflict:    {anEndpoint, "some packets for the API go to a host that does not answer them"},
	status.EndpointNowhere:     {aSymptom, "nothing answers at the virtual address: it is on the control plane of etcd's leader, if its API server is ready"},
	status.EndpointNoAPI:       {aSymptom, "the kubelet and kube-proxy of this node have no API server"},
	status.EndpointAPIServer:   {aSymptom, "the cluster has one API server less; the balancer of this node uses the others"},
	status.EndpointCertificate: {aCertificate, "clients that verify the certificate do not connect by this address"},
	"":                         {aConfiguration, "the service of the endpoint does not start without its settings"},
}

func (s *suspicions) endpoint(e examined) {
	found := false
	// A check reports, too, that no interface has the subnet of the virtual address.
	checked := slices.ContainsFunc(e.checks.Errors, func(p preflight.Problem) bool { return p.Name == "ControlPlaneVIP" })
	for _, p := range slices.Concat(e.status.Problems, e.status.Warnings) {
		if p.Part != "endpoint" || p.Name == status.EndpointInterface && checked {
			continue
		}
		found = found || p.Name == status.EndpointConflict
		matters := endpointProblems[p.Name]
		s.add(matters.at, cmp.Or(p.Name, "endpoint"), matters.why, p.Fix, "%s", p.Message)
	}
	for _, c := range e.taken {
		if !found {
			s.add(anEndpoint, status.EndpointConflict, endpointProblems[status.EndpointConflict].why, status.FindHosts(c.MAC),
				"another host, with the hardware address %s, has the virtual address %s, which this host has: it answered at %s", c.MAC, c.Address, c.Time.Format(time.TimeOnly))
		}
	}
}

// otherHolders asks on the network who else has the virtual addresses, if this host has them. A host with a
// fixed address does not announce it, but answers.
func (d *Doctor) otherHolders(ctx context.Context, s *status.Status) (list []vip.Conflict) {
	if s.Endpoint == nil || s.Endpoint.VIP == nil || !s.Endpoint.VIP.Held {
		return nil
	}
	for _, a := range s.Endpoint.VIP.Addresses {
		if mac, err := neighbours.Probe(ctx, a, s.Endpoint.VIP.Interface); err == nil && mac != nil {
			list = append(list, vip.Conflict{Address: a, MAC: mac.String(), Time: time.Now()})
		}
	}
	now, err := service.Query(ctx)
	if err != nil || now == nil || now.VIP == nil || !now.VIP.Held {
		return nil // the address has moved meanwhile
	}
	return list
}
