// Package registrymirrors changes the registries of the site on a running node: their mirrors, CAs and credentials.
package registrymirrors

import (
	"context"
	"fmt"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/registry/hosts"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Mirrors gives this node a set of registries, and removes what left the set.
type Mirrors struct {
	*node.Machine
	registries []config.Registry
	change     *hosts.SiteChange
}

// New compares the files of this node with those for the registries. It refuses a host that is not a node of Airlift's, or whose
// containerd Airlift did not install.
func New(registries []config.Registry, h *host.Host, c *workflow.Console) (*Mirrors, error) {
	m := &Mirrors{Machine: node.NewMachine(h, c), registries: registries}
	if node.Observe(h).Role == node.NoNode {
		return nil, fault.New(fault.Preflight, "this host is not a node of a cluster").Hint("run it on a node; or give the flags to init or join: ./install join --help")
	}
	if err := node.Managed(h, ""); err != nil {
		return nil, err
	}
	if err := node.Unfinished(h); err != nil {
		return nil, err
	}
	if !h.Records().OwnsRuntime() {
		return nil, fault.New(fault.Preflight, "this node uses a containerd that Airlift did not install, and Airlift does not change its configuration").
			Hint("configure the registries yourself, in the directory of containerd's config_path: containerd config dump | grep config_path")
	}
	var err error
	m.change, err = hosts.NewSiteChange(h, registries)
	return m, err
}

func (m *Mirrors) steps() []workflow.Step {
	return []workflow.Step{{Name: "registries", Doc: "write the configuration that containerd reads at each pull", Run: m.apply}}
}

// Run changes the files. It is safe to run it again: it finishes what an interrupted run left.
func (m *Mirrors) Run(ctx context.Context) error {
	return workflow.Run(ctx, m.Console, m.steps(), nil)
}

func (m *Mirrors) apply(context.Context) error {
	m.Changed(!m.change.Empty())
	if err := m.change.Apply(m.Host); err != nil {
		return err
	}
	m.warn()
	m.Console.Summary(m.summary())
	return nil
}

// warn names what stays.
func (m *Mirrors) warn() {
	for _, name := range m.change.Left {
		m.Console.Warn("%s stays as it is, because Airlift did not write it, or it was edited since", name)
	}
}

func (m *Mirrors) summary() string {
	if m.Changes == 0 {
		return "Nothing was changed: this node has these registries already.\n"
	}
	var b strings.Builder
	b.WriteString("containerd uses this from the next pull:\n")
	settings := config.RecordRegistries(m.registries, nil).Settings
	for _, line := range settings {
		b.WriteString("  " + line + "\n")
	}
	if len(settings) == 0 {
		b.WriteString("  no mirrors, CAs or credentials of the site\n")
	}
	if m.Exists(hosts.Timer.UnitPath()) {
		b.WriteString("The timer " + hosts.Timer.Name + " adds the embedded registry to new files within two minutes.\n")
	}
	return b.String()
}

// DryRun prints what Run would do.
func (m *Mirrors) DryRun() {
	m.warn()
	var files []string
	for _, f := range m.change.Write {
		files = append(files, fmt.Sprintf("  write %s", f.Path))
	}
	for _, name := range m.change.Remove {
		files = append(files, fmt.Sprintf("  remove %s", name))
	}
	text := "Nothing was changed. The command would do this:\n\n" + strings.Join(files, "\n") + "\n"
	switch {
	case m.change.Empty():
		text = "Nothing was changed. This node has these registries already.\n"
	case len(files) == 0:
		text = "Nothing was changed. The command would only record the registries: the files are written already.\n"
	}
	m.Console.Summary(text)
	m.Console.Close()
}
