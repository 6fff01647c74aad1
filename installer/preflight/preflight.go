// Package preflight finds out, before anything is changed, why a host cannot
// become a Kubernetes node, and says all of it at once, each problem with what
// to do. The checks have kubeadm's names where kubeadm has them.
package preflight

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// Role is what the host is to become.
type Role string

const (
	Init             Role = "init"
	Join             Role = "join"
	JoinControlPlane Role = "join-control-plane"
)

func (r Role) controlPlane() bool { return r != Join }

// Target is the host to check and what is planned for it.
type Target struct {
	Config *config.Config
	Role   Role
	// Root is where the host's root file system is: "/".
	Root string
	// Rerun says that this host is such a node of ours already: its files,
	// ports and data are in order.
	Rerun bool
	// Disk is what will be written where.
	Disk []Space
	// Binaries are the programs to install: another version of one, put
	// there by somebody else, is a problem.
	Binaries []host.Binary
	// Runtime is what is wrong with the host's own container runtime, if it
	// has one, as found by who talked to it.
	Runtime error
	// RuntimeInUse says that the host's own container runtime will be used.
	RuntimeInUse bool
	// RuntimeVersion is its containerd's: "1.7.29".
	RuntimeVersion string
	// Pods are those that the host's own container runtime has.
	Pods []string
	// MissingImages are what this node needs and the bundle does not bring,
	// by component.
	MissingImages []string
	// Kubelet is the KubeletConfiguration as it will be written, YAML; nil
	// where it is not known yet. The flags are always checked.
	Kubelet []byte
}

// Space is what will be written below a directory, which need not exist yet.
type Space struct {
	Path         string
	Bytes, Files uint64
	// Grows is how much more may be written there in time.
	Grows uint64
	// KeepFree is the percentage of the file system that the kubelet wants
	// free there, 0 for none.
	KeepFree uint64
}

// Problem is one thing that is wrong with a host.
type Problem struct {
	Name    string `json:"name"` // for --ignore-preflight-errors
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Minor warnings are for those who ask for detail.
	Minor bool `json:"minor,omitempty"`
}

// Report is everything that was found.
type Report struct {
	Warnings []Problem `json:"warnings"`
	Errors   []Problem `json:"errors"`
}

// Run makes every check for the target's role. Errors of the checks named in
// ignore ("all" names every one; upper and lower case are the same) become
// warnings. If any are left, the error is a fault.Preflight one that lists
// them all with their fixes.
func Run(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, (*subject).checks)
}

func run(ctx context.Context, t Target, ignore []string, checks func(*subject) []check) (Report, error) {
	h, err := host.Open(t.Root)
	if err != nil {
		return Report{}, err
	}
	s := &subject{Target: t, host: h, now: time.Now}
	report := Report{Warnings: []Problem{}, Errors: []Problem{}} // [] and not null in JSON
	for _, c := range checks(s) {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		for _, f := range c.run(ctx) {
			p := Problem{Name: c.name, Message: f.message, Fix: f.fix, Minor: f.minor}
			if f.warning || Ignored(c.name, ignore) {
				report.Warnings = append(report.Warnings, p)
			} else {
				report.Errors = append(report.Errors, p)
			}
		}
		if c.name == "IsPrivilegedUser" && len(report.Errors) > 0 {
			break // what the others found without root would mislead
		}
	}
	return report, report.err()
}

// Ignored says whether --ignore-preflight-errors names a check.
func Ignored(name string, ignore []string) bool {
	for _, i := range ignore {
		if strings.EqualFold(i, "all") || strings.EqualFold(i, name) {
			return true
		}
	}
	return false
}

func (r Report) err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	var b strings.Builder
	for _, p := range r.Errors {
		b.WriteString("\n")
		p.write(&b, "ERROR")
	}
	return fault.New(fault.Preflight, "a check that you know to be harmless can be passed over: --ignore-preflight-errors="+r.Errors[0].Name,
		"checking this host: %d problem(s) must be solved first:%s", len(r.Errors), b.String())
}

// Write prints the report, warnings first.
func (r Report) Write(w io.Writer) {
	for _, p := range r.Warnings {
		p.write(w, "WARNING")
		fmt.Fprintln(w)
	}
	for _, p := range r.Errors {
		p.write(w, "ERROR")
		fmt.Fprintln(w)
	}
}

func (p Problem) write(w io.Writer, level string) {
	fmt.Fprintf(w, "\t[%s %s]: %s", level, p.Name, p.Message)
	if p.Fix != "" {
		fmt.Fprintf(w, "\n\t    fix: %s", p.Fix)
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
