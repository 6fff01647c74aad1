// Package adopt takes over nodes that other tools made, and ends that.
package adopt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"airlift/installer/adoption"
	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Options are the user's options.
type Options struct {
	// Target is the version of Kubernetes in this file, v1.30.4.
	Target string
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// An Adopt takes over the node on this host. It writes the ledger and the command airlift, and nothing else.
type Adopt struct {
	*node.Machine
	options Options
	result  *Result
	entry   ledger.Adoption // what the ledger gets
	// read gathers the facts; tests replace it.
	read func(context.Context, *cluster.Client) (adoption.Input, error)
}

// A Result is what adopt found. Its JSON is documented in docs/adopt.md: fields are only added.
type Result struct {
	Node       string `json:"node"`
	Role       string `json:"role"` // control-plane or worker
	Maker      string `json:"maker,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"` // the version of the kubelet when the node was adopted
	// Adopted reports whether the node is adopted now, and Time since when.
	Adopted bool       `json:"adopted"`
	Time    *time.Time `json:"time,omitempty"`
	// Findings are odd, with what an upgrade does about each. Refusals are why the node cannot be adopted.
	Findings []adoption.Finding `json:"findings"`
	Refusals []adoption.Finding `json:"refusals"`

	managed string // why there is nothing to do; "" if there is
}

// New returns an Adopt of this host.
func New(o Options, h *host.Host, c *workflow.Console) *Adopt {
	a := &Adopt{Machine: node.NewMachine(h, c), options: o}
	a.read = func(ctx context.Context, client *cluster.Client) (adoption.Input, error) {
		return adoption.Read(ctx, h, client.API, o.Target)
	}
	return a
}

// Run adopts the node. The result is nil if it was not even looked at; a refusal is an error, and has one.
func (a *Adopt) Run(ctx context.Context) (*Result, error) {
	err := workflow.Run(ctx, a.Console, []workflow.Step{
		{Name: "preflight", Doc: "recognise what made this node, and how", Run: a.preflight, Reads: true},
		{Name: "record", Doc: "write the ledger, and install the command airlift", Run: a.record},
	}, nil)
	return a.result, err
}

// DryRun is Run without the ledger.
func (a *Adopt) DryRun(ctx context.Context) (*Result, error) {
	err := a.preflight(ctx)
	if err == nil {
		a.Console.Summary(a.result.Text())
		a.Console.Close()
	}
	return a.result, err
}

// preflight finds out whether the node can be adopted. It changes nothing.
func (a *Adopt) preflight(ctx context.Context) error {
	if err := a.checkHost(); err != nil || a.result != nil {
		return err
	}
	kubeconfig := a.options.Kubeconfig
	if kubeconfig == "" {
		kubeconfig = a.Host.Path(node.KubeletConf)
		if a.IsControlPlane() {
			kubeconfig = a.Host.Path(node.AdminConf)
		}
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return fault.Wrap(err, fault.Preflight, "run it as root on a node, or set --kubeconfig")
	}
	if err := cluster.Answering(ctx, client, fault.Preflight); err != nil {
		return err
	}
	in, err := a.read(ctx, client)
	if err != nil {
		return err
	}
	report := adoption.Recognise(in)
	a.entry = report.Adoption
	if err := a.addCA(); err != nil {
		return err
	}
	if err := a.checkCommand(); err != nil {
		return err
	}
	a.result = a.newResult("")
	a.result.Maker, a.result.Kubernetes = report.Maker, report.Adoption.Kubernetes
	a.result.Findings = append(a.result.Findings, report.Findings...)
	a.result.Refusals = append(a.result.Refusals, report.Refusals...)
	return a.result.refused()
}

// checkHost refuses a host that is no node, and ends the run on one that Airlift manages.
func (a *Adopt) checkHost() error {
	h := a.Existing
	if err := node.Unfinished(h); err != nil {
		return err
	}
	switch is := h.Records().Adopted(); {
	case is != nil:
		a.result = a.newResult("This node was adopted on " + is.Time.UTC().Format(time.DateTime) + " UTC, from " + is.Maker + ", with " + is.Kubernetes + ". There is nothing to do.\n")
		a.result.Maker, a.result.Kubernetes, a.result.Adopted, a.result.Time = is.Maker, is.Kubernetes, true, &is.Time
	case !node.FileExists(h, node.KubeletConf):
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not exist", node.KubeletConf).Hint("run it on a node; to make this host one: ./install init, or ./install join")
	case h.Records().RanNode():
		a.result = a.newResult("Airlift installed this node. There is nothing to adopt.\n")
	case h.Records().Manages():
		return fault.New(fault.Preflight, "Airlift has changed this host before another tool made it a node: its ledger has entries").
			Hint("remove what they list: see ./install reset --dry-run; then ./install reset, and ./install adopt")
	case pki.NodeName(a.Files()) == "":
		return fault.New(fault.Preflight, "%s does not have this node's name", node.KubeletConf).Hint("see ./install docs certificates: a kubelet whose certificate has expired")
	}
	return nil
}

func (a *Adopt) newResult(managed string) *Result {
	r := &Result{Node: pki.NodeName(a.Files()), Role: node.Worker, Findings: []adoption.Finding{}, Refusals: []adoption.Finding{}, managed: managed}
	if a.IsControlPlane() {
		r.Role = node.ControlPlane
	}
	return r
}

// checkCommand refuses a host that has another file with the name of the command airlift.
func (a *Adopt) checkCommand() error {
	b, err := a.Host.Command()
	if err == nil {
		_, err = a.Existing.HasBinary(b)
	}
	return err
}

// addCA adds the CA to the files of the entry: after a rotation of the CAs, reset cannot take back what Airlift changed.
func (a *Adopt) addCA() error {
	ca := node.CAFile(a.Existing, node.Observe(a.Existing).PKI().CertificatesDir, a.entry.Kubelet.Config)
	sum, err := filesystem.DigestFile(a.Existing.Path(ca))
	if err != nil {
		return fault.Wrap(fmt.Errorf("reading the cluster's CA: %w", err), fault.Preflight, "copy it from another node")
	}
	if a.entry.Files == nil {
		a.entry.Files = map[string]string{}
	}
	a.entry.Files[ca] = sum
	return nil
}

// refused returns all reasons against an adoption as one error.
func (r *Result) refused() error {
	if len(r.Refusals) == 0 {
		return nil
	}
	var list preflight.Report
	for _, f := range r.Refusals {
		list.Errors = append(list.Errors, preflight.Problem{Name: f.Name, Message: f.What + " (" + f.Where + "): " + f.Effect, Fix: f.Hint})
	}
	var b strings.Builder
	list.Write(&b)
	return fault.New(fault.Preflight, "this node cannot be adopted, and nothing was changed:\n%s", strings.TrimSuffix(b.String(), "\n")).
		Hint("solve each of them, and run the same command again; docs: ./install docs adopt")
}

// record writes the ledger, with one write, and installs the command airlift.
func (a *Adopt) record(ctx context.Context) error {
	defer func() { a.Console.Summary(a.result.Text()) }()
	switch {
	case a.result.Adopted: // by a former build, or a run that was killed
		return a.Host.InstallSelf(ctx)
	case a.result.managed != "":
		return nil
	}
	now := time.Now().UTC().Truncate(time.Second)
	a.entry.Time = now
	if err := a.Host.Records().Adopt(a.entry); err != nil {
		return err
	}
	a.result.Adopted, a.result.Time = true, &now
	a.Changed(true)
	return a.Host.InstallSelf(ctx)
}

// Text is the result for people.
func (r *Result) Text() string {
	if r.managed != "" {
		return r.managed
	}
	out := &strings.Builder{}
	if r.Maker != "" {
		fmt.Fprintf(out, "Node %s, %s, was made by %s and has Kubernetes %s.\n", r.Node, r.Role, r.Maker, r.Kubernetes)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintf(out, "\nThese differ from a node of Airlift's:\n")
	}
	last := ""
	for _, f := range r.Findings {
		if f.Name != last {
			fmt.Fprintf(out, "\n  %s\n", f.Name)
		}
		last = f.Name
		fmt.Fprintf(out, "    - %s\n", f.What)
		if !strings.Contains(f.What, f.Where) {
			fmt.Fprintf(out, "        where:   %s\n", f.Where)
		}
		fmt.Fprintf(out, "        upgrade: %s\n", f.Effect)
		if f.Hint != "" {
			fmt.Fprintf(out, "        hint:    %s\n", f.Hint)
		}
	}
	switch {
	case len(r.Refusals) > 0:
	case r.Adopted:
		fmt.Fprintf(out, "\nThis node is adopted: its ledger, %s, and the command airlift were written, and nothing else.\nAdopt each node. Then see what an upgrade would change: ./install upgrade plan\n", ledger.Path)
	default:
		fmt.Fprint(out, "\nNothing was changed. To adopt this node: ./install adopt\n")
	}
	return out.String()
}
