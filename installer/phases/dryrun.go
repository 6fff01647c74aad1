package phases

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// A DryRun shows in a directory what the steps of a command would write: the host's files at their paths
// below it, and the cluster's objects below "cluster".
type DryRun struct {
	*node.Machine           // its Host is the directory
	Site          SiteFiles // writes the site's own files
	// OnlyChanges leaves out the files that the host has already.
	OnlyChanges bool
}

// Show writes the list of a step into the directory.
func (d DryRun) Show(ctx context.Context, step string, l desired.List) error {
	if len(l.Binaries)+len(l.Images) > 0 && !d.OnlyChanges {
		d.Console.Note("the bundle's %d binaries and %d images are not written", len(l.Binaries), len(l.Images))
	}
	for _, i := range l.Packages {
		d.Console.Note("would install the package %s", i)
	}
	if len(l.SiteFiles) > 0 {
		if err := d.Site.WriteAll(ctx); err != nil {
			return err
		}
	}
	for _, f := range l.Files {
		if err := d.file(f); err != nil {
			return err
		}
	}
	for _, m := range l.Documents {
		if err := d.object(step+"-"+m.Name, m.Data); err != nil {
			return err
		}
	}
	if len(l.Objects) == 0 {
		return nil
	}
	data, err := render.Manifest(l.Objects...)
	if err != nil {
		return err
	}
	return d.object(step, data)
}

func (d DryRun) file(f pki.File) error {
	if d.OnlyChanges {
		now, err := d.Present(f.Path)
		if err != nil || bytes.Equal(now, f.Data) {
			return err
		}
		d.Console.Note("%s changes", f.Path)
	}
	return d.Write(f)
}

func (d DryRun) object(name string, data []byte) error {
	return d.Write(pki.File{Path: "/cluster/" + strings.ReplaceAll(name, "/", "-") + ".yaml", Data: data, Mode: 0o600})
}

// Run runs the preview of steps, without the steps that skip names.
func (d DryRun) Run(ctx context.Context, steps []workflow.Step, skip []string) error {
	steps = workflow.Preview(steps, d.Show)
	return workflow.Run(ctx, d.Console, steps, onlyKnown(steps, skip))
}

// RunPhase runs the preview of one phase.
func (d DryRun) RunPhase(ctx context.Context, steps []workflow.Step, phase string) error {
	return workflow.RunPhase(ctx, d.Console, workflow.Preview(steps, d.Show), phase)
}

// NothingToShow reports, and prints, that a phase writes neither files nor objects.
func NothingToShow(steps []workflow.Step, phase string, c *workflow.Console) bool {
	if _, ok := workflow.Find(workflow.Preview(steps, nil), strings.TrimSuffix(phase, "/all")); ok {
		return false
	}
	c.Summary(fmt.Sprintf("The phase %s writes no files and no objects: with --dry-run it does nothing.\n", phase))
	c.Close()
	return true
}

// InDirectory does the dry run of what: run writes into a new directory instead
// of the host. KUBEADM_INIT_DRYRUN_DIR and kubeadm's other variables of this
// kind name the parent of that directory.
func InDirectory(what string, h *host.Host, c *workflow.Console, run func(*node.Machine) error) error {
	command, _, _ := strings.Cut(what, "-")
	where := cmp.Or(os.Getenv("KUBEADM_"+strings.ToUpper(command)+"_DRYRUN_DIR"), os.TempDir())
	output, err := host.NewDirectory(where, "airlift-"+what+"-dry-run-")
	if err != nil {
		return fmt.Errorf("creating a directory in %s for the dry run: %w", where, err)
	}
	c.Summary(fmt.Sprintf("Nothing was changed. The files that %s would write are in\n\n    %s\n\nThey may contain new private keys: remove the directory after you have read them.\n", strings.Replace(what, "-", " ", 1), output.Path("/")))
	if err := run(&node.Machine{Host: output, Existing: h, Console: c}); err != nil {
		return errors.Join(err, output.RemoveDirectory())
	}
	return nil
}

// onlyKnown returns the names in skip that exist among the steps.
func onlyKnown(steps []workflow.Step, skip []string) []string {
	return slices.DeleteFunc(slices.Clone(skip), func(name string) bool {
		_, ok := workflow.Find(steps, name)
		return !ok
	})
}
