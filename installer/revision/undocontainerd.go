package revision

import (
	"context"
	"fmt"

	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/runtimecheck"
)

// checkContainerd refuses an undo that would restart containerd with files of other software that would end this node, or that
// cannot be checked, unless the user ignores the check.
func (u *Undo) checkContainerd(ctx context.Context) error {
	if !u.Host.Records().OwnsRuntime() {
		return nil
	}
	written, binary, restarts := map[string][]byte{}, node.ContainerdPath, u.record.IsPending(RuntimePart)
	for _, file := range []string{node.ContainerdPath, render.ContainerdConfigPath, render.ContainerdUnitPath} {
		former, err := filesystem.DigestFile(u.Host.Path(u.former.Place(file)))
		if err != nil { // there is none
			continue
		}
		if now, err := filesystem.DigestFile(u.Host.Path(file)); err == nil && now == former {
			continue
		}
		restarts = true
		switch file {
		case node.ContainerdPath:
			binary = u.former.Place(file)
		case render.ContainerdConfigPath:
			if written[file], err = u.former.Read(file); err != nil {
				return err
			}
		}
	}
	if !restarts {
		return nil
	}
	open := func(context.Context) (runtimecheck.Binary, error) {
		return runtimecheck.Binary{Path: u.Host.Path(binary)}, nil
	}
	list, err := node.OwnContainerdFiles(ctx, u.Host, open, written)
	if err != nil && ctx.Err() == nil {
		list, err = []runtimecheck.Problem{{
			Message: fmt.Sprintf("the files that containerd reads at its start cannot be checked: %v", err),
			Fix:     "see why: containerd config dump; to undo nevertheless: --ignore-preflight-errors=" + runtimecheck.Name,
		}}, nil
	}
	if err != nil {
		return err
	}
	return phases.RefuseContainerdFiles(list, u.IgnorePreflightErrors)
}
