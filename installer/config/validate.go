package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// messages are all errors, so that the user can correct them at once.
type messages []problems.Problem

// addf adds a problem at the first place among the arguments that the file has.
func (m *messages) addf(format string, args ...any) {
	var p problems.Problem
	for i, arg := range args {
		if at, ok := arg.(place); ok && p.Line == 0 && (p.Field == "" || at.line > 0) {
			p.File, p.Line, p.Field, args[i] = at.file, at.line, at.path, at.name
		}
	}
	p.Text = fmt.Sprintf(format, args...)
	*m = append(*m, p)
}

// Wrong returns problems as one error (fault.Usage), nil if there are none.
func Wrong(list []problems.Problem) error { return messages(list).err() }

// err is nil when there is no problem.
func (m messages) err() error {
	var lines []string
	for _, p := range m {
		text := p.String()
		if len(m) == 1 {
			text = p.Text
		}
		if p.Line > 0 {
			text = fmt.Sprintf("%s:%d: %s", p.File, p.Line, text)
		}
		lines = append(lines, text)
	}
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Usage, "%s", lines[0]).Hint(m[0].Hint)
	}
	return fault.New(fault.Usage, "%d values are not valid:\n  - %s", len(lines), strings.Join(lines, "\n  - "))
}

// validator checks one Config or Reset. Every message begins with the place of
// the value: its line in the configuration file, or its flag.
type validator struct {
	messages
	*origin
}

// ValidateInit checks a completed Config for init: everything that kubeadm checks
// (validation.go of v1.29 and v1.37), and values that would fail later. The error
// (fault.Usage) lists every problem with its place or flag.
func (c *Config) ValidateInit() error { return messages(c.CheckInit()).err() }

// CheckInit is ValidateInit with the problems one by one.
func (c *Config) CheckInit() []problems.Problem {
	v := &validator{origin: c.origin}
	const kind = "InitConfiguration"
	v.node(kind, &c.NodeRegistration)
	v.cluster(&c.Cluster, c.CNI)
	v.localEndpoint(kind+".localAPIEndpoint", c)
	v.tokens(c.BootstrapTokens)
	v.certificateKey(kind+".certificateKey", c.CertificateKey)
	v.extensions(c)
	return v.messages
}

// ValidateJoin checks a completed Config for join.
func (c *Config) ValidateJoin() error { return messages(c.CheckJoin()).err() }

// CheckJoin is ValidateJoin with the problems one by one.
func (c *Config) CheckJoin() []problems.Problem {
	v := &validator{origin: c.origin}
	const kind = "JoinConfiguration"
	v.node(kind, &c.NodeRegistration)
	v.discovery(&c.Discovery)
	if path := c.CACertPath; !filepath.IsAbs(path) || filepath.Ext(path) != ".crt" {
		v.addf("%s %q must be an absolute path that ends in .crt", v.at(kind+".caCertPath", "the CA certificate's path"), path)
	}
	if c.ControlPlane {
		v.advertised(kind+".controlPlane.localAPIEndpoint", c.LocalAPIEndpoint)
		v.certificateKey(kind+".controlPlane.certificateKey", c.CertificateKey)
	}
	v.extensions(c)
	return v.messages
}

// ValidateReset checks a completed Reset.
func (r *Reset) ValidateReset() error { return messages(r.Check()).err() }

// Check is ValidateReset with the problems one by one.
func (r *Reset) Check() []problems.Problem {
	v := &validator{origin: r.origin}
	const kind = "ResetConfiguration."
	v.socket(v.at(kind+"criSocket", "--cri-socket"), r.CRISocket)
	v.absolute(v.at(kind+"certificatesDir", "--cert-dir"), r.CertificatesDir)
	v.ignored(v.at(kind+"ignorePreflightErrors", "--ignore-preflight-errors"), r.IgnorePreflightErrors)
	for i, flag := range r.UnmountFlags {
		if !slices.Contains(unmountFlags, flag) {
			v.addf("%s %q is not one of %s", v.at(fmt.Sprintf("%sunmountFlags[%d]", kind, i), "the unmount flag"), flag, strings.Join(unmountFlags, ", "))
		}
	}
	return v.messages
}

// Validate checks an UpgradeConfiguration.
func (u *Upgrade) Validate() error { return messages(u.Check()).err() }

// Check is Validate with the problems one by one.
func (u *Upgrade) Check() []problems.Problem {
	v := &validator{origin: u.origin}
	for part, given := range map[string]struct {
		policy  corev1.PullPolicy
		patches *patches
	}{"apply": {u.wire.Apply.ImagePullPolicy, u.wire.Apply.Patches}, "node": {u.wire.Node.ImagePullPolicy, u.wire.Node.Patches}} {
		path := "UpgradeConfiguration." + part
		v.pullPolicy(v.at(path+".imagePullPolicy", path), given.policy)
		if given.patches != nil {
			v.absolute(v.at(path+".patches.directory", path).or(v.at(path+".patches", path)), given.patches.Directory)
		}
	}
	slices.SortFunc(v.messages, func(x, y problems.Problem) int { return cmp.Compare(x.Field, y.Field) })
	return v.messages
}

// unmountFlags are the flags of umount(2) that kubeadm allows.
var unmountFlags = []string{"MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW"}

// Warnings are lines for the user about a valid, completed Config for init.
func (c *Config) Warnings() (lines []string) {
	warn := func(path, format string, args ...any) {
		lines = append(lines, c.origin.at("ClusterConfiguration."+path, path).String()+" "+fmt.Sprintf(format, args...))
	}
	leaf, ca := c.CertificateValidityPeriod, c.CACertificateValidityPeriod
	if leaf > ca && ca > 0 {
		warn("certificateValidityPeriod", "%s is longer than the validity of the CA certificates, %s: the certificates do not work after their CA has expired", leaf, ca)
	}
	if leaf > CertificateValidity {
		warn("certificateValidityPeriod", "%s is more than the recommended %s", leaf, CertificateValidity)
	}
	if ca > CACertificateValidity {
		warn("caCertificateValidityPeriod", "%s is more than the recommended %s", ca, CACertificateValidity)
	}
	siteLocal := netip.MustParsePrefix("fec0::/10")
	for path, list := range map[string]CIDRs{"networking.podSubnet": c.Networking.PodSubnet, "networking.serviceSubnet": c.Networking.ServiceSubnet} {
		for _, p := range list.Prefixes() {
			if p.Overlaps(siteLocal) {
				warn(path, "%s has IPv6 site-local addresses, which RFC 3879 deprecated", p)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

var certificateKey = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (v *validator) certificateKey(path, key string) {
	if key != "" && !certificateKey.MatchString(key) {
		v.addf("%s must be 64 hexadecimal digits", v.at(path, "--certificate-key"))
	}
}

// localEndpoint checks the address of the first control plane. It must not be in
// one of the cluster's ranges, and it must have the family of the first Service
// range: otherwise the API server does not start.
func (v *validator) localEndpoint(path string, c *Config) {
	addr := v.advertised(path, c.LocalAPIEndpoint)
	if !addr.IsValid() {
		return
	}
	var ranges []netip.Prefix
	for _, r := range c.Networking.Ranges() {
		ranges = append(ranges, r.Prefix)
	}
	for _, r := range c.Networking.Ranges() {
		if r.Contains(addr) {
			v.addf("%s, this host's address, is in the cluster's range of %s addresses, %s %s: %s", addr, r.Of,
				v.at("ClusterConfiguration."+r.Field, r.Flag), r.Prefix, r.Another(append(ranges, netip.PrefixFrom(addr, addr.BitLen()))...))
		}
	}
	if services := c.Networking.ServiceSubnet.Prefixes(); len(services) > 0 && FamilyOf(services[0].Addr()) != FamilyOf(addr) {
		v.addf("%s %s is an %s address and %s %s is an %s range: the API server needs an address of the family of the first Service range",
			v.at(path+".advertiseAddress", "--apiserver-advertise-address"), addr, FamilyOf(addr),
			v.at("ClusterConfiguration.networking.serviceSubnet", "--service-cidr"), services[0], FamilyOf(services[0].Addr()))
	}
}

// advertised checks where an API server listens. It returns the zero address if
// the address is not valid.
func (v *validator) advertised(path string, e APIEndpoint) (addr netip.Addr) {
	at := v.at(path+".advertiseAddress", "--apiserver-advertise-address")
	addr, err := netip.ParseAddr(e.AdvertiseAddress)
	switch {
	case err != nil:
		v.addf("%s %q is not an IP address", at, e.AdvertiseAddress)
	case addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast():
		v.addf("%s %s cannot be reached by other hosts", at, addr)
		addr = netip.Addr{}
	}
	if e.BindPort < 1 || e.BindPort > 65535 {
		v.addf("%s %d is not between 1 and 65535", v.at(path+".bindPort", "--apiserver-bind-port"), e.BindPort)
	}
	return addr
}

func (v *validator) tokens(tokens []BootstrapToken) {
	ids := map[string]bool{}
	for i, t := range tokens {
		path := fmt.Sprintf("InitConfiguration.bootstrapTokens[%d]", i)
		at := v.at(path, "--token")
		v.token(v.at(path+".token", "--token"), t.Token)
		if id, _, _ := strings.Cut(t.Token, "."); ids[id] {
			v.addf("%s: the token ID %q is used twice", at, id)
		} else {
			ids[id] = true
		}
		if t.TTL < 0 {
			v.addf("%s %s is negative; 0 makes a token that never expires", v.at(path+".ttl", "--token-ttl"), t.TTL)
		}
		if err := bootstraputil.ValidateUsages(t.Usages); err != nil {
			v.addf("%s: %v", v.at(path+".usages", "").or(at), err)
		}
		if len(t.Groups) > 0 && len(t.Usages) > 0 && !slices.Contains(t.Usages, "authentication") {
			v.addf("%s: a token has groups only if its usages include authentication", v.at(path+".groups", "").or(at))
		}
		for j, group := range t.Groups {
			if err := bootstraputil.ValidateBootstrapGroupName(group); err != nil {
				v.addf("%s: %v", v.at(fmt.Sprintf("%s.groups[%d]", path, j), "").or(at), err)
			}
		}
	}
}

func (v *validator) node(kind string, n *NodeRegistration) {
	path := kind + ".nodeRegistration"
	if msgs := validation.IsDNS1123Subdomain(n.Name); len(msgs) > 0 {
		v.addf("%s %q: %s; set one with --node-name", v.at(path+".name", "node name"), n.Name, msgs[0])
	}
	v.socket(v.at(path+".criSocket", "--cri-socket"), n.CRISocket)
	v.args(path+".kubeletExtraArgs", n.KubeletExtraArgs)
	v.ignored(v.at(path+".ignorePreflightErrors", "--ignore-preflight-errors"), n.IgnorePreflightErrors)
	v.pullPolicy(v.at(path+".imagePullPolicy", "the image pull policy"), n.ImagePullPolicy)
	for i, t := range n.Taints {
		at := v.at(fmt.Sprintf("%s.taints[%d]", path, i), "the taint "+t.ToString())
		if msgs := validation.IsQualifiedName(t.Key); len(msgs) > 0 {
			v.addf("%s: key %q: %s", at, t.Key, msgs[0])
		}
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			v.addf("%s: value %q: %s", at, t.Value, msgs[0])
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			v.addf("%s: effect %q is not NoSchedule, PreferNoSchedule or NoExecute", at, t.Effect)
		}
	}
}

func (v *validator) pullPolicy(at place, policy corev1.PullPolicy) {
	switch policy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		v.addf("%s %q is not Always, IfNotPresent or Never", at, policy)
	}
}

func (v *validator) ignored(at place, checks []string) {
	isAll := func(check string) bool { return strings.EqualFold(check, "all") }
	if slices.ContainsFunc(checks, isAll) && slices.ContainsFunc(checks, func(check string) bool { return !isAll(check) }) {
		v.addf("%s: all cannot be combined with the names of checks", at)
	}
}

// socket checks a container runtime's socket, which is always a path on this host.
func (v *validator) socket(at place, socket string) {
	if !strings.HasPrefix(socket, "unix:///") {
		v.addf("%s %q must be unix:// and an absolute path", at, socket)
	}
}

func (v *validator) absolute(at place, path string) {
	if !filepath.IsAbs(path) {
		v.addf("%s %q is not an absolute path", at, path)
	}
}

// extensions checks the fields that kubeadm does not have.
func (v *validator) extensions(c *Config) {
	v.endpoint(c)
	v.registry(c)
	if c.ProxyServer == "" {
		return
	}
	if u, err := url.Parse(c.ProxyServer); err != nil || u.Scheme != "https" || u.Host == "" {
		v.addf("--kube-proxy-server %q is not a URL such as https://10.1.2.3:6443", c.ProxyServer)
	}
}

func (v *validator) token(at place, token string) {
	switch {
	case token == "":
		v.addf("%s is missing", at)
	case !bootstraputil.IsValidBootstrapToken(token):
		v.addf("%s must look like abcdef.0123456789abcdef (6 and 16 lower-case letters or digits)", at)
	}
}
