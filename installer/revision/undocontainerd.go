package revision

import (
	"context"

	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/runtimecheck"
)

// checkContainerd refuses an undo that would restart containerd with files of other software with which it would not serve this node.
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
		u.Console.Warn("the files that containerd reads at its start cannot be checked: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	return phases.RefuseContainerdFiles(list, nil)
}
