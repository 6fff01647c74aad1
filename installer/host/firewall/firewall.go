// Package firewall reads the kernel's nftables rules and finds the chains that drop a packet.
package firewall

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A Rules has the nftables rules of the kernel, where iptables-nft, firewalld
// and ufw also keep their rules. It does not see rules of iptables-legacy.
type Rules struct {
	conn   *nftables.Conn
	chains []*nftables.Chain
	rules  map[*nftables.Chain][]*nftables.Rule
	sets   map[string][]nftables.SetElement
}

// A Drop is a chain that drops or rejects a packet.
type Drop struct {
	Family string // ip, ip6 or inet
	Table  string
	Chain  string // the base chain
	// Policy is set if the chain's policy drops the packet, and no rule.
	Policy bool
}

// Read reads the rules. It needs root. The rules must be closed.
func Read() (*Rules, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	f := &Rules{conn: conn, rules: map[*nftables.Chain][]*nftables.Rule{}, sets: map[string][]nftables.SetElement{}}
	f.chains, err = conn.ListChains()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return f, nil // this kernel has no nftables, so there are no rules in it
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	return f, nil
}

// Close releases the connection to the kernel.
func (f *Rules) Close() { _ = f.conn.CloseLasting() } // it was only read

// HasChain reports whether any table has a chain of this name.
func (f *Rules) HasChain(name string) bool {
	return slices.ContainsFunc(f.chains, func(c *nftables.Chain) bool { return c.Name == name })
}

var families = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
}

// Drops returns the base chains that certainly drop a packet. The list has no chain whose decision
// depends on something outside of the packet, such as a rate limit.
func (f *Rules) Drops(p Packet) ([]Drop, error) {
	hook, family := nftables.ChainHookInput, nftables.TableFamilyIPv4
	if p.Out != "" {
		hook = nftables.ChainHookForward
	}
	if p.To.Addr().Is6() {
		family = nftables.TableFamilyIPv6
	}
	var base []*nftables.Chain
	for _, c := range f.chains {
		if c.Hooknum != nil && *c.Hooknum == *hook && (c.Table.Family == family || c.Table.Family == nftables.TableFamilyINet) {
			base = append(base, c)
		}
	}
	slices.SortStableFunc(base, func(a, b *nftables.Chain) int { return cmp.Compare(priority(a), priority(b)) })
	var drops []Drop
	for _, c := range base {
		end, err := f.walk(c, p, 0)
		if err != nil {
			return nil, fmt.Errorf("reading table %s, chain %s: %w", c.Table.Name, c.Name, err)
		}
		byPolicy := end&returned != 0 && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if end&accepted == 0 && (byPolicy || end&returned == 0) {
			drops = append(drops, Drop{Family: families[c.Table.Family], Table: c.Table.Name, Chain: c.Name, Policy: byPolicy && end&dropped == 0})
		}
	}
	return drops, nil
}

func priority(c *nftables.Chain) nftables.ChainPriority {
	if c.Priority == nil {
		return 0
	}
	return *c.Priority
}

// An outcome is a set of what may happen to a packet in a chain.
type outcome uint

const (
	accepted outcome = 1 << iota
	dropped
	returned // it reached the end of the chain
)

// maxDepth is more than the kernel's limit for nested jumps.
const maxDepth = 20

// walk follows a packet through a chain.
func (f *Rules) walk(c *nftables.Chain, p Packet, depth int) (possible outcome, err error) {
	if depth > maxDepth {
		return accepted | dropped | returned, nil
	}
	rules, err := f.rulesOf(c)
	if err != nil {
		return 0, err
	}
	for _, r := range rules {
		verdict, matches, err := f.judge(c.Table, r, p)
		if err != nil {
			return 0, err
		}
		if matches == no || verdict == nil {
			continue
		}
		var then outcome // returned: the next rule follows
		switch verdict.Kind {
		case expr.VerdictAccept, expr.VerdictStolen:
			then = accepted
		case expr.VerdictDrop:
			then = dropped
		case expr.VerdictReturn:
			possible |= returned
		case expr.VerdictQueue:
			then = accepted | dropped
		case expr.VerdictJump, expr.VerdictGoto:
			if then, err = f.walkNamed(c.Table, verdict.Chain, p, depth); err != nil {
				return 0, err
			}
			if verdict.Kind == expr.VerdictGoto {
				possible |= then & returned
				then &^= returned
			}
		default:
			then = returned
		}
		possible |= then &^ returned
		if matches == yes && then&returned == 0 {
			return possible, nil
		}
	}
	return possible | returned, nil
}

func (f *Rules) walkNamed(table *nftables.Table, name string, p Packet, depth int) (outcome, error) {
	for _, c := range f.chains {
		if c.Name == name && c.Table.Name == table.Name && c.Table.Family == table.Family {
			return f.walk(c, p, depth+1)
		}
	}
	return accepted | dropped | returned, nil // it was removed meanwhile
}

func (f *Rules) rulesOf(c *nftables.Chain) ([]*nftables.Rule, error) {
	if rules, ok := f.rules[c]; ok {
		return rules, nil
	}
	rules, err := f.conn.GetRules(c.Table, c)
	if err == nil {
		f.rules[c] = rules
	}
	return rules, err
}

func (f *Rules) elements(table *nftables.Table, name string) ([]nftables.SetElement, error) {
	key := fmt.Sprint(table.Family, " ", table.Name, " ", name)
	if list, ok := f.sets[key]; ok {
		return list, nil
	}
	list, err := f.conn.GetSetElements(&nftables.Set{Table: table, Name: name})
	if err == nil {
		f.sets[key] = list
	}
	return list, err
}
