package loadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Class is the loadBalancerClass of Services that only Airlift serves. It also serves those without a class.
const Class = "airlift.dev/load-balancer"

// Annotations of a Service.
const (
	// PoolAnnotation is the name of the pool from which the Service gets its addresses.
	PoolAnnotation = "airlift.dev/load-balancer-pool"
	// AddressAnnotation are the addresses that the Service wants, with a comma between them.
	AddressAnnotation = "airlift.dev/load-balancer-address"
)

// A Service is one of type LoadBalancer, as far as addresses are concerned.
type Service struct {
	Name    string // namespace/name
	UID     string
	Created time.Time
	Bits    []int // the families of its cluster addresses: 32, 128
	Both    bool  // one family is not enough
	Pool    string
	Wanted  string       // the addresses that it names
	Current []netip.Addr // in its status, where Airlift wrote them
	// Others are addresses in its status that another controller wrote: it is left alone.
	Others []netip.Addr
	// Local means that only nodes with a ready endpoint can serve it.
	Local bool
}

// A Decision is what a Service gets.
type Decision struct {
	Service
	Addresses []netip.Addr
	// Problem is why it has no address, not one of each family, or not the one that it had.
	Problem string
}

// Allocate decides which addresses Services have. A Service keeps its addresses as long as they are in its pool. If two have
// the same one, the older Service keeps it.
func Allocate(pools Pools, services []Service) []Decision {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	used := map[netip.Addr]string{} // by the name of the Service
	for _, s := range services {
		for _, a := range s.Others {
			used[a] = s.Name
		}
	}
	list := make([]Decision, 0, len(services))
	for _, s := range services {
		if len(s.Others) > 0 {
			continue
		}
		d := Decision{Service: s}
		for _, a := range s.Current {
			switch {
			case used[a] != "":
				d.Problem = fmt.Sprintf("%s also was the address of Service %s, which is older or has another controller", a, used[a])
			case s.mayKeep(pools, a) && !slices.ContainsFunc(d.Addresses, func(b netip.Addr) bool { return b.BitLen() == a.BitLen() }):
				used[a] = s.Name
				d.Addresses = append(d.Addresses, a)
			}
		}
		list = append(list, d)
	}
	for i := range list {
		list[i].complete(pools, used)
	}
	return list
}

// mayKeep reports whether an address that a Service has fits the pools and what the Service wants now.
func (s Service) mayKeep(pools Pools, a netip.Addr) bool {
	pool := pools.poolOf(a)
	if pool == "" || !slices.Contains(s.Bits, a.BitLen()) {
		return false
	}
	if s.Wanted != "" {
		wanted, err := parseAddresses(s.Wanted)
		return err == nil && slices.Contains(wanted, a) && (s.Pool == "" || s.Pool == pool)
	}
	return pool == cmp.Or(s.Pool, DefaultPool)
}

func parseAddresses(text string) (list []netip.Addr, err error) {
	for field := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(field))
		if err != nil || a.Zone() != "" { // with a zone, an address would differ from itself
			return nil, fmt.Errorf("%q is not an address", field)
		}
		list = append(list, a)
	}
	return list, nil
}

// complete adds the addresses that a Service does not have yet. Without all that it needs, it has none.
func (d *Decision) complete(pools Pools, used map[netip.Addr]string) {
	refuse := func(format string, args ...any) {
		for _, a := range d.Addresses {
			delete(used, a)
		}
		d.Addresses, d.Problem = nil, fmt.Sprintf(format, args...)
	}
	if d.Wanted != "" {
		wanted, err := parseAddresses(d.Wanted)
		if err != nil {
			refuse("%v", err)
			return
		}
		for _, a := range wanted {
			pool := pools.poolOf(a)
			switch {
			case slices.Contains(d.Addresses, a):
				continue
			case pool == "" || d.Pool != "" && pool != d.Pool:
				refuse("%s is not in a pool of this Service; pools: %s", a, names(pools))
			case !slices.Contains(d.Bits, a.BitLen()):
				refuse("%s has another IP family than the Service", a)
			case slices.ContainsFunc(d.Addresses, func(b netip.Addr) bool { return b.BitLen() == a.BitLen() }):
				refuse("%s is a second address of the same IP family", a)
			case used[a] != "":
				refuse("%s is the address of Service %s; two Services cannot share one", a, used[a])
			default:
				used[a] = d.Name
				d.Addresses = append(d.Addresses, a)
				continue
			}
			return
		}
	} else {
		pool := cmp.Or(d.Pool, DefaultPool)
		if len(pools[pool]) == 0 {
			refuse("there is no pool %q; pools: %s", pool, names(pools))
			return
		}
		for _, bits := range d.Bits {
			if slices.ContainsFunc(d.Addresses, func(b netip.Addr) bool { return b.BitLen() == bits }) || !pools.Has(pool, bits) {
				continue
			}
			a, ok := pools.Free(pool, bits, used)
			if !ok && d.Both {
				refuse("the pool %q has no free %s address", pool, family(bits))
				return
			}
			if !ok { // it keeps, or gets, an address of the other family
				d.Problem = cmp.Or(d.Problem, fmt.Sprintf("the pool %q has no free %s address", pool, family(bits)))
				continue
			}
			used[a] = d.Name
			d.Addresses = append(d.Addresses, a)
		}
	}
	switch {
	case d.Both && len(d.Addresses) < len(d.Bits):
		refuse("the Service needs an IPv4 and an IPv6 address, and got %d", len(d.Addresses))
	case len(d.Addresses) == 0 && d.Problem == "":
		d.Problem = "its pool has no address of its IP family"
	}
	slices.SortFunc(d.Addresses, func(a, b netip.Addr) int {
		return cmp.Compare(slices.Index(d.Bits, a.BitLen()), slices.Index(d.Bits, b.BitLen()))
	})
}

func family(bits int) string {
	if bits == 32 {
		return "IPv4"
	}
	return "IPv6"
}
