package phases

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestRecordEndpoint: a run of init or join records that the node follows a change of the endpoint only if its kubelet does.
func TestRecordEndpoint(t *testing.T) {
	const vip = "https://10.1.2.100:6443"
	for name, c := range map[string]struct {
		server   string // of the kubelet
		endpoint config.Endpoint
		records  bool
	}{
		"it uses the new one":            {vip, config.Endpoint{Change: &config.EndpointChange{Number: 1, Server: vip}}, true},
		"it uses the former one":         {"https://10.1.2.3:6443", config.Endpoint{Change: &config.EndpointChange{Number: 1, Server: vip}}, false},
		"it does not use the balancer":   {vip, config.Endpoint{Balancer: true, Change: &config.EndpointChange{Number: 1, Server: vip}}, false},
		"the change is not stored yet":   {vip, config.Endpoint{Change: &config.EndpointChange{Number: 1, Server: vip, Pending: &config.PendingEndpoint{}}}, false},
		"the endpoint was never changed": {vip, config.Endpoint{}, false},
	} {
		n := controlPlane(t, func(cfg *config.Config) { cfg.Endpoint = c.endpoint })
		kubeconfig := fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n", c.server)
		if _, err := n.Host.WriteFile(node.KubeletConf, []byte(kubeconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		client, writes := testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Config.NodeRegistration.Name}})
		a := &API{Machine: n.Machine, Node: n, Client: client}
		if err := a.recordEndpoint(t.Context()); err != nil || (len(writes()) > 0) != c.records {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecordReconfiguration: a new node follows the last reconfiguration. A repeated run on a control plane does not prove that: its
// files and certificates may be older. On a worker, it has replaced all that a reconfiguration does.
func TestRecordReconfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		number  int
		isNode  bool
		role    Role
		records bool
	}{
		"a new control plane":       {3, false, NextControlPlane, true},
		"a control plane again":     {3, true, NextControlPlane, false},
		"a worker again":            {3, true, Worker, true},
		"there was none":            {0, false, NextControlPlane, false},
		"the first control plane":   {3, false, FirstControlPlane, true},
		"the first one, init again": {3, true, FirstControlPlane, false},
	} {
		n := controlPlane(t, func(cfg *config.Config) { cfg.Reconfiguration.Number = c.number })
		n.Plan.Role, n.Observed.IsNode = c.role, c.isNode
		client, writes := testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Config.NodeRegistration.Name}})
		a := &API{Machine: n.Machine, Node: n, Client: client}
		if err := a.recordReconfiguration(t.Context()); err != nil || (len(writes()) > 0) != c.records {
			t.Errorf("%s: %v", name, err)
		}
	}
}
