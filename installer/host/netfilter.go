package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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
	return slices.ContainsFunc(ownChains, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
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

// batch is how many changes go to the kernel at once: a socket's buffer does
// not hold the tens of thousands that a large cluster's node may need.
const batch = 256

func removeRules(ctx context.Context, conn *nftables.Conn) error {
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
		if ownTables[table.Name] {
			changes = append(changes, func() error { conn.DelTable(table); return nil })
			continue
		}
		more, err := clearTable(conn, table, all)
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

// clearTable lists the changes that take our chains out of one table, in an
// order in which nothing refers to what is removed.
func clearTable(conn *nftables.Conn, table *nftables.Table, all []*nftables.Chain) (changes []func() error, err error) {
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
		return nil, nil
	}
	for _, c := range others {
		rules, err := conn.GetRules(table, c)
		if err != nil {
			return nil, fmt.Errorf("reading chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			if jumpsToOurs(r) {
				changes = append(changes, func() error { return conn.DelRule(r) })
			}
		}
	}
	for _, c := range ours { // they jump to each other
		changes = append(changes, func() error { conn.FlushChain(c); return nil })
	}
	for _, c := range ours {
		changes = append(changes, func() error { conn.DelChain(c); return nil })
	}
	return changes, nil
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
