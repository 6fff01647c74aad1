// Package preflight checks, before anything is changed, whether a host can become
// a Kubernetes node. It reports all problems at once, each with a fix. Checks that
// kubeadm has too have kubeadm's names.
package preflight

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/runtimecheck"
	"airlift/internal/fault"
)

// Role is the role that the host will have.
type Role string

const (
	Init             Role = "init"
	Join             Role = "join"
	JoinControlPlane Role = "join-control-plane"
)

// Target is the host to check and what is planned for it.
type Target struct {
	Config *config.Config
	Role   Role
	// Root is where the host's root file system is: "/".
	Root string
	// Rerun is set if this host already is such a node, installed by Airlift:
	// its existing files, ports and data are allowed.
	Rerun bool
	// Disk is how much will be written to which directories.
	Disk []Space
	// Binaries are the binaries to install. An existing other version that
	// Airlift did not install is a problem.
	Binaries []host.Binary
	// Files are the site's own files for this host.
	Files []host.SiteFile
	// Packages is why the packages of the bundle cannot be installed on this host, and PendingPackages how many are not
	// installed.
	Packages        error
	PendingPackages int
	// Runtime is the error of the host's own container runtime, if it has one
	// and it does not work.
	Runtime error
	// RuntimeInUse is set if the host's own container runtime will be used.
	RuntimeInUse bool
	// RuntimeVersion is the version of that containerd: "1.7.29".
	RuntimeVersion string
	// Snapshotter is that containerd's snapshotter for images.
	Snapshotter string
	// ContainerdFiles are the problems with files that containerd reads at its next start.
	ContainerdFiles []runtimecheck.Problem
	// Images is the directory to which the bundle's containerd unpacks images.
	Images string
	// Pods are the pods of the host's own container runtime.
	Pods []string
	// MissingImages are the components whose images this node needs and the
	// bundle does not have.
	MissingImages []string
	// NetworkPolicy is set if the bundle has the add-on that enforces NetworkPolicy objects.
	NetworkPolicy bool
	// Ingress is set if the bundle has the add-on that serves the IngressPorts of each node.
	Ingress bool
	// Kubelet is the KubeletConfiguration as it will be written, YAML; nil if
	// it is not known yet. The flags are always checked.
	Kubelet []byte
	// FailSwapOn is that field of the KubeletConfiguration, without the value that
	// Airlift sets on a host with swap; nil if it is not set or not known yet.
	FailSwapOn *bool
}

// runsAPIServer reports whether the host will run a control plane.
func (t Target) runsAPIServer() bool { return t.Role != Join }

// runsEtcd reports whether the host will run a member of the cluster's etcd.
func (t Target) runsEtcd() bool { return t.runsAPIServer() && t.Config.Etcd.External == nil }

// Space is the planned amount of data below a directory, which need not exist yet.
type Space struct {
	Path         string
	Bytes, Files uint64
	// Grows is how much more may be written there later.
	Grows uint64
	// KeepFree is the percentage of the file system that must stay free for
	// the kubelet; 0 for none.
	KeepFree uint64
}

// Problem is one thing that is wrong with a host.
type Problem struct {
	Name    string `json:"name"` // for --ignore-preflight-errors
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Minor warnings are shown by init and join only with -v 1.
	Minor bool `json:"minor,omitempty"`
	// Warning is set if the check passed nevertheless.
	Warning bool `json:"-"`
}

// Report is everything that was found.
type Report struct {
	Warnings []Problem `json:"warnings"`
	Errors   []Problem `json:"errors"`

	meant string // the error whose name the user probably misspelt in ignore
}

// essential are checks that no hint advises to ignore: without root and systemd, only a dry run works.
var essential = []string{"IsPrivilegedUser", "Systemd"}

// Run runs all checks for the target's role. Errors of the checks in ignore
// become warnings; "all" means every check, and case does not matter. If errors
// remain, it returns one error (fault.Preflight) that lists them with their
// fixes.
func Run(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, (*subject).checks)
}

// Endpoint is Run for a host of a running cluster that gets another endpoint: only the checks of that.
func Endpoint(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, (*subject).endpointChecks)
}

// Registry is Run for a control plane of a running cluster that begins to serve the embedded registry: only the checks of
// that.
func Registry(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, func(s *subject) []check {
		return append(s.registryChecks(), check{"DiskSpace", s.diskSpace}, check{"Firewall", s.firewall})
	})
}

func run(ctx context.Context, t Target, ignore []string, checks func(*subject) []check) (Report, error) {
	h, err := host.Open(t.Root)
	if err != nil {
		return Report{}, err
	}
	s := &subject{Target: t, host: h, now: time.Now, lookup: net.DefaultResolver.LookupHost, encrypts: encrypts}
	s.run = s.output
	report, list := NewReport(), checks(s)
	for _, c := range list {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		report.AddFound(c.name, c.run(ctx), ignore)
		if c.name == "IsPrivilegedUser" && len(report.Errors) > 0 {
			break // without root, the other checks would mislead
		}
	}
	for _, name := range ignore {
		known := slices.ContainsFunc(list, func(c check) bool { return strings.EqualFold(c.name, name) })
		if near := fault.Nearest(name, report.ignorable()); near != "" && !known {
			report.meant = near
		}
	}
	return report, report.Err("checking this host")
}

// NewReport returns a report without findings, whose lists are [] and not null in JSON.
func NewReport() Report { return Report{Warnings: []Problem{}, Errors: []Problem{}} }

// Add adds a problem to the warnings, if it is one or if the user ignores its check, or else to
// the errors.
func (r *Report) Add(p Problem, warning bool, ignore []string) {
	if warning || Ignored(p.Name, ignore) {
		r.Warnings = append(r.Warnings, p)
	} else {
		r.Errors = append(r.Errors, p)
	}
}

// AddFound adds what a check found.
func (r *Report) AddFound(check string, found []Problem, ignore []string) {
	for _, p := range found {
		p.Name = check
		r.Add(p, p.Warning, ignore)
	}
}

// Ignored reports whether --ignore-preflight-errors names a check.
func Ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(i string) bool { return strings.EqualFold(i, "all") || strings.EqualFold(i, name) })
}

// Err returns one error (fault.Preflight) that lists all errors with their fixes, or nil. what
// names the failed action: "checking this host".
func (r Report) Err(what string) error {
	if len(r.Errors) == 0 {
		return nil
	}
	var b strings.Builder
	Report{Errors: r.Errors}.Write(&b)
	return fault.New(fault.Preflight, "%s: %d problem(s) must be solved first:\n%s", what, len(r.Errors), strings.TrimSuffix(b.String(), "\n")).
		Hint(r.IgnoreHint())
}

// IgnoreHint returns the hint how to ignore an error, "" if none is harmless.
func (r Report) IgnoreHint() string {
	names := r.ignorable()
	switch {
	case r.meant != "":
		return "did you mean --ignore-preflight-errors=" + r.meant + "?"
	case len(names) == 0:
		return ""
	}
	return "to ignore an error that you know to be harmless: --ignore-preflight-errors=" + names[0]
}

// ignorable returns the names of the errors that may be harmless.
func (r Report) ignorable() (names []string) {
	for _, p := range r.Errors {
		if Ignorable(p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Ignorable reports whether the errors of a check may be harmless.
func Ignorable(name string) bool { return !slices.Contains(essential, name) }

// Write prints the report, warnings first.
func (r Report) Write(w io.Writer) {
	for i, p := range slices.Concat(r.Warnings, r.Errors) {
		level := "ERROR"
		if i < len(r.Warnings) {
			level = "WARNING"
		}
		fmt.Fprintf(w, "\t[%s %s]: %s\n", level, p.Name, p.Message)
		if p.Fix != "" {
			fmt.Fprintf(w, "\t    fix: %s\n", p.Fix)
		}
	}
}

// Names lists the names of the checks for a configuration, in their order.
func Names(t Target) []string {
	s := &subject{Target: t}
	var names []string
	for _, c := range s.checks() {
		names = append(names, c.name)
	}
	return names
}
