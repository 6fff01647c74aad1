package phases

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
)

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

// OnlyKnown returns the names in skip that exist among the steps.
func OnlyKnown(steps []workflow.Step, skip []string) []string {
	return slices.DeleteFunc(slices.Clone(skip), func(name string) bool {
		_, ok := workflow.Find(steps, name)
		return !ok
	})
}
