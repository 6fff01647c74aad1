package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/internal/documents"
)

// ReadInit reads kubeadm's configuration file for init: an InitConfiguration, a
// ClusterConfiguration or both, and the documents of kubelet and kube-proxy. path
// "-" is standard input. It sets no defaults except in bootstrapTokens: a random
// token, and its TTL. Unlike kubeadm, it adds no token to a file without
// bootstrapTokens.
//
// Warnings are lines for the user. The error (fault.Usage) lists everything that
// is wrong with the file, with line numbers.
func ReadInit(path string) (*Config, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	return s.readInit()
}

// ParseInit is ReadInit for a file in memory. name is for messages.
func ParseInit(name string, data []byte) (*Config, []string, error) {
	return parse(name, data).readInit()
}

func (s *source) readInit() (*Config, []string, error) {
	s.check(false)
	s.need([]string{"InitConfiguration", "ClusterConfiguration"}, "KubeletConfiguration", "KubeProxyConfiguration")
	c := s.init()
	return c, s.warnings, s.err()
}

// ReadJoin reads kubeadm's JoinConfiguration, as ReadInit does.
func ReadJoin(path string) (*Config, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	s.check(false)
	s.need([]string{"JoinConfiguration"})
	c := s.join()
	return c, s.warnings, s.err()
}

// ReadReset reads kubeadm's ResetConfiguration, as ReadInit does.
func ReadReset(path string) (*Reset, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	s.check(false)
	s.need([]string{"ResetConfiguration"})
	r := s.reset()
	return r, s.warnings, s.err()
}

// File is a configuration file with the documents of several commands, each nil
// if the file does not have it.
type File struct {
	Init    *Config // from an InitConfiguration, a ClusterConfiguration or both
	Join    *Config
	Reset   *Reset
	Upgrade *Upgrade
	// API is the newest version of kubeadm's API in the file: "v1beta4".
	API string
	// Components are the documents of kubelet and kube-proxy as written.
	Components [][]byte
}

// Upgrade is kubeadm's UpgradeConfiguration, for validation and conversion. A run of upgrade reads
// an UpgradeRun.
type Upgrade struct {
	wire   upgradeConfiguration
	origin *origin
}

// Read reads all documents of a configuration file. Documents that no command
// reads are errors, as in kubeadm's config validate.
func Read(path string) (*File, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	s.check(true)
	f := &File{API: apiVersions[0]}
	for _, d := range s.docs {
		switch {
		case d.group == kubeadmGroup:
			f.API = apiVersions[max(slices.Index(apiVersions, f.API), slices.Index(apiVersions, d.version))]
		case d.of != nil:
			f.Components = append(f.Components, d.Text)
		}
	}
	if s.has("InitConfiguration", "ClusterConfiguration") {
		f.Init = s.init()
	}
	if s.has("JoinConfiguration") {
		f.Join = s.join()
	}
	if s.has("ResetConfiguration") {
		f.Reset = s.reset()
	}
	if s.has("UpgradeConfiguration") {
		f.Upgrade = &Upgrade{origin: &origin{s.name, s.lines}}
		s.decode("UpgradeConfiguration", &f.Upgrade.wire)
	}
	return f, s.warnings, s.err()
}

// Check returns what is wrong with documents of a file that has documents for several commands: what Read finds before a value
// needs the others. A JoinConfiguration may have no discovery. Warnings are lines for the user.
func Check(name string, list []documents.Document) (warnings []string, errs []documents.Error) {
	s := newSource(name, list, true)
	s.check(true)
	s.init()
	for kind := range kubeadmKinds {
		if d := s.find(kind); d != nil && d.of != nil {
			s.decode(kind, reflect.New(d.of).Interface())
		}
	}
	for _, p := range s.problems {
		errs = append(errs, documents.Error{Line: p.line, Text: p.text})
	}
	return s.warnings, errs
}

// has reports whether the file has a document of one of the kinds.
func (s *source) has(kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool { return s.find(kind) != nil })
}

// need records an error if the file has no document that the command reads, and
// warns of documents that it does not read.
func (s *source) need(kinds []string, others ...string) {
	for _, d := range s.docs {
		if d.of != nil && !slices.Contains(kinds, d.kind) && !slices.Contains(others, d.kind) {
			s.warnf(d.Line, "%s does not apply to this command and is ignored", d.kind)
		}
	}
	if len(s.problems) == 0 && !s.has(kinds...) {
		s.addf(1, `this file has no %s, which this command requires: ./install config print %s-defaults prints one`,
			strings.Join(kinds, " or "), strings.ToLower(strings.TrimSuffix(kinds[0], "Configuration")))
	}
}

func (s *source) init() *Config {
	var (
		init      initConfiguration
		cluster   clusterConfiguration
		kubelet   kubeletv1.KubeletConfiguration
		kubeProxy kubeproxyv1.KubeProxyConfiguration
	)
	for kind, into := range map[string]any{
		"InitConfiguration": &init, "ClusterConfiguration": &cluster,
		"KubeletConfiguration": &kubelet, "KubeProxyConfiguration": &kubeProxy,
	} {
		s.decode(kind, into)
	}
	s.checkCluster(&cluster)
	c := &Config{
		Cluster:          cluster.cluster(),
		LocalAPIEndpoint: APIEndpoint(init.LocalAPIEndpoint),
		NodeRegistration: init.NodeRegistration.registration(),
		BootstrapTokens:  s.tokens(init.BootstrapTokens),
		CertificateKey:   init.CertificateKey,
		SkipPhases:       init.SkipPhases,
		Patches:          init.Patches.directory(),
		DryRun:           init.DryRun,
		Timeouts:         s.timeouts("InitConfiguration.timeouts", init.Timeouts),
		origin:           &origin{s.name, s.lines},
	}
	if s.find("KubeletConfiguration") != nil {
		c.Kubelet = &kubelet
	}
	if s.find("KubeProxyConfiguration") != nil {
		c.KubeProxy = &kubeProxy
	}
	if a, b := c.APIServer.TimeoutForControlPlane, c.Timeouts.ControlPlaneComponentHealthCheck; a != 0 && b != 0 && a != b {
		s.warnf(s.lines["InitConfiguration.timeouts.controlPlaneComponentHealthCheck"], "timeouts.controlPlaneComponentHealthCheck %s takes precedence over apiServer.timeoutForControlPlane %s", b, a)
		c.APIServer.TimeoutForControlPlane = b
	}
	if len(s.problems) > 0 {
		return nil
	}
	return c
}

func (s *source) join() *Config {
	var join joinConfiguration
	if !s.decode("JoinConfiguration", &join) {
		return nil
	}
	c := &Config{
		NodeRegistration: join.NodeRegistration.registration(),
		CACertPath:       join.CACertPath,
		SkipPhases:       join.SkipPhases,
		Patches:          join.Patches.directory(),
		DryRun:           join.DryRun,
		Timeouts:         s.timeouts("JoinConfiguration.timeouts", join.Timeouts),
		origin:           &origin{s.name, s.lines},
	}
	if cp := join.ControlPlane; cp != nil {
		c.ControlPlane = true
		c.LocalAPIEndpoint = APIEndpoint(cp.LocalAPIEndpoint)
		c.CertificateKey = cp.CertificateKey
	}
	d := &c.Discovery
	d.TLSBootstrapToken = join.Discovery.TLSBootstrapToken
	if t := join.Discovery.BootstrapToken; t != nil {
		d.Token, d.APIServerEndpoint = t.Token, t.APIServerEndpoint
		d.CACertHashes, d.UnsafeSkipCAVerification = t.CACertHashes, t.UnsafeSkipCAVerification
	}
	if f := join.Discovery.File; f != nil {
		d.File = filePath(f.KubeConfigPath)
	}
	const discovery = "JoinConfiguration.discovery"
	switch line := s.lines[discovery]; {
	case join.Discovery.BootstrapToken == nil && join.Discovery.File == nil:
		if line == 0 {
			line = s.find("JoinConfiguration").Line
		}
		s.addf(line, "%s must have bootstrapToken or file", discovery)
	case join.Discovery.BootstrapToken != nil && join.Discovery.File != nil:
		s.addf(line, "%s has both bootstrapToken and file: remove one", discovery)
	case join.Discovery.File != nil && d.File == "":
		s.addf(s.lines[discovery+".file"], "%s.file.kubeConfigPath is missing: the path or https:// URL of a kubeconfig", discovery)
	}
	d.Timeout = c.Timeouts.Discovery
	if t := join.Discovery.Timeout; t != nil {
		d.Timeout = s.positive(discovery+".timeout", t)
		c.Timeouts.Discovery = d.Timeout
	}
	if len(s.problems) > 0 {
		return nil
	}
	return c
}

func (s *source) reset() *Reset {
	var reset resetConfiguration
	if !s.decode("ResetConfiguration", &reset) {
		return nil
	}
	r := &Reset{
		CertificatesDir:       reset.CertificatesDir,
		CRISocket:             reset.CRISocket,
		CleanupTmpDir:         reset.CleanupTmpDir,
		DryRun:                reset.DryRun,
		Force:                 reset.Force,
		IgnorePreflightErrors: reset.IgnorePreflightErrors,
		SkipPhases:            reset.SkipPhases,
		UnmountFlags:          reset.UnmountFlags,
		Timeouts:              s.timeouts("ResetConfiguration.timeouts", reset.Timeouts),
		origin:                &origin{s.name, s.lines},
	}
	if len(s.problems) > 0 {
		return nil
	}
	return r
}

// checkCluster records errors that a Cluster cannot represent.
func (s *source) checkCluster(in *clusterConfiguration) {
	const kind = "ClusterConfiguration."
	if in.Etcd.Local != nil && in.Etcd.External != nil {
		s.addf(s.lines[kind+"etcd.external"], "%setcd has both local and external: remove one", kind)
	}
	s.positive(kind+"certificateValidityPeriod", in.CertificateValidityPeriod)
	s.positive(kind+"caCertificateValidityPeriod", in.CACertificateValidityPeriod)
	s.positive(kind+"apiServer.timeoutForControlPlane", in.APIServer.TimeoutForControlPlane)
}

// tokens returns the tokens of the file, with kubeadm's defaults: only here a
// missing value differs from a zero.
func (s *source) tokens(in []wireToken) (out []BootstrapToken) {
	for i, t := range in {
		path := fmt.Sprintf("InitConfiguration.bootstrapTokens[%d]", i)
		token := BootstrapToken{Description: t.Description, Usages: t.Usages, Groups: t.Groups}
		switch {
		case t.Token == nil:
			var err error
			if token.Token, err = bootstraputil.GenerateBootstrapToken(); err != nil {
				s.addf(s.lines[path], "%s: generating a token: %v", path, err)
			}
		case *t.Token == "":
			s.addf(s.lines[path+".token"], "%s.token is empty: leave it out for a random one", path)
		default:
			token.Token = *t.Token
		}
		switch {
		case t.TTL != nil && t.Expires != nil:
			s.addf(s.lines[path+".expires"], "%s has both ttl and expires: remove one", path)
		case t.TTL != nil:
			token.TTL = t.TTL.Duration
		case t.Expires != nil:
			token.Expires = t.Expires.Time
		default:
			token.TTL = DefaultTokenTTL
		}
		out = append(out, token)
	}
	return out
}

func (s *source) timeouts(path string, in *wireTimeouts) (out Timeouts) {
	if in == nil {
		return out
	}
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(&out).Elem()
	for i := range from.NumField() {
		name, _, _ := strings.Cut(from.Type().Field(i).Tag.Get("json"), ",")
		d := s.positive(path+"."+name, from.Field(i).Interface().(*metav1.Duration))
		to.FieldByName(from.Type().Field(i).Name).SetInt(int64(d))
	}
	return out
}

// positive returns a duration, 0 if it is not given. A given value of zero or
// less is an error: later, zero means the default.
func (s *source) positive(path string, d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if d.Duration <= 0 {
		s.addf(s.lines[path], "%s is %s and must be greater than 0s; remove it to use the default", path, d.Duration)
	}
	return d.Duration
}

// filePath turns a file:// URL into a path, as kubeadm does.
func filePath(s string) string {
	if path, ok := strings.CutPrefix(s, "file://"); ok {
		return path
	}
	return s
}

func (p *wirePatches) directory() string {
	if p == nil {
		return ""
	}
	return p.Directory
}

func (in wireNodeRegistration) registration() NodeRegistration {
	return NodeRegistration{
		Name:                  in.Name,
		CRISocket:             in.CRISocket,
		Taints:                in.Taints,
		KubeletExtraArgs:      in.KubeletExtraArgs.args(),
		IgnorePreflightErrors: in.IgnorePreflightErrors,
		ImagePullPolicy:       in.ImagePullPolicy,
		ImagePullSerial:       in.ImagePullSerial,
	}
}

// origin is the file that a Config came from, so that later errors can name the
// line of a value.
type origin struct {
	file  string
	lines map[string]int // by path: "ClusterConfiguration.networking.podSubnet"
}

// at describes where a value comes from: its line or field in the file, or its
// flag if there is no file.
func (o *origin) at(path, flag string) string {
	if o == nil {
		return flag
	}
	if line := o.lines[path]; line > 0 {
		return fmt.Sprintf("%s:%d: %s", o.file, line, path)
	}
	if strings.HasPrefix(flag, "--") {
		return path
	}
	return flag
}

// Absolute returns the absolute path of a file that a flag names, for code that looks for it below
// the host's root directory. An empty one stays empty.
func Absolute(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return "", fmt.Errorf("finding %s %q: %w", flag, file, err)
	}
	return path, nil
}
