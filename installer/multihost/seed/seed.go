// Package seed has the document from which hosts become a cluster by themselves: what `cluster apply` would run on each of them, and the
// secrets for that. Package agent/boot runs it, and the record is how far a host is.
package seed

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/bundle/signature"
	"airlift/installer/config"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// Names of the files on a drive.
const (
	File      = "airlift-seed.json"
	Installer = "install"
)

const (
	apiVersion = "airlift/v1"
	kind       = "Seed"
	// MaxSize limits a seed in bytes. Patches and CAs are small.
	MaxSize = 4 << 20
)

// Group is the group of hosts that have the token, which may report to the cluster.
const Group = "system:bootstrappers:airlift:seed"

// A Seed is what a drive brings. It is secret: with the token and the key, a machine becomes a control plane until they end.
type Seed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID is another one for each seed.
	ID             string    `json:"id"`
	Created        time.Time `json:"created"`
	Expires        time.Time `json:"expires"`
	Bundle         Bundle    `json:"bundle"`
	Token          string    `json:"token"`
	CertificateKey string    `json:"certificateKey"`
	// Cluster is cluster.yaml as spec.Read returned it.
	Cluster spec.Cluster `json:"cluster"`
	// Patches are the patches by the directory in Cluster and their names. Files are the CAs and credentials of registries, by their
	// places on a host.
	Patches map[string]map[string][]byte `json:"patches,omitempty"`
	Files   map[string][]byte            `json:"files,omitempty"`
	// BackupTarget has the credentials of the target of backups.
	BackupTarget []byte `json:"backupTarget,omitempty"`
}

// A Bundle is the file that is next to the seed.
type Bundle struct {
	ID      string `json:"id"`
	Version string `json:"version"` // of Kubernetes
	Arch    string `json:"arch"`    // GOARCH
	SHA256  string `json:"sha256"`  // of the file
	Size    int64  `json:"size"`
}

// New returns a seed for a cluster that was read from a file. Its times have whole seconds.
func New(c *spec.Cluster, b Bundle, created time.Time, ttl time.Duration) (*Seed, error) {
	created = created.UTC().Truncate(time.Second)
	s := &Seed{APIVersion: apiVersion, Kind: kind, ID: random(8), Created: created, Expires: created.Add(ttl).Truncate(time.Second), Bundle: b, Cluster: *c}
	text := strings.ToLower(rand.Text()) // a to z and 2 to 7, which tokens may have
	s.Token, s.CertificateKey = text[:6]+"."+text[6:22], random(32)
	s.Cluster.Warnings, s.Cluster.Groups = nil, slices.Clone(c.Groups)
	for i := range s.Cluster.Groups {
		s.Cluster.Groups[i].Roll = spec.GroupRoll{} // of an upgrade
	}
	if err := s.readFiles(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func random(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// readFiles reads what cluster.yaml names.
func (s *Seed) readFiles() error {
	s.Patches, s.Files = map[string]map[string][]byte{}, map[string][]byte{}
	for _, h := range s.Cluster.Hosts {
		if h.Patches == "" || s.Patches[h.Patches] != nil {
			continue
		}
		files := map[string][]byte{}
		root := os.DirFS(h.Patches)
		err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				files[name], err = fs.ReadFile(root, name)
			}
			return err
		})
		if err != nil {
			return fault.New(fault.Usage, "reading the patches of %s in %s: %w", h.Name, h.Patches, err).Hint("see patches in cluster.yaml")
		}
		s.Patches[h.Patches] = files
	}
	if b := s.Cluster.Backups; b != nil && b.On && b.Target != "" {
		var err error
		if s.BackupTarget, err = b.Credentials(); err != nil {
			return err
		}
	}
	r := s.Cluster.Registries
	if r == nil {
		return nil
	}
	kept := spec.Registries{Flags: r.Flags}
	if len(r.List) > 0 {
		some := config.RegistryMirror{URL: &url.URL{Scheme: "https", Host: "some"}} // the flags and the files say which
		kept.List = []config.Registry{{Host: config.DefaultRegistry, Mirrors: []config.RegistryMirror{some}}}
	}
	s.Cluster.Registries = &kept
	_, files := plan.OnHost(r)
	for _, place := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[place])
		if err != nil {
			return fault.New(fault.Usage, "reading a file of the registries: %w", err).Hint("see registries in cluster.yaml")
		}
		s.Files[place] = data
	}
	return nil
}

// check returns why hosts cannot become a cluster by themselves, with all reasons.
func (s *Seed) check() error {
	var wrong []string
	for _, h := range s.Cluster.Hosts {
		if h.Match == nil {
			wrong = append(wrong, fmt.Sprintf("host %s has no match: write match with serial, mac or label", h.Name))
		}
		if len(h.NodeIP) == 0 {
			wrong = append(wrong, fmt.Sprintf("host %s has no nodeIP: write the address that it has after its first boot", h.Name))
		}
	}
	if len(wrong) > 0 {
		return fault.New(fault.Usage, "cluster.yaml is not complete for a seed:\n  %s", strings.Join(wrong, "\n  ")).Hint("see 'bundle docs seed'")
	}
	if !s.Expires.After(s.Created) {
		return fault.New(fault.Usage, "the seed would end before it begins").Hint("write a longer --ttl, such as 24h")
	}
	_, err := s.plan()
	return err
}

// Encode returns the document.
func (s *Seed) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil && len(data) >= MaxSize {
		err = fault.New(fault.Usage, "the seed would have %d bytes, and may have %d", len(data), MaxSize).Hint("are large files in the directory of the patches?")
	}
	return append(data, '\n'), err
}

// Sign returns the signature of an encoded seed, as the text of a file that minisign reads.
func (s *Seed) Sign(data []byte, key signature.SecretKey) []byte {
	return signature.SignText(data, key, fmt.Sprintf("file:%s\tcluster:%s\tseed:%s", File, s.Cluster.Name, s.ID))
}

// Open returns the seed in data, which key must have signed.
func Open(data, signed []byte, key signature.PublicKey) (*Seed, error) {
	if len(data) > MaxSize {
		return nil, fault.New(fault.Bundle, "%s has more than %d bytes", File, MaxSize)
	}
	if err := signature.VerifyText(data, signed, key); err != nil {
		return nil, fmt.Errorf("checking %s: %w", File, err)
	}
	return decode(data)
}

// decode reads a document whose signature was checked. Each field is known, or it is an error: another version wrote it.
func decode(data []byte) (*Seed, error) {
	s := &Seed{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(s)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more follows after the document")
		}
	}
	if err == nil && (s.APIVersion != apiVersion || s.Kind != kind) {
		err = fmt.Errorf("it is %q %q", s.APIVersion, s.Kind)
	}
	if err != nil {
		return nil, fault.New(fault.Bundle, "%s is not a seed that this file reads: %w", File, err).Hint("create it with the command bundle of the same release: bundle seed --help")
	}
	return s, s.check()
}

// InTime returns an error if now is not within the life of the seed. early is set if a clock that is set later would help.
func (s *Seed) InTime(now time.Time) (early bool, err error) {
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
	switch {
	case now.Before(s.Created):
		return true, fault.New(fault.Preflight, "the clock of this host is wrong: it is %s here, and the seed was created at %s", at(now), at(s.Created)).
			Hint("set the clock: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'; or let it follow a time server of the site")
	case !now.Before(s.Expires):
		return false, fault.New(fault.Preflight, "the seed has expired: it is %s here, and it was valid until %s", at(now), at(s.Expires)).
			Hint("create a new one: bundle seed; or check the clock of this host: timedatectl")
	}
	return false, nil
}

// Host returns the host with a name.
func (s *Seed) Host(name string) (spec.Host, bool) {
	i := slices.IndexFunc(s.Cluster.Hosts, func(h spec.Host) bool { return h.Name == name })
	if i < 0 {
		return spec.Host{}, false
	}
	return s.Cluster.Hosts[i], true
}

// First is the control plane that gets init: the first one in the file.
func (s *Seed) First() spec.Host {
	return s.Cluster.Hosts[slices.IndexFunc(s.Cluster.Hosts, func(h spec.Host) bool { return h.Role == spec.ControlPlane })]
}

// ControlPlanes is how many hosts are control planes.
func (s *Seed) ControlPlanes() (n int) {
	for _, h := range s.Cluster.Hosts {
		if h.Role == spec.ControlPlane {
			n++
		}
	}
	return n
}

// bindPort is the port of the API servers.
func (s *Seed) bindPort() int {
	list, _ := documents.Read(s.Cluster.Kubeadm) // package spec has checked them
	for _, d := range list {
		kind := documents.Value(d.Node, "kind")
		if n := documents.Value(d.Node, "localAPIEndpoint", "bindPort"); n != nil && kind != nil && kind.Value == "InitConfiguration" {
			if p, err := strconv.Atoi(n.Value); err == nil {
				return p
			}
		}
	}
	return config.DefaultBindPort
}

// APIServers are where the control planes that join will have their API servers, by the names of the hosts, as HOST:PORT.
func (s *Seed) APIServers() map[string]string {
	all, port := map[string]string{}, strconv.Itoa(s.bindPort())
	for _, h := range s.Cluster.Hosts {
		if h.Role == spec.ControlPlane && h.Name != s.First().Name {
			all[h.Name] = net.JoinHostPort(h.NodeIP[0].String(), port)
		}
	}
	return all
}

// Endpoint is where the other hosts find the cluster, HOST:PORT: its endpoint if that is an address, or else the first control plane.
func (s *Seed) Endpoint() string {
	port := s.bindPort()
	e := s.Cluster.Endpoint
	host := s.First().NodeIP[0].String()
	switch {
	case len(e.VIP) > 0:
		host = e.VIP[0].String()
	case e.Address != "":
		if own, p, err := config.SplitEndpoint(e.Address, port); err == nil {
			host, port = own, p
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// A Machine is what a host knows of itself.
type Machine struct {
	Serial string
	MACs   []string
	Labels []string
}

// String is for people: what a new row of cluster.yaml could have.
func (m Machine) String() string {
	return fmt.Sprintf("serial %s, MAC addresses %s, label %s", cmp.Or(m.Serial, "none"), cmp.Or(strings.Join(m.MACs, " "), "none"), cmp.Or(strings.Join(m.Labels, " "), "none"))
}

// has reports whether a row describes a machine.
func (m Machine) has(want *spec.Match) bool {
	switch {
	case want == nil:
		return false
	case want.Serial != "":
		return want.Serial == strings.TrimSpace(m.Serial)
	case want.MAC != "":
		return slices.ContainsFunc(m.MACs, func(mac string) bool { return strings.EqualFold(mac, want.MAC) })
	case want.Label != "":
		return slices.Contains(m.Labels, want.Label)
	}
	return false
}

// ErrNotListed is why a machine is no host of a seed.
var ErrNotListed = errors.New("this host is in no row of the seed")

// Find returns the host that a machine is. None and several are errors.
func (s *Seed) Find(m Machine) (spec.Host, error) {
	found := slices.DeleteFunc(slices.Clone(s.Cluster.Hosts), func(h spec.Host) bool { return !m.has(h.Match) })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return spec.Host{}, fault.New(fault.Preflight, "%w: cluster %s has no host with %s", ErrNotListed, s.Cluster.Name, m).
			Hint("write one of them to match in cluster.yaml, and create the seed again: bundle seed")
	}
	var names []string
	for _, h := range found {
		names = append(names, h.Name+" ("+h.Match.String()+")")
	}
	return spec.Host{}, fault.New(fault.Preflight, "this host is in several rows of the seed: %s", strings.Join(names, ", ")).Hint("correct match in cluster.yaml, and create the seed again: bundle seed")
}
