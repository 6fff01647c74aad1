package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// kubernetesChains are the name prefixes of the chains that kubelet, kube-proxy and flannel create
// in iptables' tables; kubernetesTables are their own nftables tables, and the table of the add-on
// network-policy. On a node that Airlift installed, they belong to that node.
var (
	kubernetesChains = []string{"KUBE-", "FLANNEL-"}
	kubernetesTables = []string{"kube-proxy", "flannel-ipv4", "flannel-ipv6", "kube-network-policies"}
)

// The portmap plugin creates a chain for each container in iptables' table nat,
// or rules with the container's ID as comment in its own nftables table.
const (
	portMapChain  = "CNI-DN-"
	hostPortTable = "cni_hostport"
)

// A ruleFilter selects the iptables and nftables rules that are Airlift's.
type ruleFilter struct {
	kubernetes bool            // chains of Kubernetes and flannel
	networks   []string        // CNI networks
	containers map[string]bool // with addresses in those networks
	hostPorts  bool            // the portmap plugin's shared chains, if no other software uses them
}

func newRuleFilter(h *host.Host) (f ruleFilter, err error) {
	f.kubernetes = h.Records().RanNode()
	for _, e := range h.Records().Entries(ledger.Network) {
		f.networks = append(f.networks, e.Name)
	}
	_, f.hostPorts = h.Records().Find(ledger.Chains, hostPorts)
	f.containers, err = Containers(h)
	return f, err
}

// RemoveRules removes the iptables and nftables rules of Kubernetes, of
// flannel and of the CNI plugins for this node's pods: their chains, the rules
// in other chains that jump there, and their own tables. All other rules stay.
// It uses the kernel's nftables interface, where iptables-nft also keeps its
// rules, so that no iptables command is needed. It cannot remove rules of the
// older kernel interface (iptables-legacy), and returns a warning for them.
func RemoveRules(ctx context.Context, h *host.Host) (warnings []string, err error) {
	f, err := newRuleFilter(h)
	if err != nil || !f.kubernetes && len(f.networks) == 0 && !f.hostPorts {
		return nil, err
	}
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	defer conn.CloseLasting()
	if err := f.remove(ctx, conn); err != nil {
		return nil, fmt.Errorf("removing iptables and nftables rules: %w", err)
	}
	if err := h.Records().Forget(ledger.Chains, hostPorts); err != nil {
		return nil, err
	}
	return legacyWarnings(h.Path("/proc/net")), nil
}

// batch is the number of changes in one message to the kernel: a node of a large
// cluster may need tens of thousands, more than a socket's buffer can contain.
const batch = 256

func (f ruleFilter) remove(ctx context.Context, conn *nftables.Conn) error {
	tables, err := conn.ListTables()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // this kernel has no nftables, so there are no rules in it
	}
	if err != nil {
		return fmt.Errorf("listing tables: %w", err)
	}
	all, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("listing chains: %w", err)
	}
	var changes []func() error
	for _, table := range tables {
		var chains []*nftables.Chain
		for _, c := range all {
			if c.Table.Name == table.Name && c.Table.Family == table.Family {
				chains = append(chains, c)
			}
		}
		var more []func() error
		switch {
		case f.kubernetes && slices.Contains(kubernetesTables, table.Name):
			more = append(more, func() error { conn.DelTable(table); return nil })
		case table.Name == hostPortTable:
			more, err = f.clearHostPorts(conn, table, chains)
		default:
			more, err = f.clearTable(conn, table, chains)
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", table.Name, err)
		}
		changes = append(changes, more...)
	}
	for part := range slices.Chunk(changes, batch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, change := range part {
			if err := change(); err != nil {
				return err
			}
		}
		if err := conn.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// clearTable lists the changes that remove this node's chains from one table, in
// an order in which nothing refers to a removed chain.
func (f ruleFilter) clearTable(conn *nftables.Conn, table *nftables.Table, chains []*nftables.Chain) (changes []func() error, err error) {
	if !slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return strings.HasPrefix(c.Name, "CNI-") || f.isKubernetes(c.Name) }) {
		return nil, nil
	}
	rules := map[string][]*nftables.Rule{}
	for _, c := range chains {
		if f.isKubernetes(c.Name) {
			continue // removed as a whole; there may be thousands of rules
		}
		if rules[c.Name], err = conn.GetRules(table, c); err != nil {
			return nil, fmt.Errorf("reading chain %s: %w", c.Name, err)
		}
	}
	ours := f.chains(chains, rules)
	for name, list := range rules {
		if ours[name] {
			continue
		}
		for _, r := range list {
			if ours[target(r)] {
				changes = append(changes, func() error { return conn.DelRule(r) })
			}
		}
	}
	var gone []*nftables.Chain
	for _, c := range chains {
		if ours[c.Name] {
			gone = append(gone, c)
		}
	}
	for _, c := range gone { // flush all first: they jump to each other
		changes = append(changes, func() error { conn.FlushChain(c); return nil })
	}
	for _, c := range gone {
		changes = append(changes, func() error { conn.DelChain(c); return nil })
	}
	return changes, nil
}

func (f ruleFilter) isKubernetes(chain string) bool {
	return f.kubernetes && slices.ContainsFunc(kubernetesChains, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// chains returns which of a table's chains belong to this node.
func (f ruleFilter) chains(chains []*nftables.Chain, rules map[string][]*nftables.Rule) map[string]bool {
	ours := map[string]bool{}
	for _, c := range chains {
		ours[c.Name] = f.isKubernetes(c.Name)
	}
	for _, network := range f.networks {
		for id := range f.containers {
			ours[chainName("CNI-", network, id)] = true
			ours[chainName(portMapChain, network, id)] = true
		}
	}
	// The comment of a rule that jumps to a container's chain names the network.
	for _, list := range rules {
		for _, r := range list {
			if to := target(r); strings.HasPrefix(to, "CNI-") && !strings.HasPrefix(to, hostPorts) && f.names(comment(r)) {
				ours[to] = true
			}
		}
	}
	if !f.hostPorts {
		return ours
	}
	// Remove the shared chains only if no other container has a port.
	for _, c := range chains {
		if strings.HasPrefix(c.Name, portMapChain) && !ours[c.Name] {
			return ours
		}
	}
	for _, r := range rules[hostPorts+"DNAT"] {
		if !ours[target(r)] {
			return ours
		}
	}
	for _, c := range chains {
		if strings.HasPrefix(c.Name, hostPorts) {
			ours[c.Name] = true
		}
	}
	return ours
}

// names reports whether a plugin's comment names one of the networks.
func (f ruleFilter) names(comment string) bool {
	return slices.ContainsFunc(f.networks, func(network string) bool { return strings.Contains(comment, fmt.Sprintf("name: %q", network)) })
}

// clearHostPorts lists the changes that remove this node's pods from the portmap
// plugin's nftables table.
func (f ruleFilter) clearHostPorts(conn *nftables.Conn, table *nftables.Table, chains []*nftables.Chain) (changes []func() error, err error) {
	others := false
	for _, c := range chains {
		rules, err := conn.GetRules(table, c)
		if err != nil {
			return nil, fmt.Errorf("reading chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			id, marked := userdata.GetString(r.UserData, userdata.TypeComment)
			if marked && f.containers[id] {
				changes = append(changes, func() error { return conn.DelRule(r) })
			} else {
				others = others || marked
			}
		}
	}
	if f.hostPorts && !others {
		return []func() error{func() error { conn.DelTable(table); return nil }}, nil
	}
	return changes, nil
}

// target is the chain that a rule jumps to.
func target(r *nftables.Rule) string {
	for _, e := range r.Exprs {
		if v, ok := e.(*expr.Verdict); ok {
			return v.Chain
		}
	}
	return ""
}

// comment returns a rule's comment, as nft or as iptables' comment match stores it.
func comment(r *nftables.Rule) string {
	if c, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok {
		return c
	}
	for _, e := range r.Exprs {
		if m, ok := e.(*expr.Match); ok {
			if c, ok := m.Info.(*xt.Comment); ok {
				return string(*c)
			}
		}
	}
	return ""
}

// legacyWarnings returns a warning if iptables-legacy has tables in the kernel.
func legacyWarnings(procNet string) []string {
	var warnings []string
	for file, tool := range map[string]string{"ip_tables_names": "iptables-legacy", "ip6_tables_names": "ip6tables-legacy"} {
		tables, err := os.ReadFile(procNet + "/" + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			warnings = append(warnings, fmt.Sprintf("looking for %s rules: %v", tool, err))
		}
		if names := strings.Fields(string(tables)); len(names) > 0 {
			warnings = append(warnings, fmt.Sprintf(
				"%s has tables in the kernel (%s), which Airlift does not change: if `%s-save` prints KUBE-, CNI- or FLANNEL- rules, remove them with the same tool",
				tool, strings.Join(names, ", "), tool))
		}
	}
	return warnings
}
