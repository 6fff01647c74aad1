// Package probe is what runs in the pods of a test of a cluster: servers that answer, and probes that ask them and print what they
// observed. It reads nothing of the host but the state of the kernel's network, and writes nothing.
package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/installer/clustertest/diagnosis"
)

// Ports of the pods with servers. Nothing else runs in them.
const (
	// OpenPort answers UDP and TCP.
	OpenPort = 7100
	// ClosedPort is TCP. A NetworkPolicy lets nobody connect to it.
	ClosedPort = 7101
)

// A Server is the argument of 'test serve'.
type Server struct {
	Node string `json:"node"`
	// Nonce is a random text of one test: packets without it get no answer.
	Nonce string `json:"nonce"`
	// Nodes are the names that may be reported as heard.
	Nodes []string `json:"nodes"`
	// Seconds is how long the server runs at most: one whose test was killed ends by itself.
	Seconds int `json:"seconds"`
}

// Heard is a line that a server prints when a node's first packet arrives.
type Heard struct {
	Heard string `json:"heard"`
}

// A Plan is the argument of 'test probe'.
type Plan struct {
	Node  string `json:"node"`
	Nonce string `json:"nonce"`
	// Host is set for a probe in the network of the host.
	Host bool `json:"host,omitempty"`
	// IPv6 is set if pods have IPv6 addresses.
	IPv4  bool   `json:"ipv4,omitempty"`
	IPv6  bool   `json:"ipv6,omitempty"`
	Proxy bool   `json:"proxy,omitempty"` // kube-proxy runs on this node
	CA    string `json:"ca"`              // PEM; verifies the API servers
	Name  string `json:"name,omitempty"`  // that DNS resolves, absolute
	// NameIPv6 is set if Name has only IPv6 addresses, also in a cluster with both families.
	NameIPv6 bool    `json:"nameIPv6,omitempty"`
	Peers    []Peer  `json:"peers"`
	Checks   []Check `json:"checks"`
	// Steady are asked from the beginning to the end, at least for SteadySeconds.
	Steady        []Check `json:"steady,omitempty"`
	SteadySeconds int     `json:"steadySeconds,omitempty"`
}

// A Peer is a node as another one reaches it.
type Peer struct {
	Node string `json:"node"`
	// Pods are the addresses of its server, one of each family; none if it has none.
	Pods []string `json:"pods,omitempty"`
	// Hosts are its own addresses.
	Hosts []string `json:"hosts,omitempty"`
	// KubeletPort is open on every node.
	KubeletPort int32 `json:"kubeletPort,omitempty"`
	// Ranges are the pod CIDRs of the node.
	Ranges []string `json:"ranges,omitempty"`
}

// A Check is a request to one address.
type Check struct {
	Kind    diagnosis.Kind `json:"kind"`
	To      string         `json:"to,omitempty"`
	Via     string         `json:"via,omitempty"`
	How     string         `json:"how"`     // dns-udp, dns-tcp, echo-udp, echo-tcp, closed, connect, api, holders
	Address string         `json:"address"` // host:port, or an address
	// Name is the host name for TLS; "" means the host in Address.
	Name string `json:"name,omitempty"`
}

// A Report is what a probe prints, in one line. A pod wrote it: Read decides what of it is used.
type Report struct {
	Node  string        `json:"node"`
	Host  bool          `json:"host,omitempty"`
	Nonce string        `json:"nonce"`
	Took  time.Duration `json:"took"`
	// Tunnel is what carries packets to pods of other nodes, seen by a probe in the host's network: "UDP 8472 (vxlan)".
	Tunnel       string                  `json:"tunnel,omitempty"`
	Routes       []RouteTo               `json:"routes,omitempty"`
	Observations []diagnosis.Observation `json:"observations"`
	Losses       []Loss                  `json:"losses,omitempty"`
	Holders      []Holder                `json:"holders,omitempty"`
}

// A Holder is what a host heard when it asked on its network who has an address.
type Holder struct {
	Address string `json:"address"`
	Own     string `json:"own"` // the hardware address of the interface that asked
	// MACs are the hardware addresses of the other hosts that answered.
	MACs []string `json:"macs,omitempty"`
}

// RouteTo is a route of the host to the pods of a node.
type RouteTo struct {
	To string `json:"to"`
	// Wrong is why it cannot be right; "" if it may be.
	Wrong string `json:"wrong,omitempty"`
	// Detour is set if it leads to another node, which may forward the packets as long as it runs.
	Detour bool `json:"detour,omitempty"`
}

// A Loss counts steady requests.
type Loss struct {
	Via   string `json:"via"`
	To    string `json:"to,omitempty"`
	Sent  int    `json:"sent"`
	Lost  int    `json:"lost"`
	Error string `json:"error,omitempty"` // of the first lost one
}

// Limits of what a pod may report.
const (
	maxReport       = 4 << 20
	maxObservations = 20000
	maxText         = 300
)

// Read reads the report that the pod of a node printed. What a pod prints is a claim: it may only speak about its own node's view of
// known nodes, in kinds that a probe observes.
func Read(log io.Reader, want Report, nodes []string) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(log, maxReport+1))
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(data))
	if len(data) > maxReport {
		return nil, fmt.Errorf("it printed more than %d bytes", maxReport)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	r := &Report{}
	if err := d.Decode(r); err != nil || d.More() {
		return nil, fmt.Errorf("it printed no report: %s", short(lastLine(text)))
	}
	switch {
	case r.Node != want.Node || r.Host != want.Host || r.Nonce != want.Nonce:
		return nil, fmt.Errorf("it printed the report of another pod")
	case len(r.Observations) > maxObservations || len(r.Losses) > maxObservations || len(r.Routes) > maxObservations:
		return nil, fmt.Errorf("it printed more than %d observations", maxObservations)
	}
	known := func(node string) bool { return node == "" || slices.Contains(nodes, node) }
	place := diagnosis.FromPod
	if r.Host {
		place = diagnosis.FromHost
	}
	for i, o := range r.Observations {
		if o.From != r.Node || !known(o.To) || o.Place != place || !slices.Contains(observed, o.Kind) {
			return nil, fmt.Errorf("it printed an observation that is not its own: %s", short(string(o.Kind)))
		}
		if o.Kind == diagnosis.Forwarding && !forwardingText.MatchString(o.Via) { // a finding has it in a command
			return nil, fmt.Errorf("it printed the unknown kernel parameter %s", short(o.Via))
		}
		r.Observations[i].Via, r.Observations[i].Detail = short(o.Via), short(o.Detail)
	}
	for i, l := range r.Losses {
		if !known(l.To) || l.Sent < 0 || l.Lost < 0 || l.Lost > l.Sent {
			return nil, fmt.Errorf("it printed losses that cannot be")
		}
		r.Losses[i].Via, r.Losses[i].Error = short(l.Via), short(l.Error)
	}
	for i, to := range r.Routes {
		if !known(to.To) {
			return nil, fmt.Errorf("it printed a route to an unknown node")
		}
		r.Routes[i].Wrong = short(to.Wrong)
	}
	if len(r.Holders) > maxObservations {
		return nil, fmt.Errorf("it printed more than %d answers", maxObservations)
	}
	for _, h := range r.Holders { // a finding has them
		_, err := netip.ParseAddr(h.Address)
		for _, text := range append([]string{h.Own}, h.MACs...) {
			mac, failed := net.ParseMAC(text)
			if err = errors.Join(err, failed); failed == nil && mac.String() != text {
				err = errors.New("it is not in its usual form")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("it printed the answer of a host that cannot be: %s", short(err.Error()))
		}
	}
	if !tunnelText.MatchString(r.Tunnel) {
		return nil, fmt.Errorf("it printed the unknown tunnel %s", short(r.Tunnel))
	}
	return r, nil
}

// tunnelText is Tunnel of a Report. A finding has its port in a command.
var tunnelText = regexp.MustCompile(`^(UDP [0-9]{1,5} \(vxlan\))?$`)

// Covers returns an error if the report does not have a result of each request of its plan: the probe had too little time, or the pod
// printed something else.
func (r *Report) Covers(p Plan) error {
	type request struct {
		kind    diagnosis.Kind
		to, via string
	}
	wanted := map[request]bool{}
	for _, c := range p.Checks {
		wanted[request{c.Kind, c.To, c.Via}] = true
	}
	kind := diagnosis.PodReach
	if p.Host {
		kind = diagnosis.HostPod
	}
	for _, peer := range p.Peers {
		for _, address := range peer.Pods {
			for _, protocol := range protocols {
				wanted[request{kind, peer.Node, protocol + FamilyOf(address)}] = true
			}
		}
		if p.Host && peer.Node != p.Node {
			for _, address := range peer.Hosts {
				wanted[request{diagnosis.HostReach, peer.Node, FamilyOf(address)}] = true
			}
		}
	}
	for _, c := range p.Steady {
		wanted[request{diagnosis.Steady, c.To, c.Via}] = true
	}
	for _, o := range r.Observations {
		delete(wanted, request{o.Kind, o.To, o.Via})
	}
	for _, l := range r.Losses {
		delete(wanted, request{diagnosis.Steady, l.To, l.Via})
	}
	for w := range wanted {
		return fmt.Errorf("its report has no result of %d requests, such as %s %s", len(wanted), w.kind, strings.TrimSpace(w.to+" "+w.via))
	}
	return nil
}

// protocols begin Via of requests to pods, "UDP over IPv4".
var protocols = []string{"UDP over ", "TCP over "}

// observed are the kinds that a probe observes.
var observed = []diagnosis.Kind{
	diagnosis.Forwarding, diagnosis.ProxyHealth, diagnosis.HostReach, diagnosis.HostLarge, diagnosis.PodReach, diagnosis.PodLarge,
	diagnosis.PodBulk, diagnosis.HostPod, diagnosis.DNSPod, diagnosis.DNSService, diagnosis.Resolver, diagnosis.Service, diagnosis.LocalProxy,
	diagnosis.NodePort, diagnosis.HostPort, diagnosis.Policy, diagnosis.API, diagnosis.Registry, diagnosis.Clock, diagnosis.Volume,
	diagnosis.AddressHeard, diagnosis.AddressReach,
}

// ReadHeard reads the nodes from which a server received packets.
func ReadHeard(log io.Reader, nodes []string) (heard []string, err error) {
	d := json.NewDecoder(io.LimitReader(log, maxReport))
	d.DisallowUnknownFields()
	for {
		var h Heard
		if err := d.Decode(&h); err == io.EOF {
			return heard, nil
		} else if err != nil {
			return nil, fmt.Errorf("it printed something else than names: %w", err)
		}
		if slices.Contains(nodes, h.Heard) && !slices.Contains(heard, h.Heard) {
			heard = append(heard, h.Heard)
		}
	}
}

// short returns a text of at most maxText bytes, on one line.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }
