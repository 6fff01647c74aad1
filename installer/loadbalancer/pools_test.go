package loadbalancer

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"
)

func TestParsePools(t *testing.T) {
	taken := Taken{
		"the pod network":          {netip.MustParsePrefix("10.244.0.0/16")},
		"the address of node cp1":  {netip.MustParsePrefix("10.77.0.11/32")},
		"an address of the API":    {netip.MustParsePrefix("10.77.0.100/32")},
		"the range of Services":    {netip.MustParsePrefix("fd01::/112")},
		"the address of node cp1 ": {netip.MustParsePrefix("fd77::11/128")},
	}
	for text, want := range map[string]string{
		"10.77.0.200-10.77.0.219":       "10.77.0.200-10.77.0.219",
		"10.77.0.192/30":                "10.77.0.193-10.77.0.194",
		"10.77.0.192/31, 10.77.0.9":     "10.77.0.192-10.77.0.193 10.77.0.9",
		"fd77::200/126\n10.77.0.1":      "fd77::200-fd77::203 10.77.0.1",
		"":                              `the pool "p" has no addresses`,
		"10.77.0.5-10.77.0.20":          "10.77.0.5-10.77.0.20 has 10.77.0.11, the address of node cp1",
		"10.77.0.64/26":                 "has 10.77.0.100, an address of the API",
		"10.244.3.0/24":                 "has 10.244.0.0/16, the pod network",
		"fd01::5":                       "has fd01::/112, the range of Services",
		"10.77.0.200/24":                `"10.77.0.200/24" is not a network`,
		"10.77.0.9-10.77.0.2":           "the last address is before the first one",
		"10.77.0.9-fd77::9":             "the last address is before the first one",
		"10.77.0.9,10.77.0.1-10.77.0.9": "overlaps 10.77.0.9 of the pool",
		"example":                       `"example" is not an address, a range or a network`,
		"127.0.0.1":                     "cannot be the address of a Service",
		"224.0.0.1-224.0.0.9":           "cannot be the address of a Service",
		"fe80::1":                       "cannot be the address of a Service",
		"::ffff:10.77.0.9":              "cannot be the address of a Service",
	} {
		pools, err := ParsePools(map[string]string{"p": text}, taken)
		got := strings.Trim(fmt.Sprint(pools["p"]), "[]")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if _, err := ParsePools(map[string]string{"a": "10.0.0.1-10.0.0.9", "b": "10.0.0.9"}, nil); err == nil || !strings.Contains(err.Error(), `of the pool "a"`) {
		t.Errorf("two pools with an address: %v", err)
	}
}

// Pools that are accepted have no address twice, and none that is taken.
func TestGeneratedPools(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 40).Draw(t, "last"))})
		})
		data := map[string]string{}
		for _, name := range []string{"a", "b"} {
			for range rapid.IntRange(1, 3).Draw(t, "ranges") {
				switch rapid.IntRange(0, 2).Draw(t, "form") {
				case 0:
					data[name] += " " + address.Draw(t, "address").String()
				case 1:
					data[name] += " " + address.Draw(t, "first").String() + "-" + address.Draw(t, "last").String()
				case 2:
					data[name] += " " + netip.PrefixFrom(address.Draw(t, "network"), rapid.IntRange(28, 32).Draw(t, "bits")).Masked().String()
				}
			}
		}
		taken := Taken{"taken": {netip.PrefixFrom(address.Draw(t, "taken"), rapid.IntRange(29, 32).Draw(t, "bits")).Masked()}}
		pools, err := ParsePools(data, taken)
		if err != nil {
			return
		}
		count := map[netip.Addr]int{}
		for _, ranges := range pools {
			for _, r := range ranges {
				for a := r.First; r.Contains(a); a = a.Next() {
					count[a]++
					if count[a] > 1 || taken["taken"][0].Contains(a) {
						t.Fatalf("%v: %s is there twice or taken (%v)", data, a, taken)
					}
				}
			}
		}
	})
}

// TestEnds: a range may not have the broadcast address of a subnet of the nodes.
func TestEnds(t *testing.T) {
	for subnet, want := range map[string]string{"10.77.0.11/24": "[10.77.0.0/32 10.77.0.255/32]", "10.1.2.3/22": "[10.1.0.0/32 10.1.3.255/32]", "0.0.0.0/0": "[0.0.0.0/32 255.255.255.255/32]", "10.0.0.2/31": "[]", "fd77::1/64": "[]"} {
		if got := fmt.Sprint(Ends(netip.MustParsePrefix(subnet))); got != want {
			t.Errorf("%s: %s, want %s", subnet, got, want)
		}
	}
	taken := Taken{"the last address": Ends(netip.MustParsePrefix("10.77.0.11/24"))}
	if _, err := ParsePools(map[string]string{"default": "10.77.0.200-10.77.0.255"}, taken); err == nil {
		t.Error("a pool has the broadcast address")
	}
	if _, err := ParsePools(map[string]string{"default": "10.77.0.200-10.77.0.254, 10.77.1.0"}, taken); err != nil {
		t.Error(err)
	}
}
