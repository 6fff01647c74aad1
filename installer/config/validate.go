package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"airlift/fault"
)

// Limits of address ranges, from kubeadm's constants.go: an API server takes
// at most 20 bits of Service addresses, cluster DNS is the tenth of them, and
// a pod network is cut into node networks of /24 or /64, at most 2^16 of them.
const (
	maxServiceBits    = 20
	minServiceAddrs   = 10
	nodeMaskIPv4      = 24
	nodeMaskIPv6      = 64
	maxNodeMaskSpread = 16
)

// problems gathers everything that is wrong, so that a user mends it in one go.
type problems []string

func (p *problems) addf(format string, args ...any) {
	*p = append(*p, fmt.Sprintf(format, args...))
}

// err is nil when there is no problem.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Usage, "", "%s", p[0])
	}
	return fault.New(fault.Usage, "", "%d settings are not valid:\n  - %s", len(p), strings.Join(p, "\n  - "))
}

// ValidateInit checks a completed Config for init. The error (fault.Usage)
// names every problem and the flag it belongs to.
func (c *Config) ValidateInit() error {
	var p problems
	c.validateNode(&p)
	services := p.prefixes("service-cidr", c.Networking.ServiceSubnet)
	for _, s := range services {
		if bits := s.Addr().BitLen() - s.Bits(); bits > maxServiceBits {
			p.addf("--service-cidr %s is too large: the prefix must be /%d or longer", s, s.Addr().BitLen()-maxServiceBits)
		} else if bits < 62 && 1<<bits < minServiceAddrs {
			p.addf("--service-cidr %s is too small: cluster DNS needs the tenth address", s)
		}
	}
	pods := p.prefixes("pod-network-cidr", c.Networking.PodSubnet)
	for _, s := range pods {
		mask := nodeMaskIPv4
		if s.Addr().Is6() {
			mask = nodeMaskIPv6
		}
		switch {
		case s.Bits() > mask:
			p.addf("--pod-network-cidr %s is too small: each node takes a /%d of it", s, mask)
		case mask-s.Bits() > maxNodeMaskSpread:
			p.addf("--pod-network-cidr %s is too large: each node takes a /%d, and the prefix may be at most %d bits shorter", s, mask, maxNodeMaskSpread)
		}
	}
	if c.CNI == "flannel" && len(pods) == 0 && len(p) == 0 {
		p.addf("the bundle's pod network (flannel) needs --pod-network-cidr")
	}
	for _, a := range pods {
		for _, b := range services {
			if a.Overlaps(b) {
				p.addf("--pod-network-cidr %s and --service-cidr %s overlap", a, b)
			}
		}
	}
	if msgs := validation.IsDNS1123Subdomain(c.Networking.DNSDomain); len(msgs) > 0 {
		p.addf("--service-dns-domain %q: %s", c.Networking.DNSDomain, msgs[0])
	}
	c.validateEndpoint(&p, pods, services)
	for _, san := range c.APIServer.CertSANs {
		if net.ParseIP(san) == nil && len(validation.IsDNS1123Subdomain(san)) > 0 && len(validation.IsWildcardDNS1123Subdomain(san)) > 0 {
			p.addf("--apiserver-cert-extra-sans %q is neither an IP address nor a DNS name", san)
		}
	}
	for _, t := range c.BootstrapTokens {
		p.token("token", t.Token)
		if t.TTL < 0 {
			p.addf("--token-ttl %s is negative; 0 makes a token that never expires", t.TTL)
		}
	}
	if c.CertificateKey != "" && !certificateKey.MatchString(c.CertificateKey) {
		p.addf("--certificate-key must be 64 hexadecimal digits")
	}
	return p.err()
}

var certificateKey = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (c *Config) validateEndpoint(p *problems, pods, services []netip.Prefix) {
	addr, err := netip.ParseAddr(c.LocalAPIEndpoint.AdvertiseAddress)
	switch {
	case err != nil:
		p.addf("--apiserver-advertise-address %q is not an IP address", c.LocalAPIEndpoint.AdvertiseAddress)
	case addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast():
		p.addf("--apiserver-advertise-address %s cannot be reached by other hosts", addr)
	default:
		for _, s := range append(pods, services...) {
			if s.Contains(addr) {
				p.addf("%s, this host's address, lies inside the cluster's own range %s: choose another --pod-network-cidr or --service-cidr", addr, s)
			}
		}
	}
	if port := c.LocalAPIEndpoint.BindPort; port < 1 || port > 65535 {
		p.addf("--apiserver-bind-port %d is not between 1 and 65535", port)
	}
	if e := c.ControlPlaneEndpoint; e != "" {
		if _, _, err := SplitEndpoint(e, 0); err != nil {
			p.addf("--control-plane-endpoint %s", err)
		}
	}
}

// ValidateJoin checks a completed Config for a worker's join.
func (c *Config) ValidateJoin() error {
	var p problems
	c.validateNode(&p)
	d := &c.Discovery
	if d.File == "" {
		if d.APIServerEndpoint == "" {
			p.addf("the API server's address is missing: ./install join HOST:6443 --token …")
		} else if _, port, err := SplitEndpoint(d.APIServerEndpoint, 0); err != nil {
			p.addf("the API server's address %s", err)
		} else if port == 0 {
			p.addf("the API server's address %q has no port: write %s", d.APIServerEndpoint, net.JoinHostPort(strings.Trim(d.APIServerEndpoint, "[]"), strconv.Itoa(DefaultBindPort)))
		}
		p.token("token", d.Token)
		if len(d.CACertHashes) == 0 && !d.UnsafeSkipCAVerification {
			p.addf("--discovery-token-ca-cert-hash is missing; without it anyone who answers at that address would be trusted (--discovery-token-unsafe-skip-ca-verification accepts that)")
		}
		for _, h := range d.CACertHashes {
			if !caCertHash.MatchString(h) {
				p.addf("--discovery-token-ca-cert-hash %q is not sha256: and 64 hexadecimal digits", h)
			}
		}
	}
	if d.TLSBootstrapToken != d.Token {
		p.token("tls-bootstrap-token", d.TLSBootstrapToken)
	}
	return p.err()
}

var caCertHash = regexp.MustCompile(`^sha256:[0-9a-fA-F]{64}$`)

func (c *Config) validateNode(p *problems) {
	if msgs := validation.IsDNS1123Subdomain(c.NodeRegistration.Name); len(msgs) > 0 {
		p.addf("node name %q: %s; set one with --node-name", c.NodeRegistration.Name, msgs[0])
	}
	if s := c.NodeRegistration.CRISocket; !strings.HasPrefix(s, "unix:///") {
		p.addf("CRI socket %q must be unix:// and an absolute path", s)
	}
}

func (p *problems) token(flag, token string) {
	switch {
	case token == "":
		p.addf("--%s is missing", flag)
	case !bootstraputil.IsValidBootstrapToken(token):
		p.addf("--%s must look like abcdef.0123456789abcdef (6 and 16 lower-case letters or digits)", flag)
	}
}

// prefixes parses one range, or two of different families separated by a comma.
func (p *problems) prefixes(flag, list string) []netip.Prefix {
	if list == "" {
		return nil
	}
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			p.addf("--%s %q is not an address range such as 10.0.0.0/16", flag, s)
			return nil
		}
		if prefix != prefix.Masked() {
			p.addf("--%s %s has host bits set: write %s", flag, prefix, prefix.Masked())
			return nil
		}
		out = append(out, prefix)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		p.addf("--%s %q: give one range, or one IPv4 and one IPv6 range", flag, list)
		return nil
	}
	return out
}

// SplitEndpoint takes "host", "host:port", "[v6]" or "[v6]:port" apart; port is
// def where none is given. The error quotes the endpoint.
func SplitEndpoint(endpoint string, def int) (host string, port int, err error) {
	host, port = strings.Trim(endpoint, "[]"), def
	if net.ParseIP(host) == nil && strings.Contains(endpoint, ":") {
		h, p, err := net.SplitHostPort(endpoint)
		if err != nil {
			return "", 0, fmt.Errorf("%q is not HOST:PORT", endpoint)
		}
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", 0, fmt.Errorf("%q: port %q is not between 1 and 65535", endpoint, p)
		}
		host = h
	}
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return "", 0, fmt.Errorf("%q: %q is neither an IP address nor a DNS name", endpoint, host)
	}
	return host, port, nil
}

// ServerURL is the address nodes use for the API: the control-plane endpoint
// where there is one, else this node's own.
func (c *Config) ServerURL() string {
	if c.ControlPlaneEndpoint != "" {
		if host, port, err := SplitEndpoint(c.ControlPlaneEndpoint, int(c.LocalAPIEndpoint.BindPort)); err == nil {
			return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
		}
	}
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress, strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}
