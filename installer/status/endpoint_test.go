package status

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/endpoint/balancer"
	"airlift/installer/endpoint/vip"
	"airlift/installer/host"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
)

var (
	virtual  = netip.MustParseAddr("10.77.0.100")
	listen   = netip.MustParseAddrPort("127.0.0.1:7443")
	servers  = []netip.AddrPort{netip.MustParseAddrPort("10.77.0.11:6443"), netip.MustParseAddrPort("10.77.0.12:6443"), netip.MustParseAddrPort("10.77.0.13:6443")}
	observed = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
)

// holder is a control plane that has the address for some time.
func holder(name string, since time.Duration) vip.Holder {
	return vip.Holder{Name: "cp" + name, Address: "10.77.0.1" + name, MAC: "02:00:00:00:00:0" + name, Since: observed.Add(-since)}
}

// endpointState is the state of a service on the first control plane: the second one has the address.
func endpointState() *Endpoint {
	e := &Endpoint{
		VIP:      &vip.Status{Addresses: []netip.Addr{virtual}, Interface: "eth0", MAC: "02:00:00:00:00:01", Holders: []vip.Holder{holder("2", 3*time.Hour)}, Reason: "etcd's leader is cp2", Leader: "cp2"},
		Balancer: &balancer.Status{Listen: []netip.AddrPort{listen}, Source: balancer.FromCluster},
	}
	for _, a := range servers {
		e.Balancer.Backends = append(e.Balancer.Backends, balancer.BackendStatus{Address: a, State: balancer.Ready, Since: observed.Add(-time.Hour)})
	}
	return e
}

// certificateFor is a certificate with addresses.
func certificateFor(t *testing.T, addresses ...string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEndpointProblems: each problem with an endpoint, beginning from a control plane without any.
func TestEndpointProblems(t *testing.T) {
	both := config.Endpoint{VIPs: []string{virtual.String()}, Balancer: true}
	valid, other := certificateFor(t, virtual.String(), "127.0.0.1"), certificateFor(t, "10.77.0.11")
	down := func(message string) func(*endpointFacts) {
		return func(f *endpointFacts) {
			b := &f.state.Balancer.Backends[2]
			b.State, b.Error = balancer.Down, message
		}
	}
	for _, c := range []struct {
		name    string
		change  func(*endpointFacts)
		want    string // the name of the problem; "" for none
		warning bool
		message string
		fix     string
	}{
		{name: "healthy", change: func(*endpointFacts) {}},
		{name: "healthy, without the API", change: func(f *endpointFacts) { f.cluster = nil }},
		{name: "healthy, written differently", change: func(f *endpointFacts) {
			f.settings.VIPs, f.cluster.VIPs = []netip.Addr{netip.MustParseAddr("fd00::1")}, []string{"FD00:0::1"}
			f.certificate = nil
		}},
		{name: "a worker", change: func(f *endpointFacts) {
			f.role, f.settings.VIPs, f.state.VIP, f.certificate = node.Worker, nil, nil, nil
		}},
		{name: "a worker that needs no service", change: func(f *endpointFacts) { f.role, f.settings, f.cluster.Balancer = node.Worker, nil, false }},
		{name: "a cluster without an endpoint", change: func(f *endpointFacts) { f.settings, f.cluster = nil, &config.Endpoint{} }},
		{name: "no settings", change: func(f *endpointFacts) { f.settings = nil }, want: EndpointMissing,
			message: "the cluster has the virtual address 10.77.0.100 and a balancer on each node, but this host does not run airlift-endpoint.service: it has no /etc/kubernetes/endpoint.yaml", fix: "./install endpoint node"},
		{name: "no settings on a worker", change: func(f *endpointFacts) { f.role, f.settings = node.Worker, nil }, want: EndpointMissing, message: "the cluster has a balancer on each node, but", fix: "./install endpoint node"},
		{name: "no settings on kubeadm's node", change: func(f *endpointFacts) { f.managed, f.settings = false, nil }, want: EndpointMissing, warning: true, message: "does not run", fix: "./install docs high-availability"},
		{name: "a change that this host has not followed", change: func(f *endpointFacts) { f.cluster.Change, f.settings = &config.EndpointChange{Number: 1}, nil }, want: EndpointMissing, warning: true,
			message: "does not run", fix: "./install endpoint node"},
		{name: "an undo that this host has not followed", change: func(f *endpointFacts) { f.cluster = &config.Endpoint{Change: &config.EndpointChange{Number: 2}} }, want: EndpointSettings, warning: true,
			message: "the cluster has no virtual address and no balancer", fix: "./install endpoint node"},
		{name: "certificate after a change", change: func(f *endpointFacts) { f.cluster.Change, f.certificate = &config.EndpointChange{Number: 1}, other }, want: EndpointCertificate,
			message: "is not valid for", fix: "./install endpoint node"},
		{name: "other settings", change: func(f *endpointFacts) { f.cluster.VIPs = []string{"10.77.0.200"} }, want: EndpointSettings,
			message: "this host has the virtual address 10.77.0.100 and a balancer on each node (/etc/kubernetes/endpoint.yaml), but the cluster has the virtual address 10.77.0.200 and a balancer on each node (ConfigMap kube-system/airlift-endpoint)", fix: "./install endpoint node"},
		{name: "settings of a cluster without an endpoint", change: func(f *endpointFacts) { f.cluster = &config.Endpoint{} }, want: EndpointSettings, message: "the cluster has no virtual address and no balancer", fix: "./install endpoint node"},
		{name: "disabled", change: func(f *endpointFacts) { f.unit.Enabled = false }, want: EndpointDisabled, warning: true, message: "airlift-endpoint.service does not start at the next boot", fix: "systemctl enable airlift-endpoint.service"},
		{name: "certificate", change: func(f *endpointFacts) { f.certificate = other }, want: EndpointCertificate,
			message: "the API server's certificate, /etc/kubernetes/pki/apiserver.crt, is not valid for 10.77.0.100 and 127.0.0.1", fix: "./install endpoint node"},
		{name: "no answer", change: func(f *endpointFacts) { f.state = nil }}, // the component has it
		{name: "no interface", change: func(f *endpointFacts) {
			f.state.VIP.Interface, f.state.VIP.Holders, f.state.VIP.Reason = "", nil, "no interface of this host has a subnet with the virtual address 10.77.0.100"
		}, want: EndpointInterface, message: "no interface of this host has a subnet", fix: "ip address"},
		{name: "nowhere", change: func(f *endpointFacts) { f.state.VIP.Holders, f.state.VIP.Reason = nil, "etcd has no leader" }, want: EndpointNowhere,
			message: "this host sees no control plane with the virtual address 10.77.0.100, and does not have it itself: etcd has no leader", fix: "./install endpoint status"},
		{name: "the service has just started", change: func(f *endpointFacts) { f.state.VIP.Holders, f.unit.Since = nil, observed }},
		{name: "it has just moved", change: func(f *endpointFacts) { f.state.VIP.Holders = append(f.state.VIP.Holders, holder("3", time.Second)) }},
		{name: "two hosts", change: func(f *endpointFacts) { f.state.VIP.Holders = append(f.state.VIP.Holders, holder("3", time.Minute)) }, want: EndpointConflict,
			message: "the virtual address 10.77.0.100 is on cp2 (10.77.0.12) and cp3 (10.77.0.13) at the same time", fix: "ip neighbour | grep -e 02:00:00:00:00:02 -e 02:00:00:00:00:03"},
		{name: "a conflict", change: func(f *endpointFacts) {
			f.state.VIP.Conflict = &vip.Conflict{Address: virtual, MAC: "02:00:00:00:00:09", Time: observed}
		}, want: EndpointConflict,
			message: "another host, with the hardware address 02:00:00:00:00:09, announced the virtual address 10.77.0.100 at 2026-11-23 12:00:00", fix: "ip neighbour | grep -e 02:00:00:00:00:09"},
		{name: "a conflict that is over", change: func(f *endpointFacts) {
			f.state.VIP.Conflict = &vip.Conflict{Address: virtual, MAC: "02:00:00:00:00:09", Time: observed.Add(-30 * time.Minute)}
		}, want: EndpointConflict, warning: true, message: "02:00:00:00:00:09", fix: "ip neighbour"},
		{name: "an old conflict", change: func(f *endpointFacts) { f.state.VIP.Conflict = &vip.Conflict{Time: observed.Add(-2 * time.Hour)} }},
		{name: "no API server is known", change: func(f *endpointFacts) { f.state.Balancer.Backends = nil }, want: EndpointNoAPI,
			message: "the balancer at 127.0.0.1:7443 reaches none of 0 API servers", fix: "./install status"},
		{name: "no API server answers", change: func(f *endpointFacts) {
			for i := range f.state.Balancer.Backends {
				f.state.Balancer.Backends[i].State = balancer.Down
			}
		}, want: EndpointNoAPI, message: "reaches none of 3 API servers", fix: "./install status"},
		{name: "the balancer has just started", change: func(f *endpointFacts) {
			for i := range f.state.Balancer.Backends {
				f.state.Balancer.Backends[i].State, f.state.Balancer.Backends[i].Since = balancer.Unknown, observed
			}
		}},
		{name: "refused", change: down("dial tcp 10.77.0.13:6443: connect: connection refused"), want: EndpointAPIServer, warning: true,
			message: "the balancer does not reach the API server at 10.77.0.13:6443 (down for 60m): dial tcp 10.77.0.13:6443: connect: connection refused", fix: "on the host 10.77.0.13: ./install status"},
		{name: "no answer of one", change: down("checking /readyz: no answer within 900ms"), want: EndpointAPIServer, warning: true, message: "no answer", fix: "a firewall drops TCP 6443: ./install doctor"},
		{name: "another CA", change: down("tls: failed to verify certificate: x509: certificate signed by unknown authority"), want: EndpointAPIServer, warning: true, message: "x509", fix: "sha256sum /etc/kubernetes/pki/ca.crt"},
		{name: "not ready", change: down("checking /readyz: 500: etcd"), want: EndpointAPIServer, warning: true, message: "etcd", fix: "on the host 10.77.0.13: ./install status"},
	} {
		cluster := both
		f := &endpointFacts{now: observed, role: node.ControlPlane, managed: true, cluster: &cluster, state: endpointState(), certificate: valid, certificateFile: "/etc/kubernetes/pki/apiserver.crt",
			settings: &endpoint.Settings{VIPs: []netip.Addr{virtual}, Balancer: listen.String()}, unit: systemd.UnitState{Load: "loaded", Enabled: true}}
		c.change(f)
		var found result
		f.judge(&found)
		list, none := found.problems, found.warnings
		if c.warning {
			list, none = none, list
		}
		switch {
		case c.want != EndpointNoAPI && len(list) > 1, c.want == "" && len(list)+len(none) > 0, c.want != "" && len(list) == 0, len(list) > 0 && c.want != EndpointNoAPI && len(none) > 0:
			t.Errorf("%s: %+v", c.name, found)
		case c.want != "" && (list[0].Name != c.want || !strings.Contains(list[0].Message, c.message) || !strings.Contains(list[0].Fix, c.fix)):
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

// settingsOf are the files of a control plane with an endpoint.
var settingsOf = map[string]string{
	"etc/kubernetes/endpoint.yaml":                 "apiVersion: airlift/v1\nkind: NodeEndpoint\nbalancer: 127.0.0.1:7443\nvips: [10.77.0.100]\napiServer: 10.77.0.11:6443\ncertificatesDir: /etc/kubernetes/pki\n",
	"etc/kubernetes/manifests/kube-apiserver.yaml": `{spec: {containers: [{name: kube-apiserver, image: "r/kube-apiserver:v1.37.1"}]}}`,
}

// TestEndpointOfAHost: what a host with settings shows while its service answers, and while it does not.
func TestEndpointOfAHost(t *testing.T) {
	for _, c := range []struct {
		name  string
		state *Endpoint
		err   error
		want  string
	}{
		{"it answers", endpointState(), nil, "10.77.0.100 on cp2 (10.77.0.12) for "},
		{"it hangs", nil, errors.New("no answer"), "unknown: airlift-endpoint.service does not answer"},
		{"it does not run", nil, nil, "unknown: airlift-endpoint.service does not answer"},
	} {
		root := t.TempDir()
		write(t, root, settingsOf)
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		r := &Reader{Host: h, query: func(context.Context) (*Endpoint, error) { return c.state, c.err }}
		s, err := r.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Endpoint == nil || !strings.HasPrefix(s.endpoint(), c.want) {
			t.Errorf("%s: %+v", c.name, s.Endpoint)
		}
		if !slices.ContainsFunc(s.Components, func(c Component) bool { return c.Name == "airlift-endpoint" && !c.Healthy }) { // systemd does not know it
			t.Errorf("%s: %+v", c.name, s.Components)
		}
	}
	root := t.TempDir()
	write(t, root, settingsOf)
	write(t, root, map[string]string{"etc/kubernetes/endpoint.yaml": "kind: Other\n"})
	if s := read(t, root); !hasProblem(s, "endpoint", "reading /etc/kubernetes/endpoint.yaml: ") || s.Endpoint != nil {
		t.Errorf("%+v, %+v", s.Endpoint, s.Problems)
	}
}

func TestTextOfEndpoint(t *testing.T) {
	s := healthy()
	s.Endpoint.VIP.Held, s.Endpoint.VIP.Holders = true, []vip.Holder{holder("1", 2*time.Hour)}
	if got, want := s.endpoint(), "10.77.0.100 on this host (eth0) for 120m; balancer 127.0.0.1:7443 to 10.77.0.11:6443 ready, 10.77.0.12:6443 ready, 10.77.0.13:6443 ready"; got != want {
		t.Errorf("%s", got)
	}
	s.Endpoint.VIP, s.Endpoint.Balancer.Backends = nil, nil
	if got := s.endpoint(); got != "balancer 127.0.0.1:7443 to no API server" {
		t.Errorf("%s", got)
	}
}
