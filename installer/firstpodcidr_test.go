package installer

import (
	"slices"
	"testing"
)

func TestFirstPodCIDRs(t *testing.T) {
	base := map[string]string{"allocate-node-cidrs": "true", "cluster-cidr": "10.244.0.0/16", "service-cluster-ip-range": "10.96.0.0/12"}
	for name, c := range map[string]struct {
		set  map[string]string
		want []string
	}{
		"kubeadm's":               {nil, []string{"10.244.0.0/24"}},
		"not allocated":           {map[string]string{"allocate-node-cidrs": "false"}, nil},
		"another allocator":       {map[string]string{"cidr-allocator-type": "CloudAllocator"}, nil},
		"this allocator":          {map[string]string{"cidr-allocator-type": "RangeAllocator"}, []string{"10.244.0.0/24"}},
		"no ranges":               {map[string]string{"cluster-cidr": ""}, nil},
		"no services":             {map[string]string{"service-cluster-ip-range": ""}, nil},
		"size":                    {map[string]string{"node-cidr-mask-size": "26"}, []string{"10.244.0.0/26"}},
		"size of a family":        {map[string]string{"node-cidr-mask-size-ipv4": "25"}, []string{"10.244.0.0/25"}},
		"both sizes":              {map[string]string{"node-cidr-mask-size": "26", "node-cidr-mask-size-ipv4": "25"}, nil},
		"size is no number":       {map[string]string{"node-cidr-mask-size": "big"}, nil},
		"larger than the whole":   {map[string]string{"node-cidr-mask-size": "12"}, nil},
		"smaller than an address": {map[string]string{"node-cidr-mask-size": "33"}, nil},
		"host bits":               {map[string]string{"cluster-cidr": "10.244.3.0/16"}, nil},
		"services inside":         {map[string]string{"service-cluster-ip-range": "10.244.0.0/24"}, nil},
		"IPv6":                    {map[string]string{"cluster-cidr": "fd00:10:244::/56", "service-cluster-ip-range": "fd00:10:96::/112"}, []string{"fd00:10:244::/64"}},
		"dual": {map[string]string{"cluster-cidr": "10.244.0.0/16,fd00:10:244::/56", "service-cluster-ip-range": "10.96.0.0/12,fd00:10:96::/112"},
			[]string{"10.244.0.0/24", "fd00:10:244::/64"}},
		"dual, one size for both": {map[string]string{"cluster-cidr": "10.244.0.0/16,fd00:10:244::/56", "node-cidr-mask-size": "26"}, nil},
	} {
		flags := map[string]string{}
		for _, m := range []map[string]string{base, c.set} {
			for k, v := range m {
				flags[k] = v
			}
		}
		if got := firstPodCIDRs(flags); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
