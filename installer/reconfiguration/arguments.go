package reconfiguration

import (
	"cmp"
	"slices"
	"strings"

	"airlift/installer/config"
)

// An Argument is a flag of a component whose change could make stored data unreadable, issued tokens invalid, or the nodes of a
// cluster strangers to each other. docs/reconfigure.md has the same table.
type Argument struct {
	Component string // the field of the ClusterConfiguration: "apiServer"
	Names     []string
	Rule      Rule
	Reason    string
	Needed    string
	// set returns what the component has without the argument, nil for nothing.
	set func(*config.Cluster) []string
}

// A Rule is how an Argument may change.
type Rule string

// Rules of arguments. A flag that is given several times, or has a list, has several values.
const (
	Same       Rule = "another value is refused"
	KeepsFirst Rule = "refused without the first former value; a warning without another former value, or if a new value is the first"
	KeepsOne   Rule = "refused without any former value; a warning without one of them"
	Keys       Rule = "refused if a key that signed, or that will sign, is in no service-account-key-file; a warning if another key is removed there, or if a new key signs"
	Providers  Rule = "refused if data was written, or could be, with a provider or key that an API server does not have"
	KeepsAll   Rule = "a warning without a former value"
	Warns      Rule = "a warning"
)

// What is needed instead of a change of tokens.
const (
	newKey    = "with several control planes, change it in two steps, each on all of them before the next: add the public key to service-account-key-file; then sign with the key"
	twoSteps  = "with several control planes, change it in two steps, each on all of them before the next: add the new value as the last one; then put it first"
	keepValue = "keep the former value: give the argument several times, the new value first; remove the former value when its tokens have expired, the tokens of pods after a year at most"
	keepKey   = "keep the public key: give service-account-key-file several times, one for each key; remove the former key when its tokens have expired, the tokens of pods after a year at most, and those in Secrets never"
	newTokens = "give those who use such tokens other credentials first"
)

// Arguments is the table of such arguments of kube-apiserver, kube-controller-manager and etcd of v1.37. kube-scheduler has none.
var Arguments = []Argument{
	{Component: "apiServer", Names: []string{"service-cluster-ip-range"}, Rule: Same, Reason: "each Service has an address of this range", Needed: newCluster},
	{Component: "apiServer", Names: []string{"etcd-servers", "etcd-prefix"}, Rule: Same, Reason: "the data of the cluster is there", Needed: newCluster},
	{Component: "apiServer", Names: []string{"etcd-servers-overrides"}, Rule: Same, Reason: "the objects of these resources stay in the former etcd, where the API server would not look for them", Needed: newCluster},
	{Component: "apiServer", Names: []string{"encryption-provider-config"}, Rule: Providers, Reason: "the API servers could not read that data", Needed: "go in steps, each on all control planes: add the new provider or key, put it first, write all data again, remove the old one"},
	{Component: "apiServer", Names: []string{"service-account-issuer"}, Rule: KeepsFirst, Reason: "API servers refuse tokens that were issued with another value", Needed: keepValue,
		set: issuers},
	{Component: "apiServer", Names: []string{"api-audiences"}, Rule: KeepsOne, Reason: "API servers refuse tokens that were issued for other audiences", Needed: keepValue,
		set: issuers},
	{Component: "apiServer", Names: []string{keyFile}, Rule: Keys, Reason: "API servers refuse tokens that another key has signed", Needed: keepKey,
		set: ofCertificates("sa.pub")},
	{Component: "apiServer", Names: []string{signingKeyFile}, Rule: Keys, Reason: "API servers refuse tokens that another key has signed", Needed: keepKey,
		set: ofCertificates("sa.key")},
	{Component: "controllerManager", Names: []string{privateKeyFile}, Rule: Keys, Reason: "API servers refuse tokens that another key has signed", Needed: keepKey,
		set: ofCertificates("sa.key")},
	{Component: "apiServer", Names: []string{"service-account-signing-endpoint"}, Rule: Same, Reason: "another program would sign tokens, and kube-apiserver does not start with it and the key files that kubeadm gives it", Needed: "leave it out"},
	{Component: "apiServer", Names: []string{"enable-bootstrap-token-auth"}, Rule: Warns, Reason: "without it, API servers refuse bootstrap tokens, and no host can join with one", Needed: "to let hosts join, leave it out",
		set: func(*config.Cluster) []string { return []string{"true"} }},
	{Component: "apiServer", Names: []string{"token-auth-file", "authentication-config", "authentication-token-webhook-config-file", "oidc-issuer-url", "oidc-client-id"}, Rule: KeepsAll, Reason: "API servers refuse the tokens of users that only the former value lets in", Needed: newTokens},
	{Component: "controllerManager", Names: []string{"legacy-service-account-token-clean-up-period"}, Rule: Warns, Reason: "tokens in Secrets that nobody used for this time are removed", Needed: newTokens,
		set: func(*config.Cluster) []string { return []string{"8760h0m0s"} }},
	{Component: "apiServer", Names: []string{"advertise-address", "secure-port"}, Rule: Same, Reason: "the certificate of this API server and its clients have its address", Needed: newNode},
	{Component: "apiServer", Names: []string{"client-ca-file", "tls-cert-file", "tls-private-key-file", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file", "kubelet-client-certificate", "kubelet-client-key"}, Rule: Same, Reason: "Airlift renews the certificates in certificatesDir", Needed: "leave it out"},
	{Component: "controllerManager", Names: []string{"cluster-signing-cert-file", "cluster-signing-key-file", "cluster-signing-kubelet-client-cert-file", "cluster-signing-kubelet-client-key-file", "cluster-signing-kube-apiserver-client-cert-file", "cluster-signing-kube-apiserver-client-key-file", "root-ca-file", "client-ca-file", "requestheader-client-ca-file"}, Rule: Same, Reason: "nodes and pods of the cluster know only the CA in certificatesDir", Needed: "leave it out"},
	{Component: "controllerManager", Names: []string{"cluster-cidr", "service-cluster-ip-range", "allocate-node-cidrs", "node-cidr-mask-size", "node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6"}, Rule: Same, Reason: "each node has a part of the range of the pods, which it keeps as long as it exists", Needed: newCluster},
	{Component: "controllerManager", Names: []string{"cluster-name"}, Rule: Same, Reason: "objects of cloud providers have the name of the cluster", Needed: newCluster},
	{Component: "etcd.local", Names: []string{"name", "data-dir", "initial-cluster", "initial-cluster-state", "initial-cluster-token", "initial-advertise-peer-urls", "listen-peer-urls", "advertise-client-urls"}, Rule: Same, Reason: "the members of etcd know each other by it", Needed: newNode},
	{Component: "etcd.local", Names: []string{"cert-file", "key-file", "trusted-ca-file", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file"}, Rule: Same, Reason: "Airlift renews the certificates in certificatesDir", Needed: "leave it out"},
	{Component: "etcd.local", Names: []string{"wal-dir"}, Rule: Same, Reason: "etcd would not find the log of its data in another directory, and would begin without data", Needed: newNode},
	{Component: "etcd.local", Names: []string{"config-file"}, Rule: Same, Reason: "with it, etcd ignores all other arguments, also the directory of its data", Needed: "write its values as extraArgs"},
	{Component: "etcd.local", Names: []string{"force-new-cluster"}, Rule: Same, Reason: "etcd would forget the other members, each time it starts", Needed: "leave it out; to restore a backup: ./install etcd restore FILE"},
	{Component: "etcd.local", Names: []string{"unsafe-no-fsync"}, Rule: Warns, Reason: "with it, etcd's data may be damaged after a power failure", Needed: "leave it out"},
}

// The arguments of Keys: with keyFile, API servers check tokens; with the others, the API server and the controller manager sign
// them.
const keyFile, signingKeyFile, privateKeyFile = "service-account-key-file", "service-account-signing-key-file", "service-account-private-key-file"

func ofCertificates(name string) func(*config.Cluster) []string {
	return func(c *config.Cluster) []string {
		return []string{cmp.Or(c.CertificatesDir, config.CertificatesDir) + "/" + name}
	}
}

// argument returns the row of an argument that has a value without being given.
func argument(name string) *Argument {
	return &Arguments[slices.IndexFunc(Arguments, func(a Argument) bool { return a.set != nil && slices.Contains(a.Names, name) })]
}

// issuers returns the issuers of tokens: kubeadm sets one. Without api-audiences, they are the audiences, too.
func issuers(c *config.Cluster) []string {
	if list := extra(c, "apiServer", "service-account-issuer"); list != nil {
		return list
	}
	return []string{"https://kubernetes.default.svc." + cmp.Or(c.Networking.DNSDomain, config.DefaultDNSDomain)}
}

// extra returns the values that the configuration gives to an argument.
func extra(c *config.Cluster, component, name string) (list []string) {
	for _, arg := range *argsOf(c, component) {
		if strings.ReplaceAll(arg.Name, "_", "-") == name {
			list = append(list, arg.Value)
		}
	}
	if c.Minor() == 31 { // kubeadm v1.31 sorts them
		slices.Sort(list)
	}
	return list
}

// values returns the values of an argument.
func (a *Argument) values(c *config.Cluster, name string) []string {
	list := extra(c, a.Component, name)
	switch {
	case list == nil && a.set != nil:
		return a.set(c)
	case a.Rule == KeepsOne: // a list
		return strings.Split(strings.Join(list, ","), ",")
	}
	return list
}

// check returns why another configuration of a running cluster cannot have the values of an argument, or what becomes of it. The
// rules Keys and Providers need files, and are not checked.
func (a *Argument) check(was, is *config.Cluster, name string) (refused, warned []Refusal) {
	former, next := a.values(was, name), a.values(is, name)
	of := func(reason, needed string) []Refusal {
		return []Refusal{{Field: clusterKind + "." + a.Component + ".extraArgs", From: name + "=" + strings.Join(former, ","), To: name + "=" + strings.Join(next, ","), Reason: reason, Needed: needed}}
	}
	stays := func(value string) bool { return slices.Contains(next, value) }
	switch {
	case slices.Equal(former, next) || a.Rule == Keys || a.Rule == Providers:
	case a.Rule == Same,
		a.Rule == KeepsFirst && !stays(former[0]),
		a.Rule == KeepsOne && !slices.ContainsFunc(former, stays):
		return of(a.Reason, a.Needed), nil
	case a.Rule == Warns:
		if next != nil && (a.set == nil || !slices.Equal(next, a.set(is))) {
			warned = of(a.Reason, a.Needed)
		}
	default:
		if slices.ContainsFunc(former, func(value string) bool { return !stays(value) }) {
			warned = of(a.Reason, a.Needed)
		}
		if a.Rule == KeepsFirst && !slices.Contains(former, next[0]) {
			warned = append(warned, of("API servers that have not followed refuse tokens with the new value, and all of them do after undo", twoSteps)...)
		}
	}
	return nil, warned
}

// checkArguments refuses arguments that a running cluster cannot change.
func (m *merge) checkArguments() {
	for i := range Arguments {
		for _, name := range Arguments[i].Names {
			refused, _ := Arguments[i].check(&m.stored, &m.cluster, name)
			for _, r := range refused {
				m.refuse(r.Field, r.From, r.To, r.Reason, r.Needed)
			}
		}
	}
}

// WarnOf returns what a running cluster can change, and what becomes of its tokens and data. was is the stored configuration, is what
// Merge returns.
func WarnOf(was, is *config.Cluster) (list []Refusal) {
	for i := range Arguments {
		for _, name := range Arguments[i].Names {
			_, warned := Arguments[i].check(was, is, name)
			list = append(list, warned...)
		}
	}
	return list
}
