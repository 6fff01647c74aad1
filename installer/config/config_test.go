package config_test

import (
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
)

func initConfig(change func(*config.Config)) *config.Config {
	c := &config.Config{CNI: "flannel", Facts: config.Facts{Hostname: "cp1", NodeIP: "192.0.2.10"}}
	c.KubernetesVersion = "v1.29.15"
	if change != nil {
		change(c)
	}
	c.CompleteInit()
	return c
}

func TestDefaultsAreValidAndKubeadms(t *testing.T) {
	c := initConfig(nil)
	if err := c.ValidateInit(); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"service subnet": {c.Networking.ServiceSubnet.String(), "10.96.0.0/12"},
		"pod subnet":     {c.Networking.PodSubnet.String(), "10.244.0.0/16"},
		"domain":         {c.Networking.DNSDomain, "cluster.local"},
		"server":         {c.ServerURL(), "https://192.0.2.10:6443"},
		"node":           {c.NodeRegistration.Name, "cp1"},
		"taint":          {c.NodeRegistration.Taints[0].ToString(), "node-role.kubernetes.io/control-plane:NoSchedule"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %q, want %q", name, pair[0], pair[1])
		}
	}
}

func TestBadInitSettingsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		want   string
	}{
		{"service too large", func(c *config.Config) { c.Networking.ServiceSubnet = config.ParseCIDRs("10.0.0.0/8") }, "/12 or longer"},
		{"service too small", func(c *config.Config) { c.Networking.ServiceSubnet = config.ParseCIDRs("10.96.0.0/30") }, "tenth address"},
		{"host bits", func(c *config.Config) { c.Networking.ServiceSubnet = config.ParseCIDRs("10.96.0.1/16") }, "write 10.96.0.0/16"},
		{"pods too small", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("10.244.0.0/25") }, "each node gets a /24"},
		{"pods too large", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("10.0.0.0/7") }, "16 bits shorter"},
		{"overlap", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("10.96.0.0/16") }, "overlap"},
		{"own address inside", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("192.0.0.0/16") }, "192.0.2.10, this host's address, is in the cluster's range"},
		{"not a range", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("ten") }, `"ten" is not an address range`},
		{"two of one family", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("10.1.0.0/16,10.2.0.0/16") }, "one IPv4 and one IPv6"},
		{"advertise loopback", func(c *config.Config) { c.LocalAPIEndpoint.AdvertiseAddress = "127.0.0.1" }, "cannot be reached"},
		{"port", func(c *config.Config) { c.LocalAPIEndpoint.BindPort = 70000 }, "--apiserver-bind-port 70000"},
		{"endpoint", func(c *config.Config) { c.ControlPlaneEndpoint = "vip:0" }, `port "0"`},
		{"san", func(c *config.Config) { c.APIServer.CertSANs = []string{"a_b"} }, `"a_b"`},
		{"token", func(c *config.Config) { c.BootstrapTokens = []config.BootstrapToken{{Token: "ABC.def"}} }, "--token must look like"},
		{"domain", func(c *config.Config) { c.Networking.DNSDomain = "no_such" }, "--service-dns-domain"},
		{"node name", func(c *config.Config) { c.NodeRegistration.Name = "Node_1" }, `node name "Node_1"`},
		{"key", func(c *config.Config) { c.CertificateKey = "12" }, "64 hexadecimal digits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := initConfig(tt.change).ValidateInit()
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
			if fault.ExitCode(err) != fault.Usage {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
		})
	}
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	err := initConfig(func(c *config.Config) {
		c.Networking.ServiceSubnet = config.ParseCIDRs("10.0.0.0/8")
		c.Networking.DNSDomain = "_"
		c.LocalAPIEndpoint.BindPort = -1
	}).ValidateInit()
	for _, want := range []string{"4 values", "overlap", "--service-cidr", "--service-dns-domain", "--apiserver-bind-port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestDualStackIsAccepted(t *testing.T) {
	c := initConfig(func(c *config.Config) {
		c.Networking.PodSubnet = config.ParseCIDRs("10.244.0.0/16,fd00:10:244::/56")
		c.Networking.ServiceSubnet = config.ParseCIDRs("10.96.0.0/16,fd00:10:96::/112")
	})
	if err := c.ValidateInit(); err != nil {
		t.Fatal(err)
	}
}

func TestJoin(t *testing.T) {
	hash := "sha256:" + strings.Repeat("a", 64)
	good := config.Discovery{Token: "abcdef.0123456789abcdef", APIServerEndpoint: "192.0.2.10:6443", CACertHashes: []string{hash}}
	for _, tt := range []struct {
		name   string
		change func(*config.Discovery)
		want   string // "" for valid
	}{
		{"good", func(*config.Discovery) {}, ""},
		{"name", func(d *config.Discovery) { d.APIServerEndpoint = "vip.example:6443" }, ""},
		{"IPv6", func(d *config.Discovery) { d.APIServerEndpoint = "[fd00::1]:6443" }, ""},
		{"no address", func(d *config.Discovery) { d.APIServerEndpoint = "" }, "address is missing"},
		{"no port", func(d *config.Discovery) { d.APIServerEndpoint = "192.0.2.10" }, "write 192.0.2.10:6443"},
		{"URL", func(d *config.Discovery) { d.APIServerEndpoint = "https://192.0.2.10:6443" }, "is not HOST:PORT"},
		{"no token", func(d *config.Discovery) { d.Token = "" }, "--token is missing"},
		{"no hash", func(d *config.Discovery) { d.CACertHashes = nil }, "--discovery-token-ca-cert-hash is missing"},
		{"no hash, accepted", func(d *config.Discovery) { d.CACertHashes, d.UnsafeSkipCAVerification = nil, true }, ""},
		{"short hash", func(d *config.Discovery) { d.CACertHashes = []string{"sha256:abc"} }, "64 hexadecimal digits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &config.Config{Discovery: good, Facts: config.Facts{Hostname: "w1"}}
			tt.change(&c.Discovery)
			c.CompleteJoin()
			err := c.ValidateJoin()
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestKubeletSkew(t *testing.T) {
	for _, tt := range []struct {
		bundle, cluster string
		ok              bool
	}{
		{"v1.29.15", "v1.29.15", true},
		{"v1.29.15", "v1.29.3", true},
		{"v1.29.15", "v1.32.0", true},
		{"v1.29.15", "v1.33.0", false},
		{"v1.30.1", "v1.29.15", false},
	} {
		c := &config.Config{}
		c.KubernetesVersion = tt.bundle
		err := c.UseCluster(config.Cluster{KubernetesVersion: tt.cluster})
		if (err == nil) != tt.ok {
			t.Errorf("bundle %s, cluster %s: %v", tt.bundle, tt.cluster, err)
		}
		if err == nil && c.KubernetesVersion != tt.bundle {
			t.Errorf("version became %s", c.KubernetesVersion)
		}
	}
}

// An unspecified address selects the default, for init and for join.
func TestChosenAddress(t *testing.T) {
	for given, want := range map[string]string{"": "", "0.0.0.0": "", "::": "", "10.1.2.3": "10.1.2.3", "fd00::1": "fd00::1"} {
		if got := (config.APIEndpoint{AdvertiseAddress: given}).ChosenAddress(); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
