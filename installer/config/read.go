package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
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
	s.need([]string{"InitConfiguration", "ClusterConfiguration"}, ClusterKinds...)
	c := s.init()
	return c, s.warnings, s.Err()
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
	return c, s.warnings, s.Err()
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
	return r, s.warnings, s.Err()
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
		f.Upgrade = &Upgrade{*decoded[upgradeConfiguration](s), s.origin()}
	}
	return f, s.warnings, s.Err()
}

// A Part has documents of a file.
type Part struct {
	File      string
	Documents []documents.Document
}

// ReadParts reads documents for all nodes of a cluster, which are in several files, as Read does. A JoinConfiguration may have no
// discovery, and is nil only if there is none. Values that are wrong are zero.
func ReadParts(parts []Part) (f *File, warnings []string, wrong []problems.Problem) {
	all := &source{lines: strict.Lines{}, files: map[string]string{}}
	for _, p := range parts {
		s := newSource(p.File, p.Documents, true)
		s.check(true)
		for _, d := range s.docs {
			all.files[d.kind] = p.File
		}
		for i := range s.Problems {
			s.Problems[i].File = p.File
		}
		all.docs, all.Problems, all.warnings = append(all.docs, s.docs...), append(all.Problems, s.Problems...), append(all.warnings, s.warnings...)
		maps.Copy(all.lines, s.lines)
	}
	f = &File{Init: all.init()}
	if all.has("JoinConfiguration") {
		f.Join = all.joined()
	}
	if all.has("UpgradeConfiguration") {
		f.Upgrade = &Upgrade{*decoded[upgradeConfiguration](all), all.origin()}
	}
	return f, all.warnings, all.Problems
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
	if len(s.Problems) == 0 && !s.has(kinds...) {
		s.Add(1, fmt.Sprintf("to print one: ./install config print %s-defaults", strings.ToLower(strings.TrimSuffix(kinds[0], "Configuration"))),
			"this file has no %s, which this command requires", strings.Join(kinds, " or "))
	}
}

func (s *source) origin() *origin { return &origin{s.File, s.lines, s.files} }

func (s *source) init() *Config {
	init := decoded[initConfiguration](s)
	c := &Config{
		Cluster:          *decoded[Cluster](s),
		LocalAPIEndpoint: init.LocalAPIEndpoint,
		NodeRegistration: init.NodeRegistration,
		BootstrapTokens:  s.tokens(init.BootstrapTokens),
		CertificateKey:   init.CertificateKey,
		SkipPhases:       init.SkipPhases,
		Patches:          init.Patches.Directory,
		DryRun:           init.DryRun,
		Timeouts:         init.Timeouts,
		origin:           s.origin(),
	}
	const kind = "ClusterConfiguration"
	if d := s.find(kind); d != nil && c.Etcd.External != nil {
		if local := documents.Value(d.Node, "etcd", "local"); local != nil && local.ShortTag() != "!!null" {
			s.refuse(kind+".etcd.external", "remove one", "%s.etcd has both local and external", kind)
		}
	}
	for _, d := range s.docs {
		if field := Kinds[d.kind].field; field != nil && d.value.IsValid() {
			reflect.ValueOf(field(&c.Cluster)).Elem().Set(d.value)
		}
	}
	if a, b := c.APIServer.TimeoutForControlPlane, c.Timeouts.ControlPlaneComponentHealthCheck; a != 0 && b != 0 && a != b {
		const path = "InitConfiguration.timeouts.controlPlaneComponentHealthCheck"
		s.warnings = append(s.warnings, fmt.Sprintf("%s %s takes precedence over apiServer.timeoutForControlPlane %s", s.origin().at(path, path), b, a))
		c.APIServer.TimeoutForControlPlane = b
	}
	return c
}

func (s *source) join() *Config {
	c := s.joined()
	in := decoded[joinConfiguration](s).Discovery
	const discovery = "JoinConfiguration.discovery"
	switch {
	case s.find("JoinConfiguration") == nil || len(s.Problems) > 0:
	case in.BootstrapToken == nil && in.File == nil:
		s.refuse(discovery, "", "%s must have bootstrapToken or file", discovery)
	case in.BootstrapToken != nil && in.File != nil:
		s.refuse(discovery, "remove one", "%s has both bootstrapToken and file", discovery)
	case in.File != nil && c.Discovery.File == "":
		s.refuse(discovery+".file", "write the path or https:// URL of a kubeconfig", "%s.file.kubeConfigPath is missing", discovery)
	}
	return c
}

// joined returns the values of a JoinConfiguration.
func (s *source) joined() *Config {
	join := decoded[joinConfiguration](s)
	c := &Config{
		NodeRegistration: join.NodeRegistration,
		CACertPath:       join.CACertPath,
		SkipPhases:       join.SkipPhases,
		Patches:          join.Patches.Directory,
		DryRun:           join.DryRun,
		Timeouts:         join.Timeouts,
		origin:           s.origin(),
	}
	if cp := join.ControlPlane; cp != nil {
		c.ControlPlane, c.LocalAPIEndpoint, c.CertificateKey = true, cp.LocalAPIEndpoint, cp.CertificateKey
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
	c.Timeouts.Discovery = cmp.Or(join.Discovery.Timeout, c.Timeouts.Discovery)
	d.Timeout = c.Timeouts.Discovery
	return c
}

func (s *source) reset() *Reset {
	r := decoded[Reset](s)
	r.origin = s.origin()
	return r
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
				s.refuse(path, "", "%s: generating a token: %v", path, err)
			}
		case *t.Token == "":
			s.refuse(path+".token", "leave it out for a random one", "%s.token is empty", path)
		default:
			token.Token = *t.Token
		}
		switch {
		case t.TTL != nil && t.Expires != nil:
			s.refuse(path+".expires", "remove one", "%s has both ttl and expires", path)
		case t.TTL != nil:
			token.TTL = *t.TTL
		case t.Expires != nil:
			token.Expires = t.Expires.Time
		default:
			token.TTL = DefaultTokenTTL
		}
		out = append(out, token)
	}
	return out
}

// filePath turns a file:// URL into a path, as kubeadm does.
func filePath(s string) string {
	if path, ok := strings.CutPrefix(s, "file://"); ok {
		return path
	}
	return s
}

// origin is the file that a Config came from, so that later errors can name the
// line of a value.
type origin struct {
	file  string
	lines strict.Lines      // by path: "ClusterConfiguration.networking.podSubnet"
	files map[string]string // of the documents in other files, by kind
}

// fileOf returns the file with the document of a field.
func (o *origin) fileOf(path string) string {
	kind, _, _ := strings.Cut(path, ".")
	return cmp.Or(o.files[kind], o.file)
}

// A place is where a value comes from.
type place struct {
	path, name string // of the field; name may be the flag instead
	file       string
	line       int // 0: the file does not have it
}

func (p place) String() string {
	if p.line == 0 {
		return p.name
	}
	return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.name)
}

// or returns another place if the file does not have this one.
func (p place) or(other place) place {
	if p.line > 0 {
		return p
	}
	return other
}

// at describes where a value comes from: its line or field in the file, or its
// flag if there is no file.
func (o *origin) at(path, flag string) place {
	if o == nil {
		return place{path: path, name: flag}
	}
	if line := o.lines[path]; line > 0 {
		return place{path, path, o.fileOf(path), line}
	}
	if strings.HasPrefix(flag, "--") {
		return place{path: path, name: path}
	}
	return place{path: path, name: flag}
}

// Problem returns a problem with a field of the configuration file, at its line or at the line of what it is missing in.
func (c *Config) Problem(field, hint, format string, args ...any) problems.Problem {
	p := problems.Problem{Field: field, Hint: hint, Text: fmt.Sprintf(format, args...)}
	if o := c.origin; o != nil {
		p.File, p.Line = o.fileOf(field), o.lines.Nearest("%s", field)
	}
	return p
}

// Sets reports whether the configuration file has a field: "KubeletConfiguration.podPidsLimit".
func (c *Config) Sets(path string) bool { return c.origin != nil && c.origin.lines[path] > 0 }

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
