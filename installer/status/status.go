// Package status reads the state of this host as a node: what 'install status' shows. It
// changes nothing, and also works while parts of the node do not.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/cluster/apply"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// partTimeout limits the time for each part, even if its source hangs. The parts are read in
// parallel.
const partTimeout = 4 * time.Second

// A Status is the state of this host. Its JSON is documented in docs/status.md: fields are
// only added.
type Status struct {
	// Healthy is true if there are no problems.
	Healthy  bool      `json:"healthy"`
	Problems []Problem `json:"problems"`
	Warnings []Problem `json:"warnings"`

	Node         Node          `json:"node"`
	Components   []Component   `json:"components"`
	Versions     Versions      `json:"versions"`
	Certificates []Certificate `json:"certificates"`
	Etcd         *Etcd         `json:"etcd,omitempty"`
	Endpoint     *Endpoint     `json:"endpoint,omitempty"`
	Images       *Images       `json:"images,omitempty"`
	AddOns       []AddOn       `json:"addOns"`
	// Packages lists the packages of the file, or without a file the packages that Airlift installed.
	Packages   []Package  `json:"packages"`
	Manifests  []Manifest `json:"manifests"`
	Drift      []Drift    `json:"drift"`
	LastBackup *Backup    `json:"lastBackup,omitempty"`
	LastRun    *Run       `json:"lastRun,omitempty"`
	// Unknown has, by the name of a part, why it could not be read.
	Unknown map[string]string `json:"unknown"`

	apply string // the command that applies the manifests of this bundle
	now   time.Time
}

// A Problem is something that is wrong.
type Problem struct {
	Part string `json:"part"`
	// Name identifies a problem of the part endpoint, a node that is not Ready, a file of containerd, a GPU, a runtime class, or the load balancer; others have none.
	Name    string `json:"name,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"` // what to type
}

// Names of problems with a node that is not Ready: this one, or another one.
const (
	NodeNotReady      = "node-not-ready"
	OtherNodeNotReady = "other-node-not-ready"
)

// ContainerdFiles is the name of problems with files that containerd reads at its next start.
const ContainerdFiles = "containerd-files"

// Names of warnings about GPUs of this host that containers cannot use yet, and about runtime classes that no node has.
const (
	GPU          = "gpu"
	RuntimeClass = "runtime-class"
)

// Contents describes the file that the command runs from.
type Contents struct {
	Kubernetes string // its version; "" if there is no file
	Airlift    string
	Manifests  []apply.Manifest
	// Images returns the images that a node of a role needs.
	Images func(role string) []bundle.Image
	// HasImage reports whether the file has an image, by a name as in a pod.
	HasImage func(name string) bool
	// Packages returns the packages for a node of a role, of all releases; nil if there is no file.
	Packages func(role string) []bundle.SitePackage
	// Apply is the command that applies its manifests.
	Apply string
	// Drift returns what differs from the stored configuration of the cluster that a kubeconfig reaches, "" for this host's.
	Drift func(ctx context.Context, kubeconfig string) ([]Drift, error)
}

// A Reader reads the status of a host.
type Reader struct {
	Host *host.Host
	// Ledger is why the ledger of the host cannot be read, if it cannot.
	Ledger error
	// Contents of the file. Its functions may be nil.
	Contents Contents
	// Kubeconfig is an administrator's kubeconfig; "" means the one on a control plane.
	Kubeconfig string
	// Only are the names of the parts to read, as in Unknown; nil means all.
	Only []string

	node  node.Observation
	api   func() (*cluster.Client, error)                // one connection for all parts
	dial  func(context.Context) (*cluster.Client, error) // connects to the API server; nil means connect
	query func(context.Context) (*Endpoint, error)       // asks the endpoint's service; nil means the service of this host
}

// A notHere is the reason why a host of this kind does not have a part. It is not a problem.
type notHere struct{ why string }

func (e notHere) Error() string { return e.why }

// A result is what a part found.
type result struct {
	set                func(*Status)
	problems, warnings []Problem
}

func (r *result) problem(fix, format string, args ...any) *Problem {
	return add(&r.problems, fix, format, args...)
}

func (r *result) warn(fix, format string, args ...any) *Problem {
	return add(&r.warnings, fix, format, args...)
}

func add(list *[]Problem, fix, format string, args ...any) *Problem {
	*list = append(*list, Problem{Message: fmt.Sprintf(format, args...), Fix: fix})
	return &(*list)[len(*list)-1]
}

// A part is read in parallel with the others.
type part struct {
	name   string
	read   func(context.Context) (result, error)
	onNode bool // a host that is no node does not have it
}

// parts returns the parts, in the order in which their problems are shown.
func (r *Reader) parts() []part {
	return []part{
		{"node", r.readNode, false},
		{"components", r.readComponents, true},
		{"api", r.readAPI, false},
		{"etcd", r.readEtcd, true},
		{"endpoint", r.readEndpoint, false},
		{"certificates", r.readCertificates, true},
		{"images", r.readImages, true},
		{"addOns", r.readAddOns, false},
		{"packages", r.readPackages, true},
		{"manifests", r.readManifests, false},
		{"loadBalancer", r.readLoadBalancer, false},
		{"drift", r.readDrift, true},
		{"versions", r.readVersions, false},
		{"lastBackup", r.readBackup, false},
		{"lastRun", r.readRun, false},
	}
}

// Read reads all parts. It returns an error only if ctx ends.
func (r *Reader) Read(ctx context.Context) (*Status, error) {
	r.node = node.Observe(r.Host)
	s := &Status{
		Problems: []Problem{}, Warnings: []Problem{}, Components: []Component{}, Certificates: []Certificate{}, AddOns: []AddOn{}, Packages: []Package{}, Manifests: []Manifest{}, Drift: []Drift{},
		Unknown: map[string]string{}, apply: r.Contents.Apply, now: time.Now(),
	}
	limited, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	dial := r.dial
	if dial == nil {
		dial = r.connect
	}
	r.api = sync.OnceValues(func() (*cluster.Client, error) { return dial(limited) })

	type answer struct {
		result
		err error
	}
	parts := slices.DeleteFunc(r.parts(), func(p part) bool { return r.Only != nil && !slices.Contains(r.Only, p.name) })
	answers := make([]chan answer, len(parts))
	for i, p := range parts {
		answers[i] = make(chan answer, 1)
		if p.onNode && r.node.Role == node.NoNode {
			answers[i] <- answer{err: notHere{"this host is not a node of a cluster"}}
			continue
		}
		go func() {
			found, err := p.read(limited)
			answers[i] <- answer{found, err}
		}()
	}
	// Do not wait for a part whose source hangs, such as a file system.
	end := time.After(partTimeout + 200*time.Millisecond)
	for i, p := range parts {
		var a answer
		select {
		case a = <-answers[i]:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end:
			a.err = fmt.Errorf("no answer within %s", partTimeout)
			end = closed
		}
		s.add(p.name, a.result, a.err)
	}
	// Other problems may follow from a node that is not Ready.
	other := func(p Problem) bool { return p.Name != NodeNotReady && p.Name != OtherNodeNotReady }
	s.Problems = slices.Concat(slices.DeleteFunc(slices.Clone(s.Problems), other), slices.DeleteFunc(s.Problems, func(p Problem) bool { return !other(p) }))
	s.Healthy = len(s.Problems) == 0
	return s, ctx.Err()
}

// closed is a channel that is always ready: the time is over for the following parts, too.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// add adds what a part found. Several parts fail with the same error while the API server is
// away, which is one problem.
func (s *Status) add(name string, found result, err error) {
	if found.set != nil {
		found.set(s)
	}
	for i := range found.problems {
		found.problems[i].Part = name
	}
	for i := range found.warnings {
		found.warnings[i].Part = name
	}
	s.Problems, s.Warnings = append(s.Problems, found.problems...), append(s.Warnings, found.warnings...)
	if err == nil {
		return
	}
	message := oneLine(err)
	s.Unknown[name] = message
	same := func(p Problem) bool { return p.Message == message }
	if !errors.As(err, new(notHere)) && !slices.ContainsFunc(s.Problems, same) {
		s.Problems = append(s.Problems, Problem{Part: name, Message: message, Fix: fault.Hint(err)})
	}
}

// oneLine returns an error's text in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
