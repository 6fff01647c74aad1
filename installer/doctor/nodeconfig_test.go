package doctor

import (
	"testing"

	"airlift/installer/config"
	"airlift/installer/status"
	"airlift/scripts/fixtures/testhost"
)

// TestEtcdOfThisHost: the doctor knows an etcd of this host from an external one, in both families.
func TestEtcdOfThisHost(t *testing.T) {
	for address, service := range map[string]string{"10.1.2.3": "10.96.0.0/12", "fd00::3": "fd00:10:96::/112"} {
		for _, external := range []string{"", "https://10.1.2.9:2379", "https://[fd00::9]:2379", "https://[fd00::1]:2379"} {
			h, _ := testhost.ControlPlane(t, func(c *config.Config) {
				c.LocalAPIEndpoint.AdvertiseAddress = address
				if err := c.Networking.ServiceSubnet.Set(service); err != nil {
					t.Fatal(err)
				}
				if external != "" {
					c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{external}, CAFile: "/ca", CertFile: "/cert", KeyFile: "/key"}
				}
			})
			is := (&Doctor{Host: h}).nodeConfig(&status.Status{}).Etcd.External
			if (is != nil) != (external != "") || is != nil && is.Endpoints[0] != external {
				t.Errorf("%s with %q: %+v", address, external, is)
			}
		}
	}
}
