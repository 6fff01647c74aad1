package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// ownChains begin the names of the chains that kubelet and kube-proxy, the CNI
// plugins and flannel make in iptables' tables.
var ownChains = []string{"KUBE-", "CNI-", "FLANNEL-"}

// ownTables are nftables tables that belong to one of them as a whole:
// kube-proxy's nftables mode, the CNI plugins portmap and ipmasq, flannel.
var ownTables = map[string]bool{
	"kube-proxy": true, "cni_hostport": true, "cni_plugins_masquerade": true,
	"flannel-ipv4": true, "flannel-ipv6": true,
}

func ownChain(name string) bool {
	for _, prefix := range ownChains {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// RemoveNetfilter removes the packet filter rules of Kubernetes, of the CNI
// plugins and of flannel, and nobody else's: their chains, the rules in other
// chains that jump there, and tables of their own. It speaks to the kernel's
// nftables, where iptables-nft keeps its rules too, so that no iptables
// program is needed. Rules of the older kernel interface (iptables-legacy) are
// out of its reach, and reported.
func (h *Host) RemoveNetfilter(ctx context.Context) (warnings []string, err error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("opening the kernel's packet filter: %w", err)
	}
	defer conn.CloseLasting()
	if err := removeRules(ctx, conn); err != nil {
		return nil, fmt.Errorf("removing packet filter rules: %w", err)
	}
	return legacyWarnings(h.Path("/proc/net")), nil
}

func removeRules(ctx context.Context, conn *nftables.Conn) error {
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("listing tables: %w", err)
	}
	all, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("listing chains: %w", err)
	}
	for _, table := range tables {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ownTables[table.Name] {
			conn.DelTable(table)
			continue
		}
		if err := clearTable(conn, table, all); err != nil {
			return fmt.Errorf("table %s: %w", table.Name, err)
		}
	}
	// One transaction: the kernel takes all of it or nothing.
	return conn.Flush()
}

// clearTable queues the removal of our chains from one table.
func clearTable(conn *nftables.Conn, table *nftables.Table, all []*nftables.Chain) error {
	var ours, others []*nftables.Chain
	for _, c := range all {
		if c.Table.Name != table.Name || c.Table.Family != table.Family {
			continue
		}
		if ownChain(c.Name) {
			ours = append(ours, c)
		} else {
			others = append(others, c)
		}
	}
	if len(ours) == 0 {
		return nil
	}
	for _, c := range others {
		rules, err := conn.GetRules(table, c)
		if err != nil {
			return fmt.Errorf("reading chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			if !jumpsToOurs(r) {
				continue
			}
			if err := conn.DelRule(r); err != nil {
				return fmt.Errorf("chain %s: %w", c.Name, err)
			}
		}
	}
	for _, c := range ours {
		conn.FlushChain(c) // they jump to each other
	}
	for _, c := range ours {
		conn.DelChain(c)
	}
	return nil
}

func jumpsToOurs(r *nftables.Rule) bool {
	for _, e := range r.Exprs {
		if v, ok := e.(*expr.Verdict); ok && ownChain(v.Chain) {
			return true
		}
	}
	return false
}

// legacyWarnings says where iptables-legacy has tables in the kernel.
func legacyWarnings(procNet string) []string {
	var warnings []string
	for file, tool := range map[string]string{"ip_tables_names": "iptables-legacy", "ip6_tables_names": "ip6tables-legacy"} {
		tables, err := os.ReadFile(procNet + "/" + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			warnings = append(warnings, fmt.Sprintf("looking for %s rules: %v", tool, err))
		}
		if names := strings.Fields(string(tables)); len(names) > 0 {
			warnings = append(warnings, fmt.Sprintf(
				"%s has tables in the kernel (%s), which this installer does not write: if `%s-save` shows KUBE-, CNI- or FLANNEL- rules, remove them with it",
				tool, strings.Join(names, ", "), tool))
		}
	}
	return warnings
}
