package phases

import (
	"context"
	"fmt"
	"path"
	"slices"

	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/runtimecheck"
	"airlift/internal/fault"
)

// ContainerdProblems checks the files that the containerd of this node reads at its next start: those of the host, and those that are
// written before. Nothing restarts an existing containerd, so its problems are warnings.
func (n *Node) ContainerdProblems(ctx context.Context, files ...pki.File) (list []runtimecheck.Problem, err error) {
	if n.Observed.KeepsRuntime {
		return n.existingProblems(ctx)
	}
	written := map[string][]byte{}
	for _, f := range files {
		written[f.Path] = f.Data
	}
	list, err = node.OwnContainerdFiles(ctx, n.Existing, n.openContainerd, written)
	if err != nil && ctx.Err() == nil {
		return []runtimecheck.Problem{{Message: fmt.Sprintf("the files that containerd reads at its start cannot be checked: %v", err), Fix: "no action needed: they are checked again before containerd starts", Warning: true}}, nil
	}
	return list, err
}

// existingProblems is ContainerdProblems for an existing containerd. A process that cannot be seen has none.
func (n *Node) existingProblems(ctx context.Context) (list []runtimecheck.Problem, err error) {
	switch r := n.Observed.Runtime; {
	case n.Observed.RuntimeErr != nil:
		return nil, nil
	case r != nil && !n.Observed.IsNode:
		images := r.SandboxImages() // they get the bundle's pause image
		list, err = r.Files(ctx, func(name string) bool { return slices.Contains(images, name) })
	default:
		list, err = node.ContainerdFiles(ctx, n.Existing)
	}
	for i := range list {
		list[i].Warning = true
	}
	if err != nil && ctx.Err() == nil {
		n.Console.Debug(1, "the files that containerd reads at its start are not checked: %v", err)
		return nil, nil
	}
	return list, err
}

// openContainerd returns the bundle's containerd: the installed one, if it is the same, or else what the file has.
func (n *Node) openContainerd(ctx context.Context) (b runtimecheck.Binary, err error) {
	b.Path = n.Existing.Path(node.ContainerdPath)
	for _, e := range n.Plan.Bundle.Manifest.Entries {
		if node.BinaryPath(e.Name) != node.ContainerdPath {
			continue
		}
		if sum, err := filesystem.DigestFile(b.Path); err == nil && sum == e.SHA256 {
			break
		}
		data, err := n.Plan.Bundle.Document(ctx, e.Name)
		if err != nil {
			return b, err
		}
		return runtimecheck.Executable(data)
	}
	return b, nil
}

// importedFiles returns the site's own files in the bundle that containerd's configuration imports.
func (n *Node) importedFiles(ctx context.Context) (files []pki.File, err error) {
	if n.Plan.Skips("files") {
		return nil, nil
	}
	for entry, list := range n.Plan.SiteFiles() {
		for _, f := range list {
			if ok, _ := path.Match(render.ContainerdImports, f.Path); !ok {
				continue
			}
			data, err := n.Plan.Bundle.Document(ctx, entry)
			if err != nil {
				return nil, err
			}
			files = append(files, pki.File{Path: f.Path, Data: data})
		}
	}
	return files, nil
}

// firstContainerdProblems is ContainerdProblems for a host that becomes a node. A file that is damaged or has no pause image is
// reported by other checks.
func (n *Node) firstContainerdProblems(ctx context.Context) ([]runtimecheck.Problem, error) {
	files, err := ContainerdFiles(n.Config)
	if err != nil {
		return nil, nil
	}
	imported, err := n.importedFiles(ctx)
	if err != nil {
		return nil, ctx.Err()
	}
	return n.ContainerdProblems(ctx, append(files, imported...)...)
}

// CheckContainerd refuses to start or restart Airlift's containerd with files with which it would not serve this node, or that cannot be
// checked, unless the user ignores the check. files will be written before.
func (n *Node) CheckContainerd(ctx context.Context, ignore []string, files ...pki.File) error {
	list, err := n.ContainerdProblems(ctx, files...)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].File == "" { // now its binary is installed: it would hardly start
			list[i].Warning, list[i].Fix = false, "see why: containerd config dump; to restart containerd nevertheless: --ignore-preflight-errors="+runtimecheck.Name
		}
	}
	return RefuseContainerdFiles(list, ignore)
}

// RefuseContainerdFiles returns an error (fault.Preflight) that lists the problems, except warnings and those that the user ignores, or nil.
func RefuseContainerdFiles(list []runtimecheck.Problem, ignore []string) error {
	report := preflight.NewReport()
	report.AddFound(runtimecheck.Name, preflight.OfRuntime(list), ignore)
	if err := report.Err("checking the files that containerd reads at its start"); err != nil {
		return fault.Wrap(fmt.Errorf("containerd was not restarted: %w", err), fault.Preflight, fault.Hint(err))
	}
	return nil
}
