package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (c *diagnosing) nodesNotReady() {
	nodes, groups := c.byNode(c.failed(of(NodeReady)), from)
	for _, n := range nodes {
		detail := c.detail(groups[n])
		text := n + " is not Ready: " + detail
		fix := "on " + n + ": ./install status"
		reached, tried := false, false
		for _, o := range c.all {
			if o.Kind == HostReach && o.To == n {
				tried, reached = true, reached || o.OK
			}
		}
		switch {
		case tried && !reached:
			text += "; no other host reaches it"
			fix = "start " + n + ", or connect it; then there: ./install status"
		case strings.Contains(strings.ToLower(detail), "cni"):
			fix = c.restartNetwork(n)
		}
		c.add(Finding{Name: "node-not-ready", Layer: "node", Nodes: []string{n}, Text: text, Fix: fix}, groups[n],
			touching(n, func(Observation) bool { return true }))
	}
}

// restartNetwork returns the command that creates the pod of the pod network on a node again: flannel's writes a missing CNI configuration.
func (c *diagnosing) restartNetwork(node string) string {
	namespace, label, ok := strings.Cut(c.facts.Network, " ")
	if !ok {
		return "on " + node + ": ./install doctor; the CNI configuration is in /etc/cni/net.d"
	}
	return fmt.Sprintf("kubectl -n %s delete pod -l %s --field-selector spec.nodeName=%s", namespace, label, node)
}

// startFailures are reasons why a pod does not start, by a part of the message of the kubelet, in lower case.
var startFailures = []struct {
	part, name, text string
	fix              func(c *diagnosing, node string) string
}{
	{"no ip addresses available", "address-range-full", "every address of its pod range is in use", func(_ *diagnosing, n string) string {
		return "on " + n + ", compare the files in /var/lib/cni/networks/cbr0 with 'kubectl get pods -A -o wide --field-selector spec.nodeName=" + n + "': remove the files of addresses that no pod has"
	}},
	{"unknown command", "command-old", "its command airlift is older than this one and cannot test", (*diagnosing).sameVersion},
	{"not of this version of the command", "command-old", "its command airlift is of another version than this one", (*diagnosing).sameVersion},
	{"cni", "cni-configuration", "its CNI configuration or plugins do not work", (*diagnosing).restartNetwork},
	{"/usr/local/bin/airlift", "command-missing", "it has no command airlift", func(_ *diagnosing, n string) string {
		return "on " + n + ", a node of another tool: ./install adopt; on a node of Airlift, run its join command again"
	}},
	{"errimageneverpull", "image-missing", "it has no image of the file", func(_ *diagnosing, n string) string { return "on " + n + ": ./install import" }},
	{"outof", "node-full", "the kubelet accepts no more pods", func(_ *diagnosing, n string) string { return "kubectl describe node " + n }},
}

func (c *diagnosing) sameVersion(node string) string {
	return "upgrade " + node + " to the version of this file: ./install upgrade plan"
}

func (c *diagnosing) podsThatDoNotStart() {
	nodes, groups := c.byNode(c.failed(of(PodRuns)), from)
	for _, n := range nodes {
		detail := c.detail(groups[n])
		f := Finding{Name: "pod-start", Layer: "pod start", Nodes: []string{n}, Text: n + ": pods do not start: " + detail, Fix: "on " + n + ": ./install doctor"}
		for _, is := range startFailures {
			if strings.Contains(strings.ToLower(detail), is.part) {
				f.Name, f.Fix = is.name, is.fix(c, n)
				f.Text = fmt.Sprintf("%s: pods do not start: %s: %s", n, is.text, detail)
				break
			}
		}
		c.add(f, groups[n], func(o Observation) bool {
			return (o.From == n && (o.Place != FromHost || o.Kind == ProbeRuns) || o.To == n) && (podNetwork(o) || of(ProbeRuns, Pull, Volume)(o))
		})
	}
}

func (c *diagnosing) probesThatDoNotRun() {
	nodes, groups := c.byNode(c.failed(of(ProbeRuns)), from)
	for _, n := range nodes {
		c.add(Finding{Name: "probe", Layer: "test", Nodes: []string{n}, Text: n + ": the test has no result from this node: " + c.detail(groups[n]),
			Fix: "on " + n + ": ./install status"}, groups[n], none)
	}
}

func (c *diagnosing) hosts() {
	list := c.failed(of(HostReach))
	pairs := c.pairsOf(list)
	subject, nodes := c.subject(pairs)
	c.add(Finding{Name: "hosts", Layer: "host network", Nodes: nodes, Text: subject + ": the hosts do not reach each other: " + c.detail(list),
		Fix: "see the link, the address and the firewall of " + names(nodes) + "; there: ./install doctor"},
		list, either(c.silent(pairs), onPairs(pairs, either(podNetwork, of(HostLarge, Route, API, Registry, AddressHeard)))))
}

func (c *diagnosing) hostMTU() {
	list := c.failed(of(HostLarge))
	pairs := c.pairsOf(list)
	subject, nodes := c.subject(pairs)
	c.add(Finding{Name: "mtu-hosts", Layer: "MTU", Nodes: nodes,
		Text: subject + ": the network between the hosts loses large packets, small ones pass: " + c.detail(list),
		Fix:  "let the network between the hosts pass packets of the size of their interfaces, or reduce the MTU of the interfaces of all hosts, and join again: ip link show"},
		list, either(c.silent(pairs), onPairs(pairs, of(PodLarge, PodBulk, PodReach, HostPod, API, Registry, DNSPod, NodePort, HostPort))))
}

func (c *diagnosing) forwarding() {
	nodes, groups := c.byNode(c.failed(of(Forwarding)), from)
	for _, n := range nodes {
		var keys []string
		for _, i := range groups[n] {
			keys = append(keys, c.all[i].Via)
		}
		c.add(Finding{Name: "forwarding", Layer: "host", Nodes: []string{n},
			Text: n + ": the kernel does not forward packets, so its pods reach no other node: " + strings.Join(keys, ", ") + " is 0",
			Fix:  "on " + n + ": sysctl -w " + strings.Join(keys, "=1 ") + "=1"},
			groups[n], touching(n, func(o Observation) bool { return podNetwork(o) || of(API, LocalProxy)(o) && o.Place == FromPod }))
	}
}

func (c *diagnosing) routes() {
	list := c.failed(of(Route))
	nodes, groups := c.byNode(list, from)
	for _, n := range nodes {
		pairs := c.pairsOf(groups[n])
		subject, _ := c.subject(pairs)
		c.add(Finding{Name: "route", Layer: "routes", Nodes: []string{n}, Text: fmt.Sprintf("%s: %s has no right route to the pods: %s", subject, n, c.detail(groups[n])),
			Fix: c.restartNetwork(n) + "; see: ip route"}, groups[n], onPairs(pairs, podNetwork))
	}
}

// ofNetwork are the names of pods that connect the pods of nodes.
var ofNetwork = []string{"kube-flannel", "kube-router", "calico-node", "cilium", "canal", "weave-net", "antrea"}

func isComponent(o Observation, prefixes ...string) bool {
	return o.Kind == Component && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(o.Via, p) })
}

func (c *diagnosing) networkPods() {
	nodes, groups := c.byNode(c.failed(func(o Observation) bool { return isComponent(o, ofNetwork...) }), from)
	for _, n := range nodes {
		c.add(Finding{Name: "pod-network", Layer: "pod network", Nodes: []string{n},
			Text: fmt.Sprintf("%s: %s does not run: %s", n, c.all[groups[n][0]].Via, c.detail(groups[n])),
			Fix:  c.restartNetwork(n)}, groups[n], touching(n, podNetwork))
	}
}

// proxies explains Services that a node does not serve, although the pod behind them is on that node and answers.
func (c *diagnosing) proxies() {
	list := c.failed(func(o Observation) bool {
		return o.Kind == ProxyHealth || isComponent(o, "kube-proxy") || o.Kind == LocalProxy && (o.Place == FromPod || !c.localFromPod(o.From))
	})
	nodes, groups := c.byNode(list, from)
	if len(nodes) == 0 {
		return
	}
	var all []int
	health := ""
	for _, n := range nodes {
		all = append(all, groups[n]...)
		for _, i := range groups[n] {
			if o := c.all[i]; o.Kind == ProxyHealth && health == "" {
				health = "; port 10256 of kube-proxy: " + o.Detail
			}
		}
	}
	where := names(nodes)
	fix := "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=" + nodes[0]
	if len(nodes) == len(c.facts.Nodes) && len(nodes) > 1 {
		where, fix = "all nodes", "kubectl -n kube-system rollout restart daemonset kube-proxy"
	}
	c.add(Finding{Name: "kube-proxy", Layer: "Services", Nodes: nodes,
		Text: where + ": Services do not work: kube-proxy does not run, or has not written its rules" + health, Fix: fix}, all,
		func(o Observation) bool {
			served := of(LocalProxy, Service, DNSService, Resolver, Steady, AddressReach)(o) || o.Kind == API && o.To == ""
			return served && slices.Contains(nodes, o.From) || o.Kind == NodePort && slices.Contains(nodes, o.To)
		})
}

// localFromPod reports whether the pods of a node are served, or were not asked.
func (c *diagnosing) localFromPod(node string) bool {
	return slices.ContainsFunc(c.all, func(o Observation) bool {
		return o.Kind == LocalProxy && o.Place == FromPod && o.From == node && o.OK
	})
}

func (c *diagnosing) sameNode() {
	nodes, groups := c.byNode(c.failed(func(o Observation) bool {
		return of(PodReach, PodHeard, PodLarge, PodBulk, HostPod)(o) && o.From == o.To
	}), from)
	for _, n := range nodes {
		c.add(Finding{Name: "same-node", Layer: "pod network", Nodes: []string{n},
			Text: n + ": pods on this node do not reach each other: " + c.detail(groups[n]), Fix: "on " + n + ": ./install doctor; see: ip link; nft list ruleset"},
			groups[n], touching(n, podNetwork))
	}
}

// tunnel explains pods that do not reach each other although their hosts do, with the direction in which packets are lost.
func (c *diagnosing) tunnel() {
	list := c.failed(func(o Observation) bool {
		return of(PodReach, PodHeard)(o) || o.Kind == HostPod && !c.has(PodReach, o.From, o.To)
	})
	both := c.pairsOf(list)
	lost := map[pair]bool{}
	for p := range both {
		forth, back := c.has(PodHeard, p.from, p.to), c.has(PodHeard, p.to, p.from)
		switch {
		case !forth && back:
			lost[p] = true
		case forth && !back:
			lost[pair{p.to, p.from}] = true
		default:
			lost[p] = true
		}
	}
	subject, nodes := c.subject(lost)
	carries := "packets between the pods are lost"
	fix := "see the firewall of " + names(nodes) + "; there: ./install doctor"
	if c.facts.Tunnel != "" {
		carries = c.facts.Tunnel + " gets no answer"
		port, _, _ := strings.Cut(strings.TrimPrefix(c.facts.Tunnel, "UDP "), " ")
		fix = fmt.Sprintf("allow %s between all hosts; on %s: nft list ruleset | grep -n %s", c.facts.Tunnel, names(nodes), port)
	}
	c.add(Finding{Name: "tunnel", Layer: "pod network", Nodes: nodes, Text: subject + ": pods cannot reach each other: hosts can, " + carries, Fix: fix},
		list, onPairs(both, podNetwork))
}

func (c *diagnosing) podMTU() {
	list := c.failed(of(PodLarge, PodBulk))
	pairs := c.pairsOf(list)
	subject, nodes := c.subject(pairs)
	c.add(Finding{Name: "mtu-pods", Layer: "MTU", Nodes: nodes, Text: subject + ": large packets between pods are lost, small ones pass, and hosts exchange large ones: " + c.detail(list),
		Fix: "compare the MTU of the pods with the interface of the pod network on " + names(nodes) + ": ip -d link; grep mtu /etc/cni/net.d/*"}, list, onPairs(pairs, podNetwork))
}

func (c *diagnosing) dnsPods() {
	list := c.failed(of(DNSPods))
	c.add(Finding{Name: "dns-none", Layer: "DNS", Nodes: []string{}, Text: "the cluster has no DNS pod that is ready: " + c.detail(list),
		Fix: "kubectl -n kube-system scale deployment coredns --replicas 2; why pods are not ready: kubectl -n kube-system describe pods -l k8s-app=kube-dns"},
		list, func(o Observation) bool {
			return of(DNSPod, DNSService, Resolver)(o) || isComponent(o, "coredns") || isSteadyDNS(o)
		})
}

// SteadyDNS is Via of steady requests to the Service of DNS.
const SteadyDNS = "cluster DNS"

func isSteadyDNS(o Observation) bool { return o.Kind == Steady && o.Via == SteadyDNS }

// dnsPod explains single DNS pods that do not answer. The Service of DNS sends some requests to them.
func (c *diagnosing) dnsPod() {
	list := c.failed(func(o Observation) bool { return o.Kind == DNSPod || isComponent(o, "coredns") })
	nodes, groups := c.byNode(list, func(o Observation) string {
		if o.Kind == Component {
			return o.From
		}
		return o.To
	})
	for _, n := range nodes {
		var askers []string
		for _, i := range groups[n] {
			if o := c.all[i]; o.Kind == DNSPod {
				askers = append(askers, o.From)
			}
		}
		askers = c.inOrder(askers)
		who := "it answers no node"
		if answered := slices.ContainsFunc(c.all, func(o Observation) bool { return o.Kind == DNSPod && o.OK && o.To == n }); answered {
			who = "it does not answer all requests of " + names(askers)
		} else if len(askers) == 0 {
			who = "it is not ready"
		}
		c.add(Finding{Name: "dns-pod", Layer: "DNS", Nodes: []string{n},
			Text: fmt.Sprintf("the DNS pod on %s does not work: %s: %s", n, who, c.detail(groups[n])),
			Fix:  "kubectl -n kube-system delete pod -l k8s-app=kube-dns --field-selector spec.nodeName=" + n},
			groups[n], func(o Observation) bool { return of(DNSService, Resolver)(o) || isSteadyDNS(o) })
	}
}

func (c *diagnosing) registries() {
	nodes, groups := c.byNode(c.failed(of(Registry)), to)
	for _, n := range nodes {
		c.add(Finding{Name: "registry", Layer: "embedded registry", Nodes: []string{n},
			Text: fmt.Sprintf("the embedded registry of %s does not answer %s: %s", n, c.askers(groups[n], Registry, n), c.detail(groups[n])),
			Fix:  "on " + n + ": systemctl restart airlift-registry; journalctl -u airlift-registry"}, groups[n], of(Pull))
	}
}

// askers names the nodes of failed requests, "any node" if nobody's succeeded.
func (c *diagnosing) askers(list []int, kind Kind, to string) string {
	if !slices.ContainsFunc(c.all, func(o Observation) bool { return o.Kind == kind && o.To == to && o.OK && o.From != to }) {
		return "any other node"
	}
	nodes, _ := c.byNode(list, from)
	return names(nodes)
}

func (c *diagnosing) apiServers() {
	nodes, groups := c.byNode(c.failed(func(o Observation) bool { return o.Kind == API && o.To != "" }), to)
	for _, n := range nodes {
		c.add(Finding{Name: "api-server", Layer: "API", Nodes: []string{n},
			Text: fmt.Sprintf("the API server of %s, %s, does not answer %s: %s", n, c.all[groups[n][0]].Via, c.askers(groups[n], API, n), c.detail(groups[n])),
			Fix:  "on " + n + ": ./install status; see its firewall: nft list ruleset | grep -n 6443"}, groups[n],
			func(o Observation) bool { return o.Kind == Steady && o.To == n })
	}
}

// follow explains requests that reach one of several pods or API servers, by the findings that explain the requests to one of these.
func (c *diagnosing) follow() {
	for i, o := range c.all {
		if o.OK || c.explained[i] {
			continue
		}
		var direct func(Observation) bool
		switch {
		case o.Kind == DNSService || o.Kind == Resolver || isSteadyDNS(o):
			direct = of(DNSPod)
		case o.Kind == Service || o.Kind == NodePort || o.Kind == AddressReach:
			direct = of(PodReach, HostPod)
		case o.Kind == Steady && o.To == "":
			direct = of(PodReach, HostPod, API)
		case o.Kind == API && o.To == "":
			direct = func(d Observation) bool { return d.Kind == API && d.To != "" }
		case o.Kind == Pull:
			direct = of(HostReach, HostLarge)
		case o.Kind == Volume:
			direct = of(API, PodReach, DNSPod)
		default:
			continue
		}
		for f := range c.findings {
			cause := &c.findings[f]
			if slices.ContainsFunc(cause.claims, func(j int) bool {
				d := c.all[j]
				return direct(d) && (o.From == "" || d.From == "" || d.From == o.From || d.To == o.From || o.To != "" && (d.From == o.To || d.To == o.To))
			}) {
				c.explained[i] = true
				cause.claims = append(cause.claims, i)
				cause.Explains++
				break
			}
		}
	}
}

func (c *diagnosing) serviceRoute() {
	nodes, groups := c.byNode(c.failed(func(o Observation) bool {
		return of(LocalProxy, Service)(o) && o.Place == FromHost || o.Kind == API && o.To == "" && o.Via == KubernetesService && o.Place == FromHost
	}), from)
	for _, n := range nodes {
		c.add(Finding{Name: "service-from-host", Layer: "Services", Nodes: []string{n},
			Text: n + ": processes of the host do not reach Services, pods do: " + c.detail(groups[n]),
			Fix:  "on " + n + ": ip route; systemctl restart airlift-service-route"}, groups[n], none)
	}
}

// BalancerPods is Via of the pods of the add-on load-balancer, a Component.
const BalancerPods = "load-balancer"

const balancerLayer = "load balancer"

// balancer explains nodes on which the pod of the add-on does not run.
func (c *diagnosing) balancer() {
	nodes, groups := c.byNode(c.failed(func(o Observation) bool { return isComponent(o, BalancerPods) }), from)
	works := slices.ContainsFunc(c.all, func(o Observation) bool { return o.OK && isComponent(o, BalancerPods) })
	for _, n := range nodes {
		c.add(Finding{Name: "address-pod", Layer: balancerLayer, Nodes: []string{n}, Text: n + ": the pod of the add-on load-balancer does not run, so this node answers for no address: " + c.detail(groups[n]),
			Fix: "kubectl -n load-balancer get pods -o wide; kubectl -n load-balancer delete pod -l app.kubernetes.io/name=load-balancer --field-selector spec.nodeName=" + n}, groups[n],
			func(o Observation) bool {
				return !works && of(AddressGiven, AddressNode, AddressHeard)(o) || o.Kind == AddressHeard && o.To == n && o.From != n
			})
	}
}

// givenFixes are what to type if a Service got no address, by the cause.
var givenFixes = map[string]struct{ name, fix string }{
	AddressPools:   {"address-pools", "kubectl describe configmap pools -n load-balancer; correct it: kubectl edit configmap pools -n load-balancer"},
	AddressDecider: {"address-decider", "kubectl -n load-balancer get pods -o wide; kubectl -n load-balancer logs -l app.kubernetes.io/name=load-balancer --prefix"},
	AddressTable:   {"address-assignments", "kubectl delete lease assignments -n load-balancer"},
	AddressPool:    {"address-none", "see who has the addresses: kubectl get services -A | grep LoadBalancer; or enlarge the pool: kubectl edit configmap pools -n load-balancer"},
}

// addresses explains addresses of Services of type LoadBalancer: not given, not announced, announced by another host, without an answer.
func (c *diagnosing) addresses() {
	group := func(kind Kind, f func(via string, list []int)) {
		vias := map[string][]int{}
		for _, i := range c.failed(of(kind)) {
			vias[c.all[i].Via] = append(vias[c.all[i].Via], i)
		}
		for _, via := range slices.Sorted(maps.Keys(vias)) {
			f(via, vias[via])
		}
	}
	group(AddressGiven, func(via string, list []int) {
		is, ok := givenFixes[via]
		if !ok {
			is = givenFixes[AddressPool]
		}
		c.add(Finding{Name: is.name, Layer: balancerLayer, Nodes: []string{}, Text: "a Service of type LoadBalancer gets no address: " + c.detail(list), Fix: is.fix}, list, none)
	})
	on := func(via string) func(Observation) bool {
		return func(o Observation) bool { return of(AddressNode, AddressHeard)(o) && o.Via == via }
	}
	group(AddressNode, func(via string, list []int) {
		c.add(Finding{Name: "address-node", Layer: balancerLayer, Nodes: []string{}, Text: "no node announces " + via + ", the address of a Service: " + c.detail(list),
			Fix: "kubectl describe services -A | grep NoNode; a node needs an address in the subnet of " + via + ": kubectl get nodes -o wide"}, list, on(via))
	})
	group(AddressHeard, func(via string, list []int) {
		speaker, detail := c.all[list[0]].To, c.detail(list)
		nodes, _ := c.byNode(list, from)
		f := Finding{Name: "address-silent", Layer: balancerLayer, Nodes: []string{speaker},
			Text: fmt.Sprintf("%s announces %s, the address of a Service, but no answer by ARP or NDP reaches %s: %s", speaker, via, names(nodes), detail),
			Fix:  "kubectl -n load-balancer logs -l app.kubernetes.io/name=load-balancer --prefix; see whether the network lets addresses move: ARP inspection, port security"}
		for _, i := range list {
			switch d := c.all[i].Detail; {
			case strings.Contains(d, NoNode):
				f.Name, f.Nodes, f.Text = "address-taken", []string{}, fmt.Sprintf("another host has %s, the address of a Service: %s", via, d)
				f.Fix = "find the host with this hardware address, and give one of both another address: ip neighbour"
			case strings.Contains(d, SeveralHosts) && f.Name == "address-silent":
				f.Name, f.Text = "address-twice", fmt.Sprintf("%s, the address of a Service, has more than one node: %s", via, d)
				f.Fix = "if kube-proxy has the mode ipvs, set ipvs.strictARP: true: kubectl -n kube-system edit configmap kube-proxy; otherwise: kubectl -n load-balancer logs -l app.kubernetes.io/name=load-balancer --prefix"
			}
		}
		c.add(f, list, none)
	})
	list := c.failed(of(AddressReach))
	nodes, _ := c.byNode(list, from)
	c.add(Finding{Name: "address-service", Layer: balancerLayer, Nodes: nodes, Text: names(nodes) + ": kube-proxy does not serve the address of a Service of type LoadBalancer: " + c.detail(list),
		Fix: "kubectl -n kube-system logs -l k8s-app=kube-proxy"}, list, none)
}

// KubernetesService is Via of the API at the Service kubernetes.
const KubernetesService = "Service kubernetes"

func (c *diagnosing) endpoints() {
	list := c.failed(func(o Observation) bool { return o.Kind == API && o.To == "" })
	var done []string
	for _, i := range list {
		via := c.all[i].Via
		if slices.Contains(done, via) {
			continue
		}
		done = append(done, via)
		var its []int
		for _, j := range list {
			if c.all[j].Via == via {
				its = append(its, j)
			}
		}
		nodes, _ := c.byNode(its, from)
		fix := "./install endpoint status"
		if via == KubernetesService {
			fix = "kubectl get endpointslices -n default; on " + nodes[0] + ": ./install doctor"
		}
		c.add(Finding{Name: "api-endpoint", Layer: "API", Nodes: nodes, Text: fmt.Sprintf("%s: the API does not answer at the %s: %s", names(nodes), via, c.detail(its)), Fix: fix}, its, none)
	}
}

func (c *diagnosing) hostPorts() {
	for _, is := range []struct {
		kind      Kind
		name, fix string
	}{
		{NodePort, "node-port", "; kubectl -n kube-system logs -l k8s-app=kube-proxy"},
		{HostPort, "host-port", "; ls /etc/cni/net.d /opt/cni/bin/portmap"},
	} {
		nodes, groups := c.byNode(c.failed(of(is.kind)), to)
		for _, n := range nodes {
			subject, _ := c.subject(c.pairsOf(groups[n]))
			c.add(Finding{Name: is.name, Layer: "ports of hosts", Nodes: []string{n},
				Text: fmt.Sprintf("%s: the %s of the host %s does not answer: %s", subject, strings.ReplaceAll(is.name, "-", " "), n, c.detail(groups[n])),
				Fix:  "see the firewall of " + n + ": nft list ruleset" + is.fix}, groups[n], none)
		}
	}
}

// ofPolicies are the names of pods that enforce NetworkPolicies.
var ofPolicies = []string{"kube-network-policies", "network-policy"}

func (c *diagnosing) policies() {
	list := c.failed(func(o Observation) bool { return o.Kind == Policy || isComponent(o, ofPolicies...) })
	nodes, groups := c.byNode(list, func(o Observation) string {
		if o.Kind == Component {
			return o.From
		}
		return o.To
	})
	var all []int
	for _, n := range nodes {
		all = append(all, groups[n]...)
	}
	c.add(Finding{Name: "network-policy", Layer: "NetworkPolicy", Nodes: nodes, Text: names(nodes) + ": NetworkPolicies are not enforced: " + c.detail(all),
		Fix: "see the pods that enforce them: kubectl get pods -A -o wide | grep -i polic"}, all, func(o Observation) bool {
		return podNetwork(o) && slices.ContainsFunc(all, func(i int) bool { // without its controller, a node may drop what policies select
			return c.all[i].Kind == Component && (o.From == c.all[i].From || o.To == c.all[i].From)
		})
	})
}

// clocks names the nodes whose clocks differ from most others.
func (c *diagnosing) clocks() {
	list := c.failed(of(Clock))
	for len(list) > 0 {
		counts := map[string]int{}
		for _, i := range list {
			counts[c.all[i].From]++
			counts[c.all[i].To]++
		}
		worst := ""
		for _, n := range c.inOrder(slices.Collect(maps.Keys(counts))) {
			if worst == "" || counts[n] > counts[worst] {
				worst = n
			}
		}
		its := c.failed(func(o Observation) bool { return o.Kind == Clock && (o.From == worst || o.To == worst) })
		c.add(Finding{Name: "clock", Layer: "clock", Nodes: []string{worst}, Text: worst + ": its clock differs from the clocks of other nodes: " + c.detail(its),
			Fix: "on " + worst + ": timedatectl; chronyc tracking"}, its, none)
		list = c.failed(of(Clock))
	}
}

// leftovers are the texts of what nothing above explains.
var leftovers = map[Kind]struct{ name, layer, text, fix string }{
	Component:  {"component", "components", "pods of the system are not ready", "kubectl get pods -A -o wide"},
	HostPod:    {"host-to-pod", "pod network", "processes of the host do not reach pods of another node", "./install doctor"},
	DNSService: {"dns-service", "DNS", "the Service of DNS does not answer, its pods do", "kubectl -n kube-system get service kube-dns -o yaml; kubectl -n kube-system get endpointslices"},
	Resolver:   {"resolver", "DNS", "pods do not resolve names with their /etc/resolv.conf, DNS answers", "compare clusterDNS in /var/lib/kubelet/config.yaml with: kubectl -n kube-system get service kube-dns"},
	Service:    {"service", "Services", "a Service with pods on all nodes does not answer", "kubectl -n kube-system logs -l k8s-app=kube-proxy"},
	Volume:     {"volume", "volumes", "a volume of the default StorageClass could not be used", "kubectl get storageclass; kubectl get events -A"},
	Pull:       {"pull", "embedded registry", "an image could not be pulled", "./install registry status; journalctl -u containerd"},
	Steady:     {"lost-requests", "losses", "requests were lost while the test ran, others succeeded", "run the test again: ./install test"},
}

// others explains what is left, a finding for each kind and cause.
func (c *diagnosing) others() {
	for _, kind := range Kinds {
		list := c.failed(of(kind))
		if len(list) == 0 {
			continue
		}
		is, ok := leftovers[kind]
		if !ok {
			is.name, is.layer, is.text, is.fix = string(kind), "test", "failed", "./install doctor"
		}
		nodes, _ := c.byNode(list, from)
		text := is.text + ": " + c.detail(list)
		if kind == Component || kind == Steady {
			text = is.text + ": " + c.all[list[0]].Via + ": " + c.detail(list)
		}
		if len(nodes) > 0 && nodes[0] != "" {
			text = names(nodes) + ": " + text
		}
		c.add(Finding{Name: is.name, Layer: is.layer, Nodes: slices.DeleteFunc(nodes, func(n string) bool { return n == "" }), Text: text, Fix: is.fix}, list, none)
	}
}
