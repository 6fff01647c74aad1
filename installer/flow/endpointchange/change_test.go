package endpointchange

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster/testclient"
)

const ownServer = "https://10.0.0.1:6443"

// planned returns the change that options make of a cluster, seen from its control plane 10.0.0.1.
func planned(t testing.TB, stored config.Cluster, nodes []cluster.NodeState, o Options) (*Change, error) {
	t.Helper()
	client, _ := testclient.Fake(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": "clusters: [{cluster: {server: " + serverOf(stored) + "}}]"},
	})
	c := &Change{options: o, controlPlane: true, client: client, nodes: nodes, stored: stored}
	c.config = &config.Config{Cluster: stored, LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "10.0.0.1", BindPort: 6443}}
	if o.Verb == Undo {
		return c, c.planUndo()
	}
	return c, c.plan(t.Context())
}

// serverOf is what cluster-info of a cluster has.
func serverOf(c config.Cluster) string {
	if c.Endpoint.Change != nil {
		return c.Endpoint.Change.Server
	}
	if c.ControlPlaneEndpoint != "" {
		return "https://" + c.ControlPlaneEndpoint
	}
	return ownServer
}

func plane(name, address string) cluster.NodeState {
	return cluster.NodeState{Name: name, Role: cluster.ControlPlaneRole, Addresses: []string{address}}
}

// TestPlan: what the options add to what the cluster has.
func TestPlan(t *testing.T) {
	nodes := []cluster.NodeState{plane("host1", "10.0.0.1"), {Name: "host2", Role: cluster.WorkerRole, Addresses: []string{"10.0.0.2", "fd00::2"}}}
	withVIP6 := config.Cluster{ControlPlaneEndpoint: "[fd00::100]:6443", Endpoint: config.Endpoint{VIPs: []string{"fd00::100"}}}
	withVIP := config.Cluster{ControlPlaneEndpoint: "10.0.0.100:6443", Endpoint: config.Endpoint{VIPs: []string{"10.0.0.100"}}}
	withName := config.Cluster{ControlPlaneEndpoint: "k8s.site.example:6443"}
	for name, c := range map[string]struct {
		stored       config.Cluster
		options      Options
		endpoint     string // the new controlPlaneEndpoint
		server, fail string
		same         bool // nothing changes
	}{
		"an address":                {config.Cluster{}, Options{VIPs: []string{"10.0.0.100"}}, "10.0.0.100:6443", "https://10.0.0.100:6443", "", false},
		"a balancer":                {config.Cluster{}, Options{Balancer: true}, "127.0.0.1:7443", "https://127.0.0.1:7443", "", false},
		"a name":                    {config.Cluster{}, Options{ControlPlaneEndpoint: "k8s.site.example"}, "k8s.site.example:6443", "https://k8s.site.example:6443", "", false},
		"a balancer to the address": {withVIP, Options{Balancer: true}, "10.0.0.100:6443", "https://10.0.0.100:6443", "", false},
		"an address beside a name":  {withName, Options{VIPs: []string{"10.0.0.100"}}, "k8s.site.example:6443", "https://k8s.site.example:6443", "", false},
		"an address instead":        {withName, Options{VIPs: []string{"10.0.0.100"}, ControlPlaneEndpoint: "10.0.0.100"}, "10.0.0.100:6443", "https://10.0.0.100:6443", "", false},
		"the same":                  {withVIP, Options{VIPs: []string{"10.0.0.100"}}, "10.0.0.100:6443", "", "", true},
		"nothing":                   {config.Cluster{}, Options{}, "", "", "no endpoint was given", false},
		"another address":           {withVIP, Options{VIPs: []string{"10.0.0.101"}}, "", "", "has the virtual address 10.0.0.100 already", false},
		"the address of a node":     {config.Cluster{}, Options{VIPs: []string{"10.0.0.2"}}, "", "", "10.0.0.2 is the address of node host2", false},
		"the address of this host":  {config.Cluster{}, Options{VIPs: []string{"10.0.0.1"}}, "", "", "10.0.0.1", false},
		"a name that is none":       {config.Cluster{}, Options{ControlPlaneEndpoint: "a_b"}, "", "", "a_b", false},
		"the address of a node, written otherwise": {config.Cluster{}, Options{VIPs: []string{"FD00:0::2"}}, "", "", "fd00::2 is the address of node host2", false},
		"the same, written otherwise":              {withVIP6, Options{VIPs: []string{"fd00:0:0::100"}}, "[fd00::100]:6443", "", "", true},
		"two addresses of one family":              {config.Cluster{}, Options{VIPs: []string{"10.0.0.100", "10.0.0.101"}}, "", "", "two IPv4 addresses", false},
		"an address without etcd": {config.Cluster{Etcd: config.Etcd{External: &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.9:2379"}}}},
			Options{VIPs: []string{"10.0.0.100"}}, "", "", "--control-plane-balancer", false},
	} {
		got, err := planned(t, c.stored, nodes, c.options)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) || fault.ExitCode(err) != fault.Usage {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got.config.ControlPlaneEndpoint != c.endpoint || (got.config.Endpoint.Change.Number == 0) != c.same {
			t.Errorf("%s: %q, %+v, %v", name, got.config.ControlPlaneEndpoint, got.config.Endpoint.Change, err)
			continue
		}
		if change := got.config.Endpoint.Change; !c.same && (change.Server != c.server || change.Number != 1 || change.Undone || change.Before.Server != serverOf(c.stored)) {
			t.Errorf("%s: %+v", name, change)
		}
		for _, want := range got.config.EndpointNames() {
			if !slices.Contains(got.config.APIServer.CertSANs, want) {
				t.Errorf("%s: %q is not a name of the certificate: %q", name, want, got.config.APIServer.CertSANs)
			}
		}
	}
}

// TestUndoGoesBack: after any change, undo gives the configuration that was there, and each of both, repeated, changes
// nothing more.
func TestUndoGoesBack(t *testing.T) {
	nodes := []cluster.NodeState{plane("host1", "10.0.0.1")}
	rapid.Check(t, func(r *rapid.T) {
		before := config.Cluster{
			ControlPlaneEndpoint: rapid.SampledFrom([]string{"", "k8s.site.example:6443", "10.0.0.50:8443"}).Draw(r, "endpoint"),
			APIServer:            config.APIServer{CertSANs: rapid.SampledFrom([][]string{nil, {"a.example"}, {"127.0.0.1", "10.0.0.100"}}).Draw(r, "SANs")},
		}
		o := Options{
			VIPs:                 rapid.SampledFrom([][]string{nil, {"10.0.0.100"}, {"10.0.0.100", "fd00::100"}}).Draw(r, "VIPs"),
			Balancer:             rapid.Bool().Draw(r, "balancer"),
			ControlPlaneEndpoint: rapid.SampledFrom([]string{"", "other.example:443", "10.0.0.100:6443"}).Draw(r, "new endpoint"),
		}
		changed, err := planned(t, before, nodes, o)
		if err != nil {
			r.Skip(err.Error())
		}
		again, err := planned(t, changed.config.Cluster, nodes, o)
		if err != nil || !same(again.config.Cluster, changed.config.Cluster) {
			r.Fatalf("again: %+v, %v", again.config.Endpoint.Change, err)
		}
		interrupted := func(what string, before config.Cluster, c *Change, o Options) {
			partly, pending := before, c.pending()
			partly.Endpoint = c.config.Endpoint
			partly.Endpoint.Change = &pending
			if partly, err = decoded(partly); err != nil {
				r.Fatal(err)
			}
			got, err := planned(t, withPending(partly), nodes, o)
			if err != nil || got.config.ControlPlaneEndpoint != c.config.ControlPlaneEndpoint || !slices.Equal(got.config.APIServer.CertSANs, c.config.APIServer.CertSANs) ||
				got.config.Endpoint.Change.Number != pending.Number || !reflect.DeepEqual(got.config.Endpoint.Change.Before, pending.Before) {
				r.Fatalf("%s, interrupted: %+v, %v", what, got.config.Endpoint.Change, err)
			}
		}
		interrupted("apply", before, changed, o)
		undone, err := planned(t, changed.config.Cluster, nodes, Options{Verb: Undo})
		if err != nil {
			r.Fatal(err)
		}
		interrupted("undo", changed.config.Cluster, undone, Options{Verb: Undo})
		is := undone.config.Cluster
		if is.ControlPlaneEndpoint != before.ControlPlaneEndpoint || !slices.Equal(is.APIServer.CertSANs, before.APIServer.CertSANs) ||
			is.Endpoint.Used() || is.Endpoint.Change.Server != serverOf(before) || is.Endpoint.Change.Number != 2 {
			r.Fatalf("%+v, %+v", is, is.Endpoint.Change)
		}
		twice, err := planned(t, is, nodes, Options{Verb: Undo})
		if err != nil || !same(twice.config.Cluster, is) {
			r.Fatalf("undo again: %+v, %v", twice.config.Endpoint.Change, err)
		}
		if _, err := planned(t, is, nodes, o); err == nil {
			r.Fatal("apply before the nodes follow the undo")
		}
		followed := []cluster.NodeState{nodes[0]}
		followed[0].Follows.Endpoint = 2
		redone, err := planned(t, is, followed, o)
		if err != nil || redone.config.Endpoint.Change.Number != 3 || redone.config.Endpoint.Change.Undone || redone.config.ControlPlaneEndpoint != changed.config.ControlPlaneEndpoint {
			r.Fatalf("apply after undo: %+v, %v", redone.config.Endpoint.Change, err)
		}
	})
}

// decoded is a configuration with the endpoint as its ConfigMap stores it.
func decoded(c config.Cluster) (config.Cluster, error) {
	data, err := c.Endpoint.Encode()
	if err == nil {
		c.Endpoint, err = config.DecodeEndpoint(data)
	}
	return c, err
}

func same(a, b config.Cluster) bool {
	return a.ControlPlaneEndpoint == b.ControlPlaneEndpoint && slices.Equal(a.APIServer.CertSANs, b.APIServer.CertSANs) &&
		slices.Equal(a.Endpoint.VIPs, b.Endpoint.VIPs) && a.Endpoint.Balancer == b.Endpoint.Balancer && a.Endpoint.Change == b.Endpoint.Change
}

// TestUndoElsewhere: undo runs on the control plane that is left, and not at the address of a removed one, and it keeps
// names that the user added since the change.
func TestUndoElsewhere(t *testing.T) {
	stored := config.Cluster{ControlPlaneEndpoint: "10.0.0.100:6443", APIServer: config.APIServer{CertSANs: []string{"10.0.0.100", "new.example"}}}
	stored.Endpoint = config.Endpoint{VIPs: []string{"10.0.0.100"}, Change: &config.EndpointChange{Number: 1, Server: "https://10.0.0.100:6443",
		Before: config.FormerEndpoint{Server: "https://10.0.0.9:6443"}}}
	got, err := planned(t, stored, []cluster.NodeState{plane("host1", "10.0.0.1")}, Options{Verb: Undo})
	if err != nil || got.config.Endpoint.Change.Server != ownServer {
		t.Errorf("%+v, %v", got.config.Endpoint.Change, err)
	}
	if names := got.config.APIServer.CertSANs; !slices.Equal(names, []string{"new.example"}) {
		t.Errorf("%q", names)
	}
}

// TestChangeAfterChange: the next change waits until all nodes follow the last one, because they may use what it takes away.
func TestChangeAfterChange(t *testing.T) {
	worker := cluster.NodeState{Name: "host2", Role: cluster.WorkerRole, Addresses: []string{"10.0.0.2"}}
	first := plane("host1", "10.0.0.1")
	undone := config.Cluster{Endpoint: config.Endpoint{Change: &config.EndpointChange{Number: 2, Undone: true, Server: ownServer,
		Before: config.FormerEndpoint{VIPs: []string{"10.0.0.100"}, Server: "https://10.0.0.100:6443"}}}}
	first.Follows.Endpoint, worker.Follows.Endpoint = 2, 1
	_, err := planned(t, undone, []cluster.NodeState{first, worker}, Options{Balancer: true})
	if err == nil || !strings.Contains(err.Error(), "host2") || strings.Contains(err.Error(), "host1") || !strings.Contains(fault.Hint(err), "./install endpoint node") {
		t.Errorf("a worker uses the address that the undo took back: %v", err)
	}
	worker.Follows.Endpoint = 2
	if got, err := planned(t, undone, []cluster.NodeState{first, worker}, Options{Balancer: true}); err != nil || got.config.Endpoint.Change.Number != 3 {
		t.Errorf("%+v, %v", got.config.Endpoint.Change, err)
	}
	first.Follows.OnlyServes = true
	if _, err := planned(t, undone, []cluster.NodeState{first, worker}, Options{Balancer: true}); err == nil {
		t.Error("a control plane still serves the former endpoint")
	}
}

// TestUndoNeedsAnEndpoint: several control planes cannot lose theirs.
func TestUndoNeedsAnEndpoint(t *testing.T) {
	nodes := []cluster.NodeState{plane("host1", "10.0.0.1"), plane("host2", "10.0.0.2")}
	for endpoint, fails := range map[string]bool{"": true, "k8s.site.example:6443": false} {
		stored := config.Cluster{Endpoint: config.Endpoint{Balancer: true, Change: &config.EndpointChange{Number: 1, Before: config.FormerEndpoint{ControlPlaneEndpoint: endpoint}}}}
		_, err := planned(t, stored, nodes, Options{Verb: Undo})
		if (err != nil) != fails || fails && !strings.Contains(fault.Hint(err), "./install node remove") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	if _, err := planned(t, config.Cluster{}, nodes, Options{Verb: Undo}); err == nil || !strings.Contains(err.Error(), "was not changed") {
		t.Error(err)
	}
}
