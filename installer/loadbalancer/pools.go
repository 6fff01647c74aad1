// Package loadbalancer decides which address each Service of type LoadBalancer has, and which node answers for it. It computes;
// installer/loadbalancer/agent does.
package loadbalancer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// DefaultPool is the pool of Services that name none.
const DefaultPool = "default"

// A Range is the addresses from First to Last.
type Range struct{ First, Last netip.Addr }

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

func (r Range) overlaps(other Range) bool { return r.Contains(other.First) || other.Contains(r.First) }

// Pools are the addresses for Services, by the name of their pool.
type Pools map[string][]Range

// Taken are the addresses that a pool cannot have, by what they are.
type Taken map[string][]netip.Prefix

// Of returns what has an address, "" if nothing has it.
func (t Taken) Of(a netip.Addr) string {
	for _, what := range slices.Sorted(maps.Keys(t)) {
		if slices.ContainsFunc(t[what], func(p netip.Prefix) bool { return p.Contains(a) }) {
			return what
		}
	}
	return ""
}

// ParsePools reads the data of the ConfigMap: under the name of each pool, addresses, ranges and networks, with a comma or
// white space between them.
func ParsePools(data map[string]string, taken Taken) (Pools, error) {
	pools := Pools{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		fields := strings.FieldsFunc(data[name], func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
		if len(fields) == 0 {
			return nil, fault.New(fault.Usage, "the pool %q has no addresses", name).Hint("write a range, for example 10.0.0.200-10.0.0.219, or remove the pool")
		}
		for _, field := range fields {
			r, err := parseRange(field)
			if err == nil {
				err = pools.check(r, taken)
			}
			if err != nil {
				return nil, fmt.Errorf("reading the pool %q: %w", name, err)
			}
			pools[name] = append(pools[name], r)
		}
	}
	return pools, nil
}

// parseRange reads an address, a range or a network. The first and the last address of an IPv4 network belong to no host.
func parseRange(text string) (r Range, err error) {
	first, last, isRange := strings.Cut(text, "-")
	switch {
	case isRange:
		if r.First, err = netip.ParseAddr(first); err == nil {
			r.Last, err = netip.ParseAddr(last)
		}
	case strings.Contains(text, "/"):
		var p netip.Prefix
		if p, err = netip.ParsePrefix(text); err != nil {
			break
		}
		if p != p.Masked() {
			return r, fault.New(fault.Usage, "%q is not a network", text).Hint("write " + p.Masked().String())
		}
		if r = rangeOf(p); p.Addr().Is4() && p.Bits() < 31 {
			r = Range{r.First.Next(), r.Last.Prev()}
		}
	default:
		r.First, err = netip.ParseAddr(text)
		r.Last = r.First
	}
	if err != nil {
		return r, fault.New(fault.Usage, "%q is not an address, a range or a network", text).Hint("write for example 10.0.0.200-10.0.0.219 or 10.0.0.192/27")
	}
	for _, a := range []netip.Addr{r.First, r.Last} {
		if a.Zone() != "" || a.Is4In6() || !a.IsGlobalUnicast() {
			return r, fault.New(fault.Usage, "%q: %s cannot be the address of a Service", text, a).Hint("use unused addresses in the subnet of the nodes")
		}
	}
	if r.First.BitLen() != r.Last.BitLen() || r.Last.Less(r.First) {
		return r, fault.New(fault.Usage, "%q: the last address is before the first one", text).Hint("write the lower address first")
	}
	return r, nil
}

// rangeOf returns all addresses of a network.
func rangeOf(p netip.Prefix) Range {
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(last)
	return Range{p.Masked().Addr(), a}
}

// check returns an error if a range has addresses of another one, or addresses that are taken.
func (p Pools) check(r Range, taken Taken) error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for _, other := range p[name] {
			if r.overlaps(other) {
				return fault.New(fault.Usage, "%s overlaps %s of the pool %q", r, other, name).Hint("an address can only be in one pool, and once")
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(taken)) {
		for _, prefix := range taken[what] {
			if r.overlaps(rangeOf(prefix)) {
				text := prefix.String()
				if prefix.IsSingleIP() {
					text = prefix.Addr().String()
				}
				return fault.New(fault.Usage, "%s has %s, %s", r, text, what).Hint("use addresses that nothing else has")
			}
		}
	}
	return nil
}

// poolOf returns the name of the pool that contains an address; "" if there is none.
func (p Pools) poolOf(a netip.Addr) string {
	for name, ranges := range p {
		if slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(a) }) {
			return name
		}
	}
	return ""
}

// Free returns the lowest address of a family in a pool that is not used.
func (p Pools) Free(pool string, bits int, used map[netip.Addr]string) (netip.Addr, bool) {
	ranges := slices.Clone(p[pool])
	slices.SortFunc(ranges, func(a, b Range) int { return a.First.Compare(b.First) })
	for _, r := range ranges {
		if r.First.BitLen() != bits {
			continue
		}
		for a := r.First; r.Contains(a); a = a.Next() {
			if used[a] == "" {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// Has reports whether a pool has addresses of a family.
func (p Pools) Has(pool string, bits int) bool {
	return slices.ContainsFunc(p[pool], func(r Range) bool { return r.First.BitLen() == bits })
}

func names(p Pools) string {
	list := slices.Sorted(maps.Keys(p))
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Ends returns the addresses of an IPv4 subnet that no host may have: the first one, and the broadcast address.
func Ends(subnet netip.Prefix) []netip.Prefix {
	first := subnet.Masked().Addr()
	if !first.Is4() || subnet.Bits() > 30 { // RFC 3021
		return nil
	}
	last := first.As4()
	binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(last[:])|(1<<(32-subnet.Bits())-1))
	return []netip.Prefix{netip.PrefixFrom(first, 32), netip.PrefixFrom(netip.AddrFrom4(last), 32)}
}
