package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
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
	minPodAddrs       = 14
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

// validator checks one Config or Reset. Every message begins with the place of
// the value: where in the config file it was written, or its flag.
type validator struct {
	problems
	*origin
}

// ValidateInit checks a completed Config for init: all that kubeadm checks
// (validation.go of v1.29 and v1.37), and what would only fail later. The error
// (fault.Usage) names every problem and the place or flag it belongs to.
func (c *Config) ValidateInit() error {
	v := &validator{origin: c.origin}
	const kind = "InitConfiguration"
	v.node(kind, &c.NodeRegistration)
	v.cluster(&c.Cluster, c.CNI)
	v.localEndpoint(kind+".localAPIEndpoint", c)
	v.tokens(c.BootstrapTokens)
	v.certificateKey(kind+".certificateKey", c.CertificateKey)
	v.extensions(c)
	return v.err()
}

// ValidateJoin checks a completed Config for join.
func (c *Config) ValidateJoin() error {
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
	return v.err()
}

// ValidateReset checks a completed Reset.
func (r *Reset) ValidateReset() error {
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
	return v.err()
}

// Validate checks an UpgradeConfiguration.
func (u *Upgrade) Validate() error {
	v := &validator{origin: u.origin}
	for part, said := range map[string]struct {
		policy  corev1.PullPolicy
		patches *wirePatches
	}{"apply": {u.wire.Apply.ImagePullPolicy, u.wire.Apply.Patches}, "node": {u.wire.Node.ImagePullPolicy, u.wire.Node.Patches}} {
		path := "UpgradeConfiguration." + part
		v.pullPolicy(v.at(path+".imagePullPolicy", path), said.policy)
		if said.patches != nil {
			v.absolute(v.at(path+".patches.directory", v.at(path+".patches", path)), said.patches.Directory)
		}
	}
	slices.Sort(v.problems)
	return v.err()
}

// unmountFlags are those of umount(2) that kubeadm lets be asked for.
var unmountFlags = []string{"MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW"}

// Warnings are lines for the user about a valid, completed Config for init.
func (c *Config) Warnings() (lines []string) {
	warn := func(path, format string, args ...any) {
		lines = append(lines, c.origin.at("ClusterConfiguration."+path, path)+" "+fmt.Sprintf(format, args...))
	}
	leaf, ca := c.CertificateValidityPeriod, c.CACertificateValidityPeriod
	if leaf > ca && ca > 0 {
		warn("certificateValidityPeriod", "%s is longer than the CA certificates live, %s: no certificate outlives its CA", leaf, ca)
	}
	if leaf > CertificateValidity {
		warn("certificateValidityPeriod", "%s is more than the recommended %s", leaf, CertificateValidity)
	}
	if ca > CACertificateValidity {
		warn("caCertificateValidityPeriod", "%s is more than the recommended %s", ca, CACertificateValidity)
	}
	siteLocal := netip.MustParsePrefix("fec0::/10")
	for path, list := range map[string]string{"networking.podSubnet": c.Networking.PodSubnet, "networking.serviceSubnet": c.Networking.ServiceSubnet} {
		for _, s := range strings.Split(list, ",") {
			if p, err := netip.ParsePrefix(s); err == nil && p.Overlaps(siteLocal) {
				warn(path, "%s has IPv6 site-local addresses, which RFC 3879 deprecated", p)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// cluster checks what all nodes share.
func (v *validator) cluster(c *Cluster, cni string) {
	at := func(path, flag string) string { return v.at("ClusterConfiguration."+path, flag) }
	v.networking(c, cni)
	if e := c.ControlPlaneEndpoint; e != "" {
		if _, _, err := SplitEndpoint(e, 0); err != nil {
			v.addf("%s %s", at("controlPlaneEndpoint", "--control-plane-endpoint"), err)
		}
	}
	v.absolute(at("certificatesDir", "--cert-dir"), c.CertificatesDir)
	v.repository(at("imageRepository", "--image-repository"), c.ImageRepository)
	v.repository(at("dns.imageRepository", "dns.imageRepository"), c.DNS.ImageRepository)
	v.sans("apiServer.certSANs", "--apiserver-cert-extra-sans", c.APIServer.CertSANs)
	v.component("apiServer", &c.APIServer.Component)
	v.component("controllerManager", &c.ControllerManager)
	v.component("scheduler", &c.Scheduler)
	v.etcd(&c.Etcd)
	v.gates(c)
	v.algorithm(at("encryptionAlgorithm", "the encryption algorithm"), c)
}

// algorithms are kubeadm's; ECDSA-P384 came in v1.34. The API objects of v1.29
// and v1.30 do not record it, so that there no kubeadm can stumble over it.
var algorithms = []string{"ECDSA-P256", "ECDSA-P384", "RSA-2048", "RSA-3072", "RSA-4096"}

func (v *validator) algorithm(at string, c *Cluster) {
	switch a := c.EncryptionAlgorithm; {
	case a == "":
	case !slices.Contains(algorithms, a):
		v.addf("%s %q is not one of %s", at, a, strings.Join(algorithms, ", "))
	case a == "ECDSA-P384" && c.Minor() > 30 && c.Minor() < 34:
		v.addf("%s %q is not known to kubeadm %s, which could not read this cluster's configuration: it came in v1.34", at, a, c.KubernetesVersion)
	}
}

func (v *validator) networking(c *Cluster, cni string) {
	at := func(field, flag string) string { return v.at("ClusterConfiguration.networking."+field, flag) }
	serviceAt, podAt := at("serviceSubnet", "--service-cidr"), at("podSubnet", "--pod-network-cidr")
	services := v.prefixes(serviceAt, c.Networking.ServiceSubnet)
	for _, s := range services {
		if bits := s.Addr().BitLen() - s.Bits(); bits > maxServiceBits {
			v.addf("%s %s is too large: the prefix must be /%d or longer", serviceAt, s, s.Addr().BitLen()-maxServiceBits)
		} else if bits < 62 && 1<<bits < minServiceAddrs {
			v.addf("%s %s is too small: cluster DNS needs the tenth address", serviceAt, s)
		}
	}
	pods := v.prefixes(podAt, c.Networking.PodSubnet)
	allocate, _ := lastArg(c.ControllerManager.ExtraArgs, "allocate-node-cidrs")
	for _, s := range pods {
		if bits := s.Addr().BitLen() - s.Bits(); bits < 62 && 1<<bits < minPodAddrs {
			v.addf("%s %s is too small: a cluster needs %d pod addresses at the least", podAt, s, minPodAddrs)
		} else if allocate != "false" {
			v.nodeMask(podAt, s, c.ControllerManager.ExtraArgs)
		}
	}
	if cni == "flannel" && c.Networking.PodSubnet == "" {
		v.addf("%s is missing: the bundle's pod network (flannel) needs it", podAt)
	}
	for _, a := range pods {
		for _, b := range services {
			if a.Overlaps(b) {
				v.addf("%s %s and %s %s overlap", podAt, a, serviceAt, b)
			}
		}
	}
	if msgs := validation.IsDNS1123Subdomain(c.Networking.DNSDomain); len(msgs) > 0 {
		v.addf("%s %q: %s", at("dnsDomain", "--service-dns-domain"), c.Networking.DNSDomain, msgs[0])
	}
}

// nodeMask checks that the pod network can be cut into nodes' networks.
func (v *validator) nodeMask(at string, pods netip.Prefix, args []Arg) {
	mask, name := nodeMaskIPv4, "node-cidr-mask-size-ipv4"
	if pods.Addr().Is6() {
		mask, name = nodeMaskIPv6, "node-cidr-mask-size-ipv6"
	}
	if set, ok := lastArg(args, name); ok && set != "" {
		var err error
		if mask, err = strconv.Atoi(set); err != nil {
			v.addf("%s: %s %q is not a number", v.at("ClusterConfiguration.controllerManager.extraArgs", "controllerManager.extraArgs"), name, set)
			return
		}
	}
	switch {
	case pods.Bits() > mask:
		v.addf("%s %s is too small: each node takes a /%d of it", at, pods, mask)
	case mask-pods.Bits() > maxNodeMaskSpread:
		v.addf("%s %s is too large: each node takes a /%d, and the prefix may be at most %d bits shorter", at, pods, mask, maxNodeMaskSpread)
	}
}

// lastArg is the value of the flag's last mention, the one that holds.
func lastArg(args []Arg, name string) (value string, ok bool) {
	for _, a := range args {
		if a.Name == name {
			value, ok = a.Value, true
		}
	}
	return value, ok
}

func (v *validator) repository(at, repository string) {
	if repository != "" && !reference.ReferenceRegexp.MatchString(repository+"/name:tag") {
		v.addf("%s %q is not the beginning of an image's name, such as registry.example.com:5000/k8s", at, repository)
	}
}

func (v *validator) sans(path, flag string, sans []string) {
	for i, san := range sans {
		if net.ParseIP(san) == nil && len(validation.IsDNS1123Subdomain(san)) > 0 && len(validation.IsWildcardDNS1123Subdomain(san)) > 0 {
			v.addf("%s %q is neither an IP address nor a DNS name", v.at(fmt.Sprintf("ClusterConfiguration.%s[%d]", path, i), flag), san)
		}
	}
}

func (v *validator) component(name string, c *Component) {
	path := "ClusterConfiguration." + name
	v.args(path+".extraArgs", c.ExtraArgs)
	v.envs(path+".extraEnvs", c.ExtraEnvs)
	names := map[string]bool{}
	for i, m := range c.ExtraVolumes {
		field := fmt.Sprintf("%s.extraVolumes[%d]", path, i)
		at := v.at(field, field)
		if msgs := validation.IsDNS1123Label(m.Name); len(msgs) > 0 {
			v.addf("%s: name %q: %s", at, m.Name, msgs[0])
		} else if names[m.Name] {
			v.addf("%s: the name %q is there twice", at, m.Name)
		}
		names[m.Name] = true
		v.absolute(at+": hostPath", m.HostPath)
		if m.MountPath == "" || strings.Contains(m.MountPath, ":") {
			v.addf("%s: mountPath %q must be a path in the container, without a colon", at, m.MountPath)
		}
		if !slices.Contains(hostPathTypes, m.PathType) {
			v.addf("%s: pathType %q is not one of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice", at, m.PathType)
		}
	}
}

var hostPathTypes = []corev1.HostPathType{
	corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
	corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev,
}

func (v *validator) args(path string, args []Arg) {
	for i, a := range args {
		field := fmt.Sprintf("%s[%d]", path, i)
		at := v.at(field, v.at(path, path))
		switch {
		case a.Name == "":
			v.addf("%s has no name", at)
		case strings.HasPrefix(a.Name, "-"):
			v.addf("%s: write the name without dashes, %q", at, strings.TrimLeft(a.Name, "-"))
		}
		if a.MergeMethod != "" && a.MergeMethod != "append" && a.MergeMethod != "prepend" {
			v.addf("%s: mergeMethod %q of %q is not append or prepend", at, a.MergeMethod, a.Name)
		}
	}
}

func (v *validator) envs(path string, envs []corev1.EnvVar) {
	for i, e := range envs {
		if msgs := validation.IsRelaxedEnvVarName(e.Name); len(msgs) > 0 {
			field := fmt.Sprintf("%s[%d]", path, i)
			v.addf("%s: name %q: %s", v.at(field, field), e.Name, msgs[0])
		}
	}
}

func (v *validator) etcd(e *Etcd) {
	const path = "ClusterConfiguration.etcd."
	at := func(field string) string { return v.at(path+field, "etcd."+field) }
	x := e.External
	if x == nil {
		v.absolute(at("local.dataDir"), e.Local.DataDir)
		v.sans("etcd.local.serverCertSANs", "etcd.local.serverCertSANs", e.Local.ServerCertSANs)
		v.sans("etcd.local.peerCertSANs", "etcd.local.peerCertSANs", e.Local.PeerCertSANs)
		v.args(path+"local.extraArgs", e.Local.ExtraArgs)
		v.envs(path+"local.extraEnvs", e.Local.ExtraEnvs)
		v.repository(at("local.imageRepository"), e.Local.ImageRepository)
		return
	}
	if (x.CertFile == "") != (x.KeyFile == "") {
		v.addf("%s must have both certFile and keyFile, or neither", at("external"))
	}
	if x.CertFile != "" && x.KeyFile != "" && x.CAFile == "" {
		v.addf("%s must have caFile, too, since it has certFile and keyFile", at("external"))
	}
	if len(x.Endpoints) == 0 {
		v.addf("%s is empty: name at least one, such as https://10.1.2.3:2379", at("external.endpoints"))
	}
	v.urls(path+"external.endpoints", x.Endpoints, x.CAFile+x.CertFile+x.KeyFile != "")
	v.urls(path+"external.httpEndpoints", x.HTTPEndpoints, false)
	for field, file := range map[string]string{"caFile": x.CAFile, "certFile": x.CertFile, "keyFile": x.KeyFile} {
		if file != "" {
			v.absolute(at("external."+field), file)
		}
	}
}

func (v *validator) urls(path string, urls []string, https bool) {
	for i, s := range urls {
		field := fmt.Sprintf("%s[%d]", path, i)
		at := v.at(field, field)
		u, err := url.Parse(s)
		switch {
		case err != nil:
			v.addf("%s %q is not a URL: %v", at, s, err)
		case u.Scheme == "":
			v.addf("%s %q has no scheme: write https://%s", at, s, s)
		case https && u.Scheme != "https":
			v.addf("%s %q must begin with https://, since caFile, certFile or keyFile is given", at, s)
		case u.Host == "" && u.Scheme != "unix":
			v.addf("%s %q has no host: write https://HOST:2379", at, s)
		}
	}
}

var certificateKey = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func (v *validator) certificateKey(path, key string) {
	if key != "" && !certificateKey.MatchString(key) {
		v.addf("%s must be 64 hexadecimal digits", v.at(path, "--certificate-key"))
	}
}

// localEndpoint checks the address of the first control plane, which must not
// be one of the cluster's own.
func (v *validator) localEndpoint(path string, c *Config) {
	addr := v.advertised(path, c.LocalAPIEndpoint)
	if !addr.IsValid() {
		return
	}
	for _, s := range strings.Split(c.Networking.PodSubnet+","+c.Networking.ServiceSubnet, ",") {
		if p, err := netip.ParsePrefix(s); err == nil && p.Contains(addr) {
			v.addf("%s, this host's address, lies inside the cluster's own range %s: choose another %s or %s", addr, p,
				v.at("ClusterConfiguration.networking.podSubnet", "--pod-network-cidr"), v.at("ClusterConfiguration.networking.serviceSubnet", "--service-cidr"))
		}
	}
}

// advertised checks where an API server listens. The address is invalid when it
// was found wrong.
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
			v.addf("%s: the first half of the token, %q, is there twice", at, id)
		} else {
			ids[id] = true
		}
		if t.TTL < 0 {
			v.addf("%s %s is negative; 0 makes a token that never expires", v.at(path+".ttl", "--token-ttl"), t.TTL)
		}
		if err := bootstraputil.ValidateUsages(t.Usages); err != nil {
			v.addf("%s: %v", v.at(path+".usages", at), err)
		}
		if len(t.Groups) > 0 && len(t.Usages) > 0 && !slices.Contains(t.Usages, "authentication") {
			v.addf("%s: a token has groups only if its usages include authentication", v.at(path+".groups", at))
		}
		for j, group := range t.Groups {
			if err := bootstraputil.ValidateBootstrapGroupName(group); err != nil {
				v.addf("%s: %v", v.at(fmt.Sprintf("%s.groups[%d]", path, j), at), err)
			}
		}
	}
}

func (v *validator) discovery(d *Discovery) {
	const path = "JoinConfiguration.discovery"
	if d.File != "" {
		v.discoveryFile(v.at(path+".file.kubeConfigPath", "--discovery-file"), d.File)
	} else {
		v.discoveryToken(path+".bootstrapToken", d)
	}
	if d.TLSBootstrapToken != d.Token {
		v.token(v.at(path+".tlsBootstrapToken", "--tls-bootstrap-token"), d.TLSBootstrapToken)
	}
}

func (v *validator) discoveryFile(at, file string) {
	u, err := url.Parse(file)
	switch {
	case err != nil:
		v.addf("%s %q is neither a path nor an https:// URL", at, file)
	case u.Scheme == "":
		// Without a config file the path may be one that Airlift chose.
		if _, err := os.Stat(file); v.origin != nil && errors.Is(err, fs.ErrNotExist) {
			v.addf("%s: there is no file %q", at, file)
		}
	case u.Scheme != "https":
		v.addf("%s %q must be a path or begin with https://", at, file)
	}
}

func (v *validator) discoveryToken(path string, d *Discovery) {
	at := v.at(path+".apiServerEndpoint", "the API server's address")
	if d.APIServerEndpoint == "" {
		if v.origin != nil {
			v.addf("%s: %s.apiServerEndpoint is missing: write HOST:6443", v.file, path)
		} else {
			v.addf("the API server's address is missing: ./install join HOST:6443 --token …")
		}
	} else if _, port, err := SplitEndpoint(d.APIServerEndpoint, 0); err != nil {
		v.addf("%s %s", at, err)
	} else if port == 0 {
		v.addf("%s %q has no port: write %s", at, d.APIServerEndpoint, net.JoinHostPort(strings.Trim(d.APIServerEndpoint, "[]"), strconv.Itoa(DefaultBindPort)))
	}
	v.token(v.at(path+".token", "--token"), d.Token)
	if len(d.CACertHashes) == 0 && !d.UnsafeSkipCAVerification {
		v.addf("%s is missing; without it anyone who answers at that address would be trusted (%s accepts that)",
			v.at(path+".caCertHashes", "--discovery-token-ca-cert-hash"),
			v.at(path+".unsafeSkipCAVerification", "--discovery-token-unsafe-skip-ca-verification"))
	}
	for i, h := range d.CACertHashes {
		if !caCertHash.MatchString(h) {
			v.addf("%s %q is not sha256: and 64 hexadecimal digits", v.at(fmt.Sprintf("%s.caCertHashes[%d]", path, i), "--discovery-token-ca-cert-hash"), h)
		}
	}
}

var caCertHash = regexp.MustCompile(`^sha256:[0-9a-fA-F]{64}$`)

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

func (v *validator) pullPolicy(at string, policy corev1.PullPolicy) {
	switch policy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		v.addf("%s %q is not Always, IfNotPresent or Never", at, policy)
	}
}

func (v *validator) ignored(at string, checks []string) {
	isAll := func(check string) bool { return strings.EqualFold(check, "all") }
	if slices.ContainsFunc(checks, isAll) && slices.ContainsFunc(checks, func(check string) bool { return !isAll(check) }) {
		v.addf("%s: all stands alone, without the names of single checks", at)
	}
}

// socket checks a container runtime's, which is always a path on this host.
func (v *validator) socket(at, socket string) {
	if !strings.HasPrefix(socket, "unix:///") {
		v.addf("%s %q must be unix:// and an absolute path", at, socket)
	}
}

func (v *validator) absolute(at, path string) {
	if !filepath.IsAbs(path) {
		v.addf("%s %q is not an absolute path", at, path)
	}
}

// extensions checks what Airlift has and kubeadm has not.
func (v *validator) extensions(c *Config) {
	if c.ProxyServer == "" {
		return
	}
	if u, err := url.Parse(c.ProxyServer); err != nil || u.Scheme != "https" || u.Host == "" {
		v.addf("--kube-proxy-server %q is not a URL such as https://10.1.2.3:6443", c.ProxyServer)
	}
}

func (v *validator) token(at, token string) {
	switch {
	case token == "":
		v.addf("%s is missing", at)
	case !bootstraputil.IsValidBootstrapToken(token):
		v.addf("%s must look like abcdef.0123456789abcdef (6 and 16 lower-case letters or digits)", at)
	}
}

// prefixes parses one range, or two of different families separated by a comma.
func (v *validator) prefixes(at, list string) []netip.Prefix {
	if list == "" {
		return nil
	}
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			v.addf("%s %q is not an address range such as 10.0.0.0/16", at, s)
			return nil
		}
		if prefix != prefix.Masked() {
			v.addf("%s %s has host bits set: write %s", at, prefix, prefix.Masked())
			return nil
		}
		out = append(out, prefix)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		v.addf("%s %q: give one range, or one IPv4 and one IPv6 range", at, list)
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
