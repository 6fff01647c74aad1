package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A file is the cluster.yaml that is written. Its order is the one of the fields.
type file struct {
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Name       string    `yaml:"name"`
	Hosts      []host    `yaml:"hosts"`
	Groups     []group   `yaml:"groups,omitempty"`
	Endpoint   *endpoint `yaml:"endpoint,omitempty"`
	Roll       *roll     `yaml:"roll,omitempty"`
}

type host struct {
	Name    string            `yaml:"name"`
	Role    string            `yaml:"role"`
	Address string            `yaml:"address,omitempty"`
	NodeIP  string            `yaml:"nodeIP,omitempty"`
	SSH     *ssh              `yaml:"ssh,omitempty"`
	Labels  map[string]string `yaml:"labels,omitempty"`
	Taints  *[]string         `yaml:"taints,omitempty,flow"`
}

type ssh struct {
	Address string   `yaml:"address,omitempty"` // of a jump host
	User    string   `yaml:"user,omitempty"`
	Port    int      `yaml:"port,omitempty"`
	KeyPath string   `yaml:"keyPath,omitempty"`
	HostKey string   `yaml:"hostKey,omitempty"`
	Jump    []ssh    `yaml:"jump,omitempty"`
	OpenSSH bool     `yaml:"openSSH,omitempty"`
	Options []string `yaml:"options,omitempty,flow"`
}

type group struct {
	Name string            `yaml:"name"`
	Roll map[string]string `yaml:"roll"`
}

type endpoint struct {
	VIP      []string `yaml:"vip,omitempty,flow"`
	Balancer bool     `yaml:"balancer,omitempty"`
	Address  string   `yaml:"address,omitempty"`
}

type roll struct {
	Drain        *bool  `yaml:"drain,omitempty"`
	DrainTimeout string `yaml:"drainTimeout,omitempty"`
}

const (
	controlPlane = "control-plane"
	worker       = "worker"
)

// hints are for parts of k0sctl's file that have no counterpart, by the end of the path.
var hints = []struct {
	path *regexp.Regexp
	hint string
}{
	{regexp.MustCompile(`(^|\.)(password|token|clientKey|privateKey)$`), "cluster.yaml has no secrets: the commands ask on the terminal"},
	{regexp.MustCompile(`\.k0s\.version(Channel)?$`), "the version is the version of the file: ./install version"},
	{regexp.MustCompile(`\.hooks\b`), "Airlift runs no commands on hosts; roll.check of a group runs a command on this machine after each batch"},
	{regexp.MustCompile(`\.files\b`), "files of your own belong into the bundle: ./install docs site-host"},
	{regexp.MustCompile(`\.(uploadBinary|useExistingK0s|k0sBinaryPath|k0sInstallPath|k0sDownloadURL)$`), "not needed: the file has the binaries"},
	{regexp.MustCompile(`\.(os|timeout|disableMultiplexing)$`), "not needed"},
	{regexp.MustCompile(`\.environment\b`), "Airlift sets no environment: containerd's proxy is a drop-in of its unit"},
	{regexp.MustCompile(`\.(dataDir|kubeletRootDir)$`), "the directories are the same as kubeadm's"},
	{regexp.MustCompile(`\.privateInterface$`), "write the address of the interface in nodeIP"},
	{regexp.MustCompile(`\.localhost\b`), "reach the host by SSH too: write its address"},
	{regexp.MustCompile(`\.winrm\b`), "hosts with Windows are not supported"},
	{regexp.MustCompile(`\.installFlags\b`), "write arguments of the kubelet in JoinConfiguration.nodeRegistration.kubeletExtraArgs"},
	{regexp.MustCompile(`\.images\b`), "the file has the images of Kubernetes"},
	{regexp.MustCompile(`\.extensions\b`), "manifests and charts belong into the bundle: ./install docs site"},
	{regexp.MustCompile(`\.telemetry\b`), "Airlift sends nothing"},
	{regexp.MustCompile(`\.konnectivity\b`), "the API server reaches kubelets directly"},
	{regexp.MustCompile(`\.network\.(provider|calico|kuberouter)\b`), "the pod network of the file is flannel; for your own: ./install init --cni none"},
	{regexp.MustCompile(`\.workerProfiles\b`), "only the profile default has a counterpart, KubeletConfiguration; for others write patches in a group"},
	{regexp.MustCompile(`\.featureGates\b`), "write feature-gates in extraArgs of ClusterConfiguration, and featureGates in KubeletConfiguration"},
	{regexp.MustCompile(`\.storage\b`), "etcd is stacked, or external: etcd of ClusterConfiguration"},
	{regexp.MustCompile(`\.concurrency\.limit$`), "./install cluster apply --parallel"},
}

func hintOf(path string) string {
	for _, h := range hints {
		if h.path.MatchString(path) {
			return h.hint
		}
	}
	return "cluster.yaml has no such field"
}

// A conversion is one file of k0sctl on its way to a cluster.yaml.
type conversion struct {
	source
	to      file
	kubeadm map[string]map[string]any // documents by kind
}

// K0sctl converts a file of k0sctl: documents of the kind Cluster, and ClusterConfig of k0s. It returns the cluster.yaml, with what is
// left as comments. name is the name of the file for them.
func K0sctl(name string, data []byte) (text []byte, left []Left, err error) {
	list, errs := documents.Read(data)
	list = slices.DeleteFunc(list, documents.Document.Empty)
	if len(errs) > 0 {
		return nil, nil, fault.New(fault.Usage, "%s:%d: %s", name, errs[0].Line, errs[0].Text).Hint("correct the file")
	}
	c := &conversion{source: source{used: map[string]bool{}}, kubeadm: map[string]map[string]any{}}
	found := false
	for i, d := range list {
		root, err := c.root(d, "")
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", name, d.Line, err)
		}
		switch group, _, _ := strings.Cut(root.field("apiVersion").scalar(), "/"); {
		case group == "k0sctl.k0sproject.io" && !found:
			found = true
			c.cluster(root)
			root.rest(hintOf)
		case group == "k0s.k0sproject.io":
			if root, err = c.root(d, fmt.Sprintf("document %d", i+1)); err != nil {
				return nil, nil, err
			}
			c.config(root)
			root.rest(hintOf)
		case group == "airlift":
			return nil, nil, fault.New(fault.Usage, "%s is a cluster.yaml already", name).Hint("./install cluster plan -f " + fault.Word(name))
		default:
			c.leave(d.Line, fmt.Sprintf("document %d", i+1), "only documents of k0sctl and k0s are converted")
		}
	}
	if !found {
		return nil, nil, fault.New(fault.Usage, "%s has no document of k0sctl: apiVersion: k0sctl.k0sproject.io/v1beta1", name).Hint("./install cluster convert -f k0sctl.yaml > cluster.yaml")
	}
	if c.to.Endpoint == nil && len(slices.DeleteFunc(slices.Clone(c.to.Hosts), func(h host) bool { return h.Role == worker })) > 1 {
		c.leave(1, "spec.k0s.config", "several control planes need an endpoint: write endpoint, with vip and balancer, or address")
	}
	slices.SortStableFunc(c.left, func(a, b Left) int { return cmp.Compare(a.Line, b.Line) })
	text, err = c.text(name)
	return text, c.left, err
}

// text returns the cluster.yaml.
func (c *conversion) text(name string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# From %s, by ./install cluster convert.\n", oneLine(name))
	if len(c.left) > 0 {
		b.WriteString("# These parts of it have no counterpart here, or need a decision:\n")
	}
	for _, l := range c.left {
		fmt.Fprintf(&b, "#   line %s\n", oneLine(l.String()))
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c.to); err != nil {
		return nil, err
	}
	for _, kind := range []string{"InitConfiguration", "ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"} {
		if d := c.kubeadm[kind]; d != nil {
			if err := e.Encode(d); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), e.Close()
}

func oneLine(text string) string { return fault.Printable(strings.Join(strings.Fields(text), " ")) }

// groups of kubeadm's documents.
var apiVersions = map[string]string{
	"InitConfiguration": "kubeadm.k8s.io/v1beta4", "ClusterConfiguration": "kubeadm.k8s.io/v1beta4",
	"KubeletConfiguration": "kubelet.config.k8s.io/v1beta1", "KubeProxyConfiguration": "kubeproxy.config.k8s.io/v1alpha1",
}

// set sets a field of one of kubeadm's documents.
func (c *conversion) set(kind string, what any, path ...string) {
	if c.kubeadm[kind] == nil {
		c.kubeadm[kind] = map[string]any{"apiVersion": apiVersions[kind], "kind": kind}
	}
	d := c.kubeadm[kind]
	for _, name := range path[:len(path)-1] {
		next, ok := d[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			d[name] = next
		}
		d = next
	}
	d[path[len(path)-1]] = what
}

func (c *conversion) cluster(root value) {
	root.field("apiVersion").use()
	root.field("kind").only("Cluster")
	c.to.APIVersion, c.to.Kind = "airlift/v1", "Cluster"
	c.to.Name = cmp.Or(root.field("metadata", "name").text(), "k0s-cluster")
	spec := root.field("spec")
	for _, h := range spec.field("hosts").items() {
		c.host(h)
	}
	c.config(spec.field("k0s", "config"))
	c.options(spec.field("options"))
}

func (c *conversion) host(in value) {
	if in.field("winrm").is != nil || in.field("reset").is == true {
		hint := "hosts with Windows are not supported: the host is left out"
		if in.field("winrm").is == nil {
			hint = "reset: true: the host is left out; ./install cluster apply --remove removes a node that is not in the file"
		}
		in.use()
		in.leave(in.Line, in.Path, hint)
		return
	}
	h := host{Role: worker}
	runsPods := false
	switch role := in.field("role"); role.text() {
	case "worker":
	case "controller":
		h.Role = controlPlane
	case "controller+worker":
		h.Role, runsPods = controlPlane, in.field("noTaints").on()
	case "single":
		h.Role, runsPods = controlPlane, true
		in.field("noTaints").on()
	default:
		in.leave(in.Line, role.Path, "it is not a role of k0sctl: the host is a worker here")
	}
	c.connect(in, &h)
	h.NodeIP = in.field("privateAddress").text()
	for _, flag := range in.field("installFlags").items() {
		runsPods = c.flag(flag, &h) || runsPods
	}
	if runsPods && h.Taints == nil {
		h.Taints = &[]string{}
	}
	h.Name = in.field("hostname").text()
	if h.Name == "" {
		h.Name = c.newName(h)
		in.leave(in.Line, in.field("hostname").Path, fmt.Sprintf("it is not written: the name here is %s; write the hostname of the host", h.Name))
	}
	c.to.Hosts = append(c.to.Hosts, h)
}

// newName returns a name for a host of which the file has only the address.
func (c *conversion) newName(h host) string {
	label, _, _ := strings.Cut(strings.ToLower(h.Address), ".")
	taken := func(name string) bool {
		return slices.ContainsFunc(c.to.Hosts, func(o host) bool { return o.Name == name })
	}
	if _, err := netip.ParseAddr(h.Address); err != nil && len(validation.IsDNS1123Label(label)) == 0 && !taken(label) {
		return label
	}
	prefix := map[string]string{controlPlane: "cp-", worker: "worker-"}[h.Role]
	for n := 1; ; n++ {
		if name := prefix + strconv.Itoa(n); !taken(name) {
			return name
		}
	}
}

// connect converts how the host is reached.
func (c *conversion) connect(in value, h *host) {
	own := ssh{}
	if v := in.field("ssh"); v.is != nil {
		own = c.login(v)
		own.Jump = c.jumps(v.field("bastion"))
	} else if v := in.field("openSSH"); v.is != nil {
		own = c.login(v)
		own.OpenSSH = true
		if path := v.field("configPath").text(); path != "" {
			own.Options = append(own.Options, "-F", path)
		}
		for _, option := range v.field("options").fields() {
			name := option.Path[strings.LastIndex(option.Path, ".")+1:]
			if strings.EqualFold(name, "StrictHostKeyChecking") || strings.HasSuffix(name, "KnownHostsFile") {
				option.use()
				option.leave(option.Line, option.Path, "host keys are always checked: known_hosts, or ssh.hostKey of a host")
				continue
			}
			text := map[string]string{"true": "yes", "false": "no"}[option.scalar()]
			if text = cmp.Or(text, option.scalar()); text != "" {
				option.text()
				own.Options = append(own.Options, "-o", name+"="+text)
			}
		}
	}
	h.Address, own.Address = own.Address, ""
	if own.User+own.KeyPath+own.HostKey != "" || own.Port != 0 || own.Jump != nil || own.OpenSSH {
		h.SSH = &own
	}
}

func (c *conversion) login(in value) ssh {
	s := ssh{Address: in.field("address").text(), User: in.field("user").text(), KeyPath: in.field("keyPath").text(), HostKey: in.field("hostKey").text()}
	port := in.field("port")
	if n, err := strconv.Atoi(port.scalar()); err == nil {
		port.use()
		s.Port = n
	}
	return s
}

// jumps converts a bastion, which may have one of its own. The first host on the way comes first.
func (c *conversion) jumps(in value) []ssh {
	if in.is == nil {
		return nil
	}
	return append(c.jumps(in.field("bastion")), c.login(in))
}

// flag converts a flag of "k0s install", and reports whether the host runs pods of users.
func (c *conversion) flag(in value, h *host) (runsPods bool) {
	text := strings.TrimSpace(in.scalar())
	end := strings.IndexAny(text, "= ")
	name, rest := text, ""
	if end >= 0 {
		name, rest = text[:end], strings.Trim(text[end+1:], ` "'`)
	}
	switch {
	case name == "--labels" && rest != "":
		for _, label := range strings.Split(rest, ",") {
			key, value, _ := strings.Cut(label, "=")
			if h.Labels == nil {
				h.Labels = map[string]string{}
			}
			h.Labels[key] = value
		}
	case name == "--taints" && rest != "":
		all := strings.Split(rest, ",")
		if h.Taints != nil {
			all = append(*h.Taints, all...)
		}
		h.Taints = &all
	case slices.Contains([]string{"--enable-worker", "--enable-worker=true"}, text) && h.Role == controlPlane:
	case slices.Contains([]string{"--no-taints", "--no-taints=true", "--single", "--single=true"}, text) && h.Role == controlPlane:
		runsPods = true
	default:
		in.use()
		in.leave(in.Line, in.Path+" "+name, hintOf(in.Path)) // its value may be a secret
		return false
	}
	in.text()
	return runsPods
}

// config converts the configuration of k0s.
func (c *conversion) config(in value) {
	in.field("apiVersion").use()
	in.field("kind").only("ClusterConfig", "Cluster")
	in.field("metadata", "name").only("k0s", c.to.Name)
	spec := in.field("spec")
	api := spec.field("api")
	port := api.field("port").text()
	if n, err := strconv.Atoi(port); err == nil && n != 6443 {
		c.set("InitConfiguration", n, "localAPIEndpoint", "bindPort")
	} else {
		port = ""
	}
	if names := api.field("sans").list(); names != nil {
		c.set("ClusterConfiguration", names, "apiServer", "certSANs")
	}
	for from, to := range map[string][]string{"api": {"apiServer"}, "controllerManager": {"controllerManager"}, "scheduler": {"scheduler"}, "etcd": {"etcd", "local"}} {
		args := spec.field(from, "extraArgs")
		if from == "etcd" {
			args = spec.field("storage", "etcd", "extraArgs")
		}
		var list []map[string]string
		for _, arg := range args.fields() {
			if arg.scalar() != "" {
				list = append(list, map[string]string{"name": arg.Path[len(args.Path)+1:], "value": arg.text()})
			}
		}
		if list != nil {
			c.set("ClusterConfiguration", list, append(to, "extraArgs")...)
		}
	}
	spec.field("storage", "type").only("etcd")
	c.externalEtcd(spec.field("storage", "etcd", "externalCluster"))
	c.network(spec.field("network"))
	c.endpoint(spec, port)
	if profiles := spec.field("workerProfiles").items(); len(profiles) == 1 && profiles[0].field("name").only("default") {
		values := profiles[0].field("values")
		if mapping, ok := values.is.(map[string]any); ok {
			for name, v := range mapping {
				c.set("KubeletConfiguration", plain(v), name)
			}
			values.use()
		}
	}
}

func (c *conversion) externalEtcd(in value) {
	endpoints := in.field("endpoints").list()
	if endpoints == nil {
		return
	}
	external := map[string]any{"endpoints": endpoints}
	for from, to := range map[string]string{"caFile": "caFile", "clientCertFile": "certFile", "clientKeyFile": "keyFile"} {
		if text := in.field(from).text(); text != "" {
			external[to] = text
		}
	}
	c.set("ClusterConfiguration", external, "etcd", "external")
}

func (c *conversion) network(in value) {
	in.field("dualStack", "enabled").only("false")
	dual := in.field("dualStack", "enabled").on()
	for _, f := range [][3]string{{"podCIDR", "IPv6podCIDR", "podSubnet"}, {"serviceCIDR", "IPv6serviceCIDR", "serviceSubnet"}} {
		subnet := in.field(f[0]).text()
		if dual {
			if second := in.field("dualStack", f[1]).text(); second != "" && subnet != "" {
				subnet += "," + second
			}
		}
		if subnet != "" {
			c.set("ClusterConfiguration", subnet, "networking", f[2])
		}
	}
	if domain := in.field("clusterDomain").text(); domain != "" {
		c.set("ClusterConfiguration", domain, "networking", "dnsDomain")
	}
	proxy := in.field("kubeProxy")
	proxy.field("disabled").only("false")
	for _, name := range []string{"mode", "metricsBindAddress"} {
		if text := proxy.field(name).text(); text != "" {
			c.set("KubeProxyConfiguration", text, name)
		}
	}
}

// endpoint converts how the API is reached.
func (c *conversion) endpoint(spec value, port string) {
	e := endpoint{}
	local := spec.field("network", "nodeLocalLoadBalancing")
	local.field("enabled").only("false")
	if e.Balancer = local.field("enabled").on(); e.Balancer {
		local.field("type").only("EnvoyProxy")
	}
	shared := spec.field("network", "controlPlaneLoadBalancing")
	shared.field("enabled").only("false")
	if shared.field("enabled").on() {
		shared.field("type").only("Keepalived")
		for _, instance := range shared.field("keepalived", "vrrpInstances").items() {
			for _, address := range instance.field("virtualIPs").list() {
				ip, _, _ := strings.Cut(address, "/")
				e.VIP = append(e.VIP, ip)
			}
		}
	}
	external := spec.field("api", "externalAddress")
	switch address := external.scalar(); {
	case address == "":
	case slices.Contains(e.VIP, address):
		external.use()
	case e.VIP == nil:
		e.Address = external.text()
		if port != "" {
			e.Address += ":" + port
		}
	}
	if e.VIP != nil || e.Balancer || e.Address != "" {
		c.to.Endpoint = &e
	}
}

func (c *conversion) options(in value) {
	r := roll{}
	if drain := in.field("drain", "enabled"); drain.is == true || drain.is == false {
		on := drain.on()
		r.Drain = &on
	}
	r.DrainTimeout = in.field("drain", "timeout").text()
	if r != (roll{}) {
		c.to.Roll = &r
	}
	percent := in.field("concurrency", "workerDisruptionPercent")
	hasWorker := slices.ContainsFunc(c.to.Hosts, func(h host) bool { return h.Role == worker })
	if n, err := strconv.Atoi(percent.scalar()); err == nil && n > 0 && n <= 100 && hasWorker {
		percent.use()
		c.to.Groups = []group{{Name: worker, Roll: map[string]string{"maxUnavailable": strconv.Itoa(n) + "%"}}}
	}
}
