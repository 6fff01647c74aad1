package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of address ranges, from kubeadm's constants.go: an API server accepts at
// most 20 bits of Service addresses, cluster DNS gets the tenth of them, and a pod
// network is divided into node networks of /24 or /64, at most 2^16 of them.
const (
	maxServiceBits    = 20
	minServiceAddrs   = 10
	minPodAddrs       = 14
	nodeMaskIPv4      = 24
	nodeMaskIPv6      = 64
	maxNodeMaskSpread = 16
)

// cluster checks the configuration that all nodes share.
func (v *validator) cluster(c *Cluster, cni string) {
	at := func(path, flag string) place { return v.at("ClusterConfiguration."+path, flag) }
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
	v.kubeletFields(c)
	v.algorithm(at("encryptionAlgorithm", "the encryption algorithm"), c)
}

// kubeletFields checks that this version's kubelet has the fields in the
// configuration file.
func (v *validator) kubeletFields(c *Cluster) {
	if v.origin == nil || c.Minor() == 0 {
		return
	}
	for _, name := range keys(kubeletFieldSince) {
		path, since := "KubeletConfiguration."+name, kubeletFieldSince[name]
		if v.lines[path] > 0 && c.Minor() < since {
			v.addf("%s exists in the kubelet since v1.%d, and this is %s: remove it", v.at(path, path), since, c.KubernetesVersion)
		}
	}
}

// algorithms are kubeadm's; ECDSA-P384 was added in v1.34. It is also allowed in
// v1.29 and v1.30, whose API objects do not contain the algorithm.
var algorithms = []string{"ECDSA-P256", "ECDSA-P384", "RSA-2048", "RSA-3072", "RSA-4096"}

func (v *validator) algorithm(at place, c *Cluster) {
	switch a := c.EncryptionAlgorithm; {
	case a == "":
	case !slices.Contains(algorithms, a):
		v.addf("%s %q is not one of %s", at, a, strings.Join(algorithms, ", "))
	case a == "ECDSA-P384" && c.Minor() > 30 && c.Minor() < 34:
		v.addf("%s %q is not known to kubeadm %s, which could not read this cluster's configuration: it was added in v1.34", at, a, c.KubernetesVersion)
	}
}

func (v *validator) networking(c *Cluster, cni string) {
	at := func(field, flag string) place { return v.at("ClusterConfiguration.networking."+field, flag) }
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
	allocate, _ := LastArg(c.ControllerManager.ExtraArgs, "allocate-node-cidrs")
	for _, s := range pods {
		if bits := s.Addr().BitLen() - s.Bits(); bits < 62 && 1<<bits < minPodAddrs {
			v.addf("%s %s is too small: a cluster needs at least %d pod addresses", podAt, s, minPodAddrs)
		} else if allocate != "false" {
			v.nodeMask(podAt, s, c.ControllerManager.ExtraArgs)
		}
	}
	if cni == "flannel" && c.Networking.PodSubnet.Empty() {
		v.addf("%s is missing: the bundle's pod network (flannel) needs it", podAt)
	}
	for _, a := range pods {
		for _, b := range services {
			if a.Overlaps(b) {
				v.addf("%s %s and %s %s overlap", podAt, a, serviceAt, b)
			}
		}
	}
	if len(services) > 0 && len(pods) > 0 && !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return FamilyOf(p.Addr()) == c.Networking.Family() }) {
		v.addf("%s %s has no %s range, and the first Service range %s is %s: Services could not reach pods", podAt, c.Networking.PodSubnet, c.Networking.Family(), services[0], c.Networking.Family())
	}
	if domain := c.Networking.DNSDomain; !isHostName(domain) {
		v.addf("%s %q %s", at("dnsDomain", "--service-dns-domain"), domain, wrongName(domain))
	}
}

// nodeMask checks that the pod network can be divided into node networks.
func (v *validator) nodeMask(at place, pods netip.Prefix, args []Arg) {
	mask, name := nodeMaskIPv4, "node-cidr-mask-size-ipv4"
	if pods.Addr().Is6() {
		mask, name = nodeMaskIPv6, "node-cidr-mask-size-ipv6"
	}
	if set, ok := LastArg(args, name); ok && set != "" {
		var err error
		if mask, err = strconv.Atoi(set); err != nil {
			v.addf("%s: %s %q is not a number", v.at("ClusterConfiguration.controllerManager.extraArgs", "controllerManager.extraArgs"), name, set)
			return
		}
	}
	switch {
	case pods.Bits() > mask:
		v.addf("%s %s is too small: each node gets a /%d of it", at, pods, mask)
	case mask-pods.Bits() > maxNodeMaskSpread:
		v.addf("%s %s is too large: each node gets a /%d, and the prefix may be at most %d bits shorter", at, pods, mask, maxNodeMaskSpread)
	}
}

// LastArg is the value of a flag's last occurrence, which wins. The components of Kubernetes read _ in the name of a flag as -.
func LastArg(args []Arg, name string) (value string, ok bool) {
	for _, a := range args {
		if strings.ReplaceAll(a.Name, "_", "-") == name {
			value, ok = a.Value, true
		}
	}
	return value, ok
}

func (v *validator) repository(at place, repository string) {
	if repository != "" && !reference.ReferenceRegexp.MatchString(repository+"/name:tag") {
		v.addf("%s %q is not an image repository such as registry.example.com:5000/k8s", at, repository)
	}
}

func (v *validator) sans(path, flag string, sans []string) {
	for i, san := range sans {
		if net.ParseIP(san) == nil && !isHostName(san) && len(validation.IsWildcardDNS1123Subdomain(san)) > 0 {
			v.addf("%s %q %s", v.at(fmt.Sprintf("ClusterConfiguration.%s[%d]", path, i), flag), san, wrongName(san))
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
			v.addf("%s: the name %q is used twice", at, m.Name)
		}
		names[m.Name] = true
		if !filepath.IsAbs(m.HostPath) {
			v.addf("%s: hostPath %q is not an absolute path", at, m.HostPath)
		}
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
		at := v.at(field, "").or(v.at(path, path))
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
	at := func(field string) place { return v.at(path+field, "etcd."+field) }
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
		v.addf("%s must also have caFile, because it has certFile and keyFile", at("external"))
	}
	if len(x.Endpoints) == 0 {
		v.addf("%s is empty: give at least one, such as https://10.1.2.3:2379", at("external.endpoints"))
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
			v.addf("%s %q must begin with https://, because caFile, certFile or keyFile is given", at, s)
		case u.Host == "" && u.Scheme != "unix":
			v.addf("%s %q has no host: write https://HOST:2379", at, s)
		}
	}
}

// prefixes checks for one range, or two of different families.
func (v *validator) prefixes(at place, list CIDRs) []netip.Prefix {
	out := list.Prefixes()
	if list.Invalid() != "" {
		v.addf("%s %q is not an address range such as 10.0.0.0/16", at, list.Invalid())
		return nil
	}
	for _, prefix := range out {
		if prefix != prefix.Masked() {
			v.addf("%s %s has host bits set: write %s", at, prefix, prefix.Masked())
			return nil
		}
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		v.addf("%s %q: give one range, or one IPv4 and one IPv6 range", at, list)
		return nil
	}
	return out
}
