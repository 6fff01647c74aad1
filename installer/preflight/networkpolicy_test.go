package preflight

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

// The add-on's pods are Ready on every kernel, so that only this check finds one that cannot
// enforce policies.
func TestNetworkPolicy(t *testing.T) {
	config := func(options ...string) string {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		for _, option := range options {
			if _, err := z.Write([]byte("CONFIG_" + option + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.String()
	}
	all := []string{"NFT_QUEUE=m", "NETFILTER_NETLINK_QUEUE=m", "NFT_CT=y", "NF_CONNTRACK_LABELS=y", "NF_CT_NETLINK=m"}
	for name, c := range map[string]struct {
		config string
		addOn  bool
		want   string
	}{
		"a kernel with everything":           {config(all...), true, ""},
		"no rules that queue":                {config(all[1:]...), true, "CONFIG_NFT_QUEUE"},
		"an option that is not set":          {config(append([]string{"NFT_QUEUE=n"}, all[1:]...)...), true, "CONFIG_NFT_QUEUE"},
		"no rules that queue, and no add-on": {config(all[1:]...), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			write(t, s.Root, "/proc/config.gz", c.config)
			s.NetworkPolicy = c.addOn
			found := s.runOne(t, "NetworkPolicy")
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Warning || found[0].Fix == "" || !strings.Contains(found[0].Message, c.want)) {
				t.Errorf("%+v", found)
			}
		})
	}
}
