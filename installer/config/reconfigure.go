package config

import (
	"reflect"
	"slices"

	"airlift/internal/documents"
)

// A Given is what a configuration file has: its values without defaults, and which fields it has. A nil one has nothing.
type Given struct{ Config *Config }

// ReadReconfigure reads kubeadm's configuration file for a running cluster: an InitConfiguration and ClusterKinds, or some of
// them. Any other document is an error.
func ReadReconfigure(path string) (*Given, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	return s.readReconfigure("reconfigure", append([]string{"InitConfiguration"}, ClusterKinds...)...)
}

// ReadReconfigureNode reads the InitConfiguration of a file: what differs from node to node.
func ReadReconfigureNode(path string) (*Given, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	return s.readReconfigure("reconfigure node", "InitConfiguration")
}

func (s *source) readReconfigure(command string, kinds ...string) (*Given, []string, error) {
	s.check(true)
	for _, d := range s.docs {
		if d.of != nil && !slices.Contains(kinds, d.kind) {
			s.addf(d.Line, "%s does not apply to %s: remove it", d.kind, command)
		}
	}
	if len(s.Problems) == 0 && !s.has(kinds...) {
		s.addf(1, "this file has no document that %s reads: %s", command, kinds)
	}
	c := s.init()
	for _, path := range []string{"bootstrapTokens", "certificateKey", "skipPhases", "dryRun"} {
		if line := s.lines["InitConfiguration."+path]; line > 0 {
			s.warnf(line, "InitConfiguration.%s has an effect only in init", path)
		}
	}
	if err := s.Err(); err != nil {
		return nil, s.warnings, err
	}
	return &Given{c}, s.warnings, nil
}

// Has reports whether the file has a field: "ClusterConfiguration.apiServer.certSANs", or a document: "KubeletConfiguration".
func (g *Given) Has(path string) bool { return g != nil && g.Config.origin.lines[path] > 0 }

// At describes where a field is in the file: "kubeadm.yaml:7: ClusterConfiguration.clusterName". It is the path alone if the file
// does not have the field.
func (g *Given) At(path string) string { return g.Config.origin.at(path, path).String() }

// Values returns the values of the file, none without a file.
func (g *Given) Values() *Config {
	if g == nil {
		return &Config{}
	}
	return g.Config
}

// Marked returns a configuration of which Sets reports what the file has.
func (g *Given) Marked(c *Config) *Config {
	marked := *c
	if marked.origin = nil; g != nil {
		marked.origin = g.Config.origin
	}
	return &marked
}

// CopyTo gives a cluster the documents that the file has, except the ClusterConfiguration.
func (g *Given) CopyTo(c *Cluster) {
	for _, kind := range ClusterKinds {
		if field := Kinds[kind].field; field != nil && g.Has(kind) {
			reflect.ValueOf(field(c)).Elem().Set(reflect.ValueOf(field(&g.Config.Cluster)).Elem())
		}
	}
}

// Check checks the completed configuration of a node of a running cluster, into which the file was merged. Its errors name the
// lines of the file.
func (g *Given) Check(c *Config, controlPlane bool) error {
	v := &validator{origin: g.Config.origin}
	v.node("InitConfiguration", &c.NodeRegistration)
	if controlPlane {
		v.cluster(&c.Cluster, c.CNI)
	}
	return v.err()
}

// Where the cluster keeps the number of its last reconfiguration, in kube-system, and, in a Secret, the files that
// reconfigurations brought.
const ReconfigurationConfigMap, ReconfigurationKey, FilesSecret, FilesKey = "airlift-reconfiguration", "reconfiguration.yaml", "airlift-files", "files"

// A Reconfiguration is what the nodes of a cluster need to follow a change of its configuration. kubeadm has no fields for it.
type Reconfiguration struct {
	// Number counts the changes. A node that follows one records its number. 0: there was none.
	Number int `json:"number"`
	// Workers is the number of the last change that workers must follow.
	Workers int `json:"workers,omitempty"`
	// Stored counts the changes of what the cluster stores that no node must follow. An undo takes its change back.
	Stored int `json:"stored,omitempty"`
	// As is the number of the change whose configuration an undo restored, 0 after a change.
	As int `json:"as,omitempty"`
	// Removed are names and addresses that earlier configurations gave to certificates.
	Removed Names `json:"removed,omitzero"`
}

// Names are names and addresses in certificates.
type Names struct {
	APIServer  []string `json:"apiServer,omitempty"`
	EtcdServer []string `json:"etcdServer,omitempty"`
	EtcdPeer   []string `json:"etcdPeer,omitempty"`
}

// Encode returns the reconfiguration as YAML.
func (r Reconfiguration) Encode() ([]byte, error) { return documents.Encode("Reconfiguration", r) }

// DecodeReconfiguration reads what Encode returns.
func DecodeReconfiguration(data []byte) (r Reconfiguration, err error) {
	return r, documents.Decode(data, "Reconfiguration", &r)
}

// NamesOf returns the names and addresses that a configuration gives to certificates, in addition to each node's own.
func NamesOf(c *Cluster) Names {
	api := slices.Clone(c.APIServer.CertSANs)
	if host, _, err := SplitEndpoint(c.ControlPlaneEndpoint, 0); c.ControlPlaneEndpoint != "" && err == nil {
		api = append(api, host)
	}
	return Names{APIServer: api, EtcdServer: slices.Clone(c.Etcd.Local.ServerCertSANs), EtcdPeer: slices.Clone(c.Etcd.Local.PeerCertSANs)}
}

// Next returns the reconfiguration after this one, which changes a configuration into another one. workers reports whether
// workers must follow it. It is a copy, so that a field that is no counter stays.
func (r Reconfiguration) Next(from, to *Cluster, workers bool) Reconfiguration {
	was, is := NamesOf(from), NamesOf(to)
	left := func(removed, was, is []string) (list []string) {
		for _, name := range slices.Sorted(slices.Values(slices.Concat(removed, was))) {
			if !slices.Contains(is, name) && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
		return list
	}
	r.Number, r.As, r.Removed = r.Number+1, 0, Names{
		APIServer:  left(r.Removed.APIServer, was.APIServer, is.APIServer),
		EtcdServer: left(r.Removed.EtcdServer, was.EtcdServer, is.EtcdServer),
		EtcdPeer:   left(r.Removed.EtcdPeer, was.EtcdPeer, is.EtcdPeer),
	}
	if workers {
		r.Workers = r.Number
	}
	return r
}

// Has reports whether the cluster has the configuration that the change with a number stored: nothing changed it since, or that
// was undone.
func (r Reconfiguration) Has(number int) bool {
	return number == r.Number || number == r.As && number > 0
}

// Follows reports whether a node that recorded a number has followed the last reconfiguration that concerns it.
func (r Reconfiguration) Follows(number int, controlPlane bool) bool {
	if controlPlane {
		return number >= r.Number
	}
	return number >= r.Workers
}
