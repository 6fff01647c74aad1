package run

import (
	"testing"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// What a worker reports of the cluster is a claim: its root may name any address, to which the driver would log in.
func TestAWorkerNamesNoAddresses(t *testing.T) {
	claim := &facts.Cluster{Name: "site", Nodes: []facts.ClusterNode{{Name: "w9", Addresses: []string{"203.0.113.66"}}}}
	own := &facts.Cluster{Name: "site", Nodes: []facts.ClusterNode{{Name: "w8", Addresses: []string{"10.0.0.18"}}}}
	w := spec.Host{Name: "w1", Role: spec.Worker}
	cp := spec.Host{Name: "cp1", Role: spec.ControlPlane}
	s := &Site{Cluster: &spec.Cluster{Hosts: []spec.Host{w, cp}}}
	s.hosts = []*Host{{Host: w, Facts: &facts.Facts{Cluster: claim}}, {Host: cp, Facts: &facts.Facts{Cluster: own}}}
	for _, h := range s.leavers() {
		if h.SSH.Address != "10.0.0.18" {
			t.Errorf("the driver logs in at %s for %s", h.SSH.Address, h.Name)
		}
	}
	s.hosts[1].Facts.Cluster = nil
	if list := s.leavers(); len(list) > 0 {
		t.Errorf("without an API, the driver logs in at %s for %s", list[0].SSH.Address, list[0].Name)
	}
}
