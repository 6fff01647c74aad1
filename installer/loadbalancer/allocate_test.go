package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func addresses(text ...string) (list []netip.Addr) {
	for _, a := range text {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func TestAllocate(t *testing.T) {
	pools, err := ParsePools(map[string]string{"default": "10.0.0.1-10.0.0.3 fd00::1-fd00::2", "other": "10.0.1.1-10.0.1.2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v4, both := []int{32}, []int{32, 128}
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for name, c := range map[string]struct {
		services []Service
		want     string // "name: addresses problem" of each, in order of their age
	}{
		"the lowest free address":           {[]Service{{Name: "a", Bits: v4}}, "a: 10.0.0.1"},
		"both families":                     {[]Service{{Name: "a", Bits: both}}, "a: 10.0.0.1 fd00::1"},
		"a pool without IPv6 is enough":     {[]Service{{Name: "a", Bits: both, Pool: "other"}}, "a: 10.0.1.1"},
		"a pool without IPv6 is not enough": {[]Service{{Name: "a", Bits: both, Both: true, Pool: "other"}}, "a: the Service needs an IPv4 and an IPv6 address"},
		"it keeps what it has":              {[]Service{{Name: "a", Bits: v4, Current: addresses("10.0.0.3")}}, "a: 10.0.0.3"},
		"an address that left the pool":     {[]Service{{Name: "a", Bits: v4, Current: addresses("10.0.9.9")}}, "a: 10.0.0.1"},
		"a wanted one":                      {[]Service{{Name: "a", Bits: v4, Wanted: "10.0.1.2", Current: addresses("10.0.0.1")}}, "a: 10.0.1.2"},
		"a wanted one of no pool":           {[]Service{{Name: "a", Bits: v4, Wanted: "10.0.7.2"}}, "a: 10.0.7.2 is not in a pool of this Service; pools: default, other"},
		"a wanted one of another pool":      {[]Service{{Name: "a", Bits: v4, Wanted: "10.0.1.2", Pool: "default"}}, "a: 10.0.1.2 is not in a pool"},
		"a wanted one of another family":    {[]Service{{Name: "a", Bits: v4, Wanted: "fd00::1"}}, "a: fd00::1 has another IP family"},
		"two of one family":                 {[]Service{{Name: "a", Bits: v4, Wanted: "10.0.0.1,10.0.0.2"}}, "a: 10.0.0.2 is a second address"},
		"no address":                        {[]Service{{Name: "a", Bits: v4, Wanted: "x"}}, `a: "x" is not an address`},
		"an address with a zone": {[]Service{{Name: "a", Bits: both}, {Name: "b", Created: at(1), Bits: both, Wanted: "fd00::1%eth0"}},
			`a: 10.0.0.1 fd00::1; b: "fd00::1%eth0" is not an address`},
		"no pool": {[]Service{{Name: "a", Bits: v4, Pool: "x"}}, `a: there is no pool "x"; pools: default, other`},
		"a wanted one is used": {[]Service{{Name: "a", Bits: v4}, {Name: "b", Created: at(1), Bits: v4, Wanted: "10.0.0.1"}},
			"a: 10.0.0.1; b: 10.0.0.1 is the address of Service a; two Services cannot share one"},
		"the older one keeps it": {[]Service{{Name: "b", Created: at(1), Bits: v4, Current: addresses("10.0.0.2")}, {Name: "a", Created: at(0), Bits: v4, Current: addresses("10.0.0.2")}},
			"a: 10.0.0.2; b: 10.0.0.1 10.0.0.2 also was the address of Service a"},
		"no free address": {[]Service{{Name: "a", Bits: v4, Pool: "other"}, {Name: "b", Created: at(1), Bits: v4, Pool: "other"}, {Name: "c", Created: at(2), Bits: v4, Pool: "other"}},
			`a: 10.0.1.1; b: 10.0.1.2; c: the pool "other" has no free IPv4 address`},
		"no free address of one family": {[]Service{{Name: "a", Bits: []int{128}}, {Name: "b", Created: at(1), Bits: []int{128}},
			{Name: "c", Created: at(2), Bits: both, Current: addresses("10.0.0.3")}, {Name: "d", Created: at(3), Bits: both, Both: true, Current: addresses("10.0.0.2")}},
			`a: fd00::1; b: fd00::2; c: 10.0.0.3 the pool "default" has no free IPv6 address; d: the pool "default" has no free IPv6 address`},
		"another controller's is left alone": {[]Service{{Name: "a", Bits: v4, Others: addresses("10.0.0.1")}, {Name: "b", Created: at(1), Bits: v4}}, "b: 10.0.0.2"},
	} {
		for i := range c.services {
			if c.services[i].Created.IsZero() {
				c.services[i].Created = at(0)
			}
		}
		var got []string
		for _, d := range Allocate(pools, c.services) {
			got = append(got, strings.TrimSpace(d.Name+": "+strings.TrimSpace(strings.Trim(fmt.Sprint(d.Addresses), "[]")+" "+d.Problem)))
		}
		parts := strings.Split(c.want, "; ")
		if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want) && !(len(parts) == len(got) && strings.Contains(text, c.want)) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// In any sequence of changes no two Services have one address, no address is in no pool, and a Service keeps its addresses as long
// as nothing that is about it changes.
func TestGeneratedAllocations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Pools {
			last := rapid.IntRange(1, 6).Draw(t, "size")
			pools, err := ParsePools(map[string]string{
				"default": fmt.Sprintf("10.0.0.%d-10.0.0.6 fd00::%d-fd00::6", last, last), "other": "10.0.1.1-10.0.1.2"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return pools
		}
		pools := draw()
		var services []Service
		for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
			touched := ""
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case what <= 1:
				s := Service{Name: fmt.Sprint("s", step), UID: fmt.Sprint(step), Created: time.Unix(int64(rapid.IntRange(0, 5).Draw(t, "created")), 0)}
				s.Bits = rapid.SampledFrom([][]int{{32}, {128}, {32, 128}}).Draw(t, "families")
				s.Both = len(s.Bits) == 2 && rapid.Bool().Draw(t, "both")
				s.Pool = rapid.SampledFrom([]string{"", "", "other", "missing"}).Draw(t, "pool")
				s.Wanted = rapid.SampledFrom([]string{"", "", "10.0.0.3", "10.0.1.1", "fd00::4", "10.0.0.3,fd00::4", "10.9.9.9"}).Draw(t, "wanted")
				if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
					s.Others = addresses("10.0.0.5")
				} else if rapid.IntRange(0, 5).Draw(t, "restored") == 0 {
					s.Current = addresses("10.0.0.4") // for example from a backup
				}
				services, touched = append(services, s), s.Name
			case what == 2 && len(services) > 0:
				i := rapid.IntRange(0, len(services)-1).Draw(t, "deleted")
				services = slices.Delete(services, i, i+1)
			case what == 3:
				pools = draw()
			case what == 4 && len(services) > 0:
				i := rapid.IntRange(0, len(services)-1).Draw(t, "changed")
				services[i].Wanted = rapid.SampledFrom([]string{"", "10.0.0.6", "10.0.1.2"}).Draw(t, "wanted")
				touched = services[i].Name
			}
			used := map[netip.Addr]string{}
			for _, s := range services {
				for _, a := range s.Others {
					used[a] = s.Name
				}
			}
			decided := Allocate(pools, services)
			for _, d := range decided {
				if len(d.Others) > 0 {
					t.Fatalf("%s of another controller got a decision", d.Name)
				}
				if len(d.Addresses) == 0 && d.Problem == "" {
					t.Fatalf("%s has no address and no reason", d.Name)
				}
				for _, a := range d.Addresses {
					if used[a] != "" || pools.poolOf(a) == "" || !slices.Contains(d.Bits, a.BitLen()) {
						t.Fatalf("%s got %s: used by %q, in the pool %q", d.Name, a, used[a], pools.poolOf(a))
					}
					used[a] = d.Name
				}
				i := slices.IndexFunc(services, func(s Service) bool { return s.Name == d.Name })
				if before := services[i].Current; d.Name != touched && d.Problem == "" {
					for _, a := range before {
						fits := services[i].mayKeep(pools, a)
						if fits && !slices.Contains(d.Addresses, a) {
							t.Fatalf("%s lost %s", d.Name, a)
						}
					}
				}
				services[i].Current = d.Addresses
			}
			again := Allocate(pools, services)
			for i, d := range again {
				if !slices.Equal(d.Addresses, decided[i].Addresses) {
					t.Fatalf("a second time, %s gets %v and not %v", d.Name, d.Addresses, decided[i].Addresses)
				}
			}
		}
	})
}
