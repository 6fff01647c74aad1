// Package overview shows a cluster of several hosts to a person: as a text, as the changes since the last look, and as a page for a
// browser. It reads nothing: all that it shows is in its arguments.
package overview

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/installer/status"
)

// A Site is the document of 'cluster status'. Fields are only added. What follows Hosts is what several hosts say together: Complete
// fills it.
type Site struct {
	Name  string `json:"name"`
	Hosts []Host `json:"hosts"`

	Healthy bool `json:"healthy"`
	// Version is the version in the stored configuration.
	Version string `json:"version,omitempty"`
	// Endpoint is "host:port" of the API.
	Endpoint string `json:"endpoint,omitempty"`
	// VIP are the virtual addresses, and VIPOn is the host that has them; "" if that is not known.
	VIP   []string `json:"vip,omitempty"`
	VIPOn string   `json:"vipOn,omitempty"`
	// Balancer reports whether each node has a balancer for the API servers.
	Balancer bool `json:"balancer,omitempty"`
	// Etcd are the members of the stacked etcd, and EtcdLeader is the leader; "" if that is not known.
	Etcd       []status.EtcdMember `json:"etcd,omitempty"`
	EtcdLeader string              `json:"etcdLeader,omitempty"`
	// NextCertificate is the certificate that expires first.
	NextCertificate *Certificate `json:"nextCertificate,omitempty"`
	LastBackup      *Backup      `json:"lastBackup,omitempty"`
	// Others are nodes of the cluster that cluster.yaml does not have.
	Others []facts.ClusterNode `json:"others"`

	gate *facts.Gate // of the cluster; it is in the facts of the control planes
}

// A Certificate is a certificate on a host.
type Certificate struct {
	Host string `json:"host"`
	status.Certificate
}

// A Backup is a backup that was written on a host.
type Backup struct {
	Host string `json:"host"`
	status.Backup
}

// A Host is a host of cluster.yaml.
type Host struct {
	Name     string           `json:"name"`
	Role     string           `json:"role"`
	Group    string           `json:"group"`
	Address  string           `json:"address"`         // to which the driver connects
	Error    string           `json:"error,omitempty"` // why it has no facts
	Hint     string           `json:"hint,omitempty"`
	Facts    *facts.Facts     `json:"facts,omitempty"`
	Problems []status.Problem `json:"problems"`
	Warnings []status.Problem `json:"warnings"`
	// Drift is what was edited by hand on the host and in the cluster.
	Drift []status.Drift `json:"drift,omitempty"`

	// Status is what 'install status' printed there; nil if nothing did.
	Status *status.Status `json:"-"`

	node *facts.ClusterNode
	site *Site
}

// Complete fills what several hosts say together. Only control planes have a say: what a worker reports of others is a claim.
func (s *Site) Complete() {
	s.Healthy, s.Version, s.Endpoint, s.VIP, s.VIPOn, s.Balancer, s.Etcd, s.EtcdLeader, s.NextCertificate, s.LastBackup, s.gate = true, "", "", nil, "", false, nil, "", nil, nil, nil
	s.Others = []facts.ClusterNode{}
	known := map[string]*facts.ClusterNode{}
	if c := s.cluster(); c != nil {
		s.Version, s.Endpoint, s.VIP, s.Balancer, s.gate = c.Version, c.ControlPlaneEndpoint, c.VIP, c.Balancer, c.Gate
		for i, n := range c.Nodes {
			known[n.Name] = &c.Nodes[i]
			if !slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Name == n.Name }) {
				s.Others = append(s.Others, n)
			}
		}
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.site, h.node = s, known[h.Name]
		if h.Error != "" || h.Facts.Node == nil || len(h.Problems) > 0 || h.node != nil && !h.node.Ready {
			s.Healthy = false
		}
		if h.Status != nil {
			s.add(h)
		}
	}
}

// cluster is the cluster as the first control plane reports it that answers.
func (s *Site) cluster() *facts.Cluster {
	for _, h := range s.Hosts {
		if h.Role == spec.ControlPlane && h.Error == "" && h.Facts != nil && h.Facts.Cluster != nil {
			return h.Facts.Cluster
		}
	}
	return nil
}

// add adds what a host reports about the cluster.
func (s *Site) add(h *Host) {
	for _, c := range h.Status.Certificates {
		if !c.Missing && (s.NextCertificate == nil || c.Expires.Before(s.NextCertificate.Expires)) {
			s.NextCertificate = &Certificate{h.Name, c}
		}
	}
	if h.Role != spec.ControlPlane {
		return
	}
	if b := h.Status.LastBackup; b != nil && (s.LastBackup == nil || b.Time.After(s.LastBackup.Time)) {
		s.LastBackup = &Backup{h.Name, *b}
	}
	if e := h.Status.Etcd; e != nil && len(s.Etcd) == 0 {
		s.Etcd = e.Members
		if i := slices.IndexFunc(s.Etcd, func(m status.EtcdMember) bool { return m.Leader }); i >= 0 {
			s.EtcdLeader = s.Etcd[i].Name
		}
	}
	if e := h.Status.Endpoint; e != nil && e.VIP != nil {
		switch n := len(e.VIP.Holders); {
		case e.VIP.Held:
			s.VIPOn = h.Name
		case s.VIPOn == "" && n > 0:
			s.VIPOn = e.VIP.Holders[n-1].Name
		}
		if len(s.VIP) == 0 { // the API server does not answer
			s.VIP = texts(e.VIP.Addresses)
		}
	}
}

func texts(list []netip.Addr) (all []string) {
	for _, a := range list {
		all = append(all, a.String())
	}
	return all
}

// Ready is the state of a node that serves.
const ready = "Ready"

// State is the state of a host in a word or two.
func (h *Host) State() string {
	switch {
	case h.Error != "":
		return "no answer"
	case h.Facts.Node == nil && h.Facts.Unknown["node"] != "":
		return "unknown"
	case h.Facts.Node == nil && h.Facts.Unfinished != "":
		return "unfinished " + h.Facts.Unfinished
	case h.Facts.Node == nil:
		return "no node"
	case h.node == nil && !h.Facts.Node.KubeletRunning:
		return "kubelet is off"
	case h.node == nil:
		return "kubelet runs"
	case !h.node.Ready:
		return "NotReady"
	case h.node.Unschedulable:
		return ready + ", cordoned"
	}
	return ready
}

func (h *Host) isReady() bool { return strings.HasPrefix(h.State(), ready) }

// version is the version of the kubelet. The cluster knows it of a host that does not answer.
func (h *Host) version() string {
	switch {
	case h.Facts != nil && h.Facts.Node != nil:
		return cmp.Or(h.Facts.Node.Version, "-")
	case h.node != nil:
		return h.node.Version
	}
	return "-"
}

// serves is what a control plane does for the others.
func (h *Host) serves() string {
	var list []string
	for _, m := range h.site.Etcd {
		switch {
		case m.Name != h.Name:
		case !m.Healthy:
			list = append(list, "etcd is down")
		case m.Learner:
			list = append(list, "etcd learner")
		case m.Leader:
			list = append(list, "etcd leader")
		default:
			list = append(list, "etcd")
		}
	}
	if h.site.VIPOn == h.Name {
		list = append(list, h.site.VIP...)
	}
	return cmp.Or(strings.Join(list, ", "), "-")
}

// last is the last command that changed the host.
func (h *Host) last() string {
	if h.Facts == nil || len(h.Facts.Runs) == 0 {
		return "-"
	}
	r := h.Facts.Runs[len(h.Facts.Runs)-1]
	text := r.Command + ", " + r.Began.Local().Format("2006-01-02 15:04")
	if r.ExitCode == nil {
		return text + ", unfinished"
	}
	if *r.ExitCode != 0 {
		return fmt.Sprintf("%s, failed (%d)", text, *r.ExitCode)
	}
	return text
}

// own are the problems of the host that are not only consequences of another host that is down, which is shown itself.
func (h *Host) own() (list []status.Problem) {
	for _, p := range h.Problems {
		if !slices.ContainsFunc(h.site.Hosts, func(o Host) bool {
			return o.Name != h.Name && !o.isReady() && (strings.HasPrefix(p.Message, "the node "+o.Name+" is not Ready") || strings.HasPrefix(p.Message, "etcd's member "+o.Name+" is not healthy"))
		}) {
			list = append(list, p)
		}
	}
	return withoutRepeatedTimeouts(list)
}

// noAnswer matches the message of a problem that is only a question without an answer in time.
var noAnswer = regexp.MustCompile(`no answer within|deadline exceeded|i/o timeout|timed out|TLS handshake timeout|Client\.Timeout`)

// withoutRepeatedTimeouts returns the problems of a host with one in place of several questions that got no answer in time: an overloaded host answers
// none of them, each with another text.
func withoutRepeatedTimeouts(list []status.Problem) []status.Problem {
	late := func(p status.Problem) bool { return p.Name == "" && noAnswer.MatchString(p.Message) }
	first, last, n := -1, "", 0
	var parts []string
	for i, p := range list {
		if !late(p) {
			continue
		}
		if n++; first < 0 {
			first = i
		}
		if last = p.Message; !slices.Contains(parts, p.Part) {
			parts = append(parts, p.Part)
		}
	}
	if n < 2 {
		return list
	}
	one := status.Problem{Part: strings.Join(parts, ", "), Message: fmt.Sprintf("%d questions got no answer in time; the last one: %s", n, last), Fix: "see whether the host has too little processor time, memory or disk: uptime; then, there: ./install status"}
	kept := slices.DeleteFunc(slices.Clone(list), late)
	return slices.Insert(kept, min(first, len(kept)), one)
}

// count is the number of problems and of warnings.
func (h *Host) count() string {
	var parts []string
	if n := len(h.own()); n > 0 {
		parts = append(parts, counted(n, "problem"))
	}
	if n := len(h.Warnings); n > 0 {
		parts = append(parts, counted(n, "warning"))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// driftPart is the part of 'install status' that compares a node with the stored configuration.
const driftPart = "drift"

// A finding is one that several hosts may have.
type finding struct {
	What, Why, Fix string
	warning        bool
}

type findingOf struct {
	host string
	finding
}

// findings are what is wrong with the hosts and what was edited by hand, causes first: hosts that are down, then the rest.
func (s *Site) findings() iter.Seq2[finding, []string] {
	var first, rest []findingOf
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.Error != "" {
			first = append(first, findingOf{h.Name, finding{What: "does not answer: " + h.Error, Fix: h.Hint}})
		}
		if h.Facts != nil && h.Facts.Unknown["node"] != "" {
			first = append(first, findingOf{h.Name, finding{What: "it is unknown whether this host is a node: " + h.Facts.Unknown["node"], Fix: "on that host: ./install status"}})
		}
		for _, p := range h.own() {
			rest = append(rest, findingOf{h.Name, finding{What: p.Part + ": " + p.Message, Fix: p.Fix}})
		}
		for _, p := range h.Warnings {
			if p.Part == driftPart {
				rest = append(rest, findingOf{h.Name, finding{What: p.Part + ": " + p.Message, Fix: p.Fix, warning: true}})
			}
		}
	}
	// One cause, such as an API server that is down, is a problem of many hosts.
	return Shared(append(first, rest...), func(f findingOf) (string, finding) { return f.host, f.finding })
}

// Shared returns each thing that hosts have in common once, in the order of its first host, with those hosts. split
// returns the host of an item, and what can be equal on another host.
func Shared[T any, K comparable](list []T, split func(T) (host string, thing K)) iter.Seq2[K, []string] {
	var order []K
	hosts := map[K][]string{}
	for _, item := range list {
		host, thing := split(item)
		if hosts[thing] == nil {
			order = append(order, thing)
		}
		hosts[thing] = append(hosts[thing], host)
	}
	return func(yield func(K, []string) bool) {
		for _, thing := range order {
			if !yield(thing, hosts[thing]) {
				return
			}
		}
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// A section is hosts that belong together.
type section struct {
	title string
	hosts []*Host
}

// sections are the control planes, and then the workers by their groups.
func (s *Site) sections() (list []section) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		title := "Control planes"
		switch {
		case h.Role == spec.ControlPlane:
		case h.Group == spec.Worker:
			title = "Workers"
		default:
			title = "Workers, group " + h.Group
		}
		at := slices.IndexFunc(list, func(one section) bool { return one.title == title })
		if at < 0 {
			list, at = append(list, section{title: title}), len(list)
		}
		list[at].hosts = append(list[at].hosts, h)
	}
	slices.SortStableFunc(list, func(a, b section) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

func rank(s section) int {
	if s.hosts[0].Role == spec.ControlPlane {
		return 0
	}
	return 1
}

// readyHosts is how many hosts are Ready.
func (s *Site) readyHosts() (n int) {
	for i := range s.Hosts {
		if s.Hosts[i].isReady() {
			n++
		}
	}
	return n
}

// summary is the state of the site in a line.
func (s *Site) summary() string {
	text := fmt.Sprintf("%d of %s Ready", s.readyHosts(), strings.Replace(counted(len(s.Hosts), "host")+" are", "1 host are", "1 host is", 1))
	problems, warnings := 0, 0
	for f := range s.findings() {
		if f.warning {
			warnings++
		} else {
			problems++
		}
	}
	if problems > 0 {
		text += ", " + counted(problems, "problem")
	}
	if warnings > 0 {
		text += ", " + counted(warnings, "warning")
	}
	if s.Healthy && problems+warnings == 0 {
		text += ", nothing is wrong"
	}
	return text
}

// versions are the versions of the nodes, with their number if there are several.
func (s *Site) versions() string {
	n := map[string]int{}
	var list []string
	add := func(v string) {
		if v == "-" || v == "" {
			return
		}
		if n[v]++; n[v] == 1 {
			list = append(list, v)
		}
	}
	for i := range s.Hosts {
		add(s.Hosts[i].version())
	}
	for _, o := range s.Others {
		add(o.Version)
	}
	if len(list) > 1 {
		for i, v := range list {
			list[i] = fmt.Sprintf("%s on %s", v, counted(n[v], "node"))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "no nodes")
}

// address is how the API is reached, and who has the virtual address.
func (s *Site) address() string {
	if len(s.VIP) == 0 {
		return s.Endpoint
	}
	return strings.Join(s.VIP, ", ") + " is on " + cmp.Or(s.VIPOn, "no control plane that is known")
}

func (s *Site) etcd() string {
	if len(s.Etcd) == 0 {
		return ""
	}
	healthy := 0
	for _, m := range s.Etcd {
		if m.Healthy {
			healthy++
		}
	}
	return fmt.Sprintf("%d of %s healthy, the leader is %s", healthy, strings.Replace(counted(len(s.Etcd), "member")+" are", "1 member are", "1 member is", 1), cmp.Or(s.EtcdLeader, "unknown"))
}

func (s *Site) nextCertificate(now time.Time) string {
	c := s.NextCertificate
	switch {
	case c == nil:
		return ""
	case !c.Expires.After(now):
		return fmt.Sprintf("%s on %s has expired", c.Name, c.Host)
	}
	return fmt.Sprintf("the next expires in %s: %s on %s", span(c.Expires.Sub(now)), c.Name, c.Host)
}

func (s *Site) lastBackup(now time.Time) string {
	b := s.LastBackup
	switch {
	case b == nil:
		return ""
	case b.Error != "":
		return fmt.Sprintf("the last one failed, %s ago on %s", span(now.Sub(b.Time)), b.Host)
	}
	return fmt.Sprintf("%s ago on %s", span(now.Sub(b.Time)), b.Host)
}
