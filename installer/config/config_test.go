package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/fault"
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
		{"own address inside", func(c *config.Config) { c.Networking.PodSubnet = config.ParseCIDRs("192.0.0.0/16") }, "192.0.2.10, this host's address, is in the cluster's range of pod addresses, --pod-network-cidr 192.0.0.0/16: choose another pod range, for example --pod-network-cidr=10.244.0.0/16 "},
		{"own address inside the Service range", func(c *config.Config) { c.Networking.ServiceSubnet = config.ParseCIDRs("192.0.0.0/16") }, "choose another Service range, for example --service-cidr=10.96.0.0/12 "},
		{"IPv6 address, IPv4 ranges", func(c *config.Config) {
			c.Facts.NodeIP, c.Networking.ServiceSubnet = "fd77::5", config.ParseCIDRs("10.96.0.0/12")
		}, "--apiserver-advertise-address fd77::5 is an IPv6 address and --service-cidr 10.96.0.0/12 is an IPv4 range"},
		{"IPv6 address, IPv4 pods", func(c *config.Config) {
			c.Facts.NodeIP, c.Networking.PodSubnet = "fd77::5", config.ParseCIDRs("10.244.0.0/16")
		}, "fd77::5 is an IPv6 address"},
		{"IPv4 address, IPv6 first", func(c *config.Config) {
			c.Networking.ServiceSubnet = config.ParseCIDRs("fd00:10:96::/112,10.96.0.0/12")
			c.Networking.PodSubnet = config.ParseCIDRs("fd00:10:244::/56,10.244.0.0/16")
		}, "192.0.2.10 is an IPv4 address"},
		{"pods of the other family only", func(c *config.Config) {
			c.Networking.ServiceSubnet, c.Networking.PodSubnet = config.ParseCIDRs("10.96.0.0/12"), config.ParseCIDRs("fd00:10:244::/56")
		}, "--pod-network-cidr fd00:10:244::/56 has no IPv4 range"},
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

// The default ranges have the family of the address, or of the range that is
// given.
func TestDefaultRangesOfAFamily(t *testing.T) {
	for _, tt := range []struct {
		name                           string
		address, services, pods, cni   string
		wantServices, wantPods, family string
	}{
		{"IPv4", "192.0.2.10", "", "", "flannel", "10.96.0.0/12", "10.244.0.0/16", "IPv4"},
		{"IPv6", "fd77::5", "", "", "flannel", "fd00:10:96::/112", "fd00:10:244::/56", "IPv6"},
		{"IPv6 without a pod network", "fd77::5", "", "", "none", "fd00:10:96::/112", "", "IPv6"},
		{"IPv6, Services given", "fd77::5", "fd01::/112", "", "flannel", "fd01::/112", "fd00:10:244::/56", "IPv6"},
		{"IPv6, pods given", "fd77::5", "", "fd01::/56", "flannel", "fd00:10:96::/112", "fd01::/56", "IPv6"},
		{"dual-stack pods", "192.0.2.10", "", "10.1.0.0/16,fd01::/56", "flannel", "10.96.0.0/12", "10.1.0.0/16,fd01::/56", "IPv4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := initConfig(func(c *config.Config) {
				c.Facts.NodeIP, c.CNI = tt.address, tt.cni
				c.Networking.ServiceSubnet, c.Networking.PodSubnet = config.ParseCIDRs(tt.services), config.ParseCIDRs(tt.pods)
			})
			if err := c.ValidateInit(); err != nil {
				t.Fatal(err)
			}
			n := c.Networking
			if n.ServiceSubnet.String() != tt.wantServices || n.PodSubnet.String() != tt.wantPods || string(n.Family()) != tt.family {
				t.Errorf("Services %s, pods %s, %s", n.ServiceSubnet, n.PodSubnet, n.Family())
			}
		})
	}
}

// The kubelet of a dual-stack cluster gets an address of each family, in the
// order of the Service ranges.
func TestNodeIPs(t *testing.T) {
	const v4, v6 = "10.96.0.0/12", "fd00:10:96::/112"
	for _, tt := range []struct {
		name, ip, other, services, pods, users, want string
	}{
		{"single-stack", "192.0.2.10", "fd77::5", v4, "10.244.0.0/16", "", "192.0.2.10"},
		{"dual-stack", "192.0.2.10", "fd77::5", v4 + "," + v6, "10.244.0.0/16,fd00:10:244::/56", "", "192.0.2.10 fd77::5"},
		{"only pods", "192.0.2.10", "fd77::5", v4, "10.244.0.0/16,fd00:10:244::/56", "", "192.0.2.10 fd77::5"},
		{"IPv6 first", "fd77::5", "192.0.2.10", v6 + "," + v4, "", "", "fd77::5 192.0.2.10"},
		{"IPv6 first, joined by IPv4", "192.0.2.10", "fd77::5", v6 + "," + v4, "", "", "fd77::5 192.0.2.10"},
		{"no other address", "192.0.2.10", "", v4 + "," + v6, "", "", "192.0.2.10"},
		{"the other one is in a range", "192.0.2.10", "fd00:10:96::7", v4 + "," + v6, "", "", "192.0.2.10"},
		{"the user's", "192.0.2.10", "fd77::5", v4 + "," + v6, "", "198.51.100.7", "198.51.100.7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &config.Config{Facts: config.Facts{NodeIP: tt.ip, OtherIP: tt.other}}
			c.Networking.ServiceSubnet, c.Networking.PodSubnet = config.ParseCIDRs(tt.services), config.ParseCIDRs(tt.pods)
			if tt.users != "" {
				c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "node-ip", Value: tt.users}}
			}
			if got := strings.Trim(fmt.Sprint(c.NodeIPs()), "[]"); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
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
		{"a name in capitals", func(d *config.Discovery) { d.APIServerEndpoint = "K8S-VIP.example:6443" }, ""},
		{"a file", func(d *config.Discovery) { *d = config.Discovery{File: "/root/cluster-info.yaml"} }, ""},
		{"a file as a URL", func(d *config.Discovery) { *d = config.Discovery{File: "file:///root/cluster-info.yaml"} }, ""},
		{"another URL", func(d *config.Discovery) { *d = config.Discovery{File: "http://site.example/cluster-info.yaml"} }, "must be a path or begin with https://"},
		{"no address", func(d *config.Discovery) { d.APIServerEndpoint = "" }, "address is missing"},
		{"no port", func(d *config.Discovery) { d.APIServerEndpoint = "192.0.2.10" }, "write 192.0.2.10:6443"},
		{"URL", func(d *config.Discovery) { d.APIServerEndpoint = "https://192.0.2.10:6443" }, "is a URL: write 192.0.2.10:6443"},
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

// A joining control plane gets the timeout of the cluster's configuration, unless its
// JoinConfiguration has another.
func TestJoinUsesTheClustersTimeout(t *testing.T) {
	for _, tt := range []struct{ cluster, join, want time.Duration }{
		{0, 0, config.DefaultControlPlaneTimeout},
		{10 * time.Minute, 0, 10 * time.Minute},
		{10 * time.Minute, 8 * time.Minute, 8 * time.Minute},
		{0, 8 * time.Minute, 8 * time.Minute},
	} {
		c := &config.Config{ControlPlane: true, Facts: config.Facts{Hostname: "two", NodeIP: "192.0.2.11"}}
		c.KubernetesVersion, c.Timeouts.ControlPlaneComponentHealthCheck = "v1.29.15", tt.join
		c.CompleteJoin()
		cluster := config.Cluster{KubernetesVersion: "v1.29.15"}
		cluster.APIServer.TimeoutForControlPlane = tt.cluster
		if err := c.UseCluster(cluster); err != nil {
			t.Fatal(err)
		}
		c.CompleteInit()
		if a, b := c.Timeouts.ControlPlaneComponentHealthCheck, c.APIServer.TimeoutForControlPlane; a != tt.want || b != tt.want {
			t.Errorf("%+v: %s and %s", tt, a, b)
		}
	}
}

// An add-on whose phase init skips is disabled in the stored configuration, so that an upgrade
// does not install it.
func TestSkippedAddOnsAreDisabled(t *testing.T) {
	for phase, want := range map[string]string{
		"addon": "dns proxy", "addon/coredns": "dns", "addon/kube-proxy": "proxy", "addon/flannel": "", "upload-certs": "",
	} {
		c := initConfig(func(c *config.Config) { c.SkipPhases = []string{"preflight", phase} })
		c.DisableSkippedAddOns()
		c.KubernetesVersion = "v1.37.1"
		data, err := c.Cluster.Write(true)
		if err != nil {
			t.Fatal(err)
		}
		var stored struct{ DNS, Proxy struct{ Disabled bool } }
		if err := yaml.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		var got []string
		if stored.DNS.Disabled {
			got = append(got, "dns")
		}
		if stored.Proxy.Disabled {
			got = append(got, "proxy")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q is disabled, want %q", phase, got, want)
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
