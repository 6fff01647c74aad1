package initcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/desired"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// encryption is the key that encrypts Secrets.
type encryption struct {
	*node.Machine
	node *phases.Node
	api  *phases.API
	made []byte // the file with a key of this run
}

func (e *encryption) used() bool { return secrets.IsUsed(&e.node.Config.Cluster) }

// steps returns the step that creates the key, and the sub-phase of upload-config that stores it for other control planes.
func (e *encryption) steps(admin func(context.Context) error) (create, store workflow.Step) {
	return workflow.Step{Name: "encryption", Doc: "create the key that encrypts Secrets", Desired: e.desired, Apply: e.node.Apply, Empty: !e.used()},
		workflow.Step{Name: "encryption", Doc: "store the key for other control planes, encrypted", Prepare: admin, Run: e.store, Empty: !e.used()}
}

// desired returns the file with the key. One that exists stays: etcd may have values that only it can decrypt.
func (e *encryption) desired(context.Context) (l desired.List, err error) {
	data, err := e.read(secrets.File)
	switch {
	case err == nil:
		if _, err := secrets.Parse(data); err != nil {
			return l, fault.Wrap(fmt.Errorf("reading %s: %w", secrets.File, err), fault.Preflight, "restore it from a backup, or from another control plane")
		}
	case !errors.Is(err, fs.ErrNotExist):
		return l, err
	case e.hasData():
		return l, fault.New(fault.Preflight, "%s does not exist, and etcd on this host has data that may be encrypted with its keys", secrets.File).
			Hint("restore the file from a backup, or from another control plane")
	default:
		if e.made == nil {
			e.made = secrets.New().Text()
		}
		data = e.made
	}
	return desired.List{Files: []pki.File{{Path: secrets.File, Data: data, Mode: 0o600}}}, nil
}

func (e *encryption) read(file string) ([]byte, error) {
	return fs.ReadFile(e.Files(), strings.TrimPrefix(file, "/"))
}

// hasData reports whether etcd on this host has started.
func (e *encryption) hasData() bool {
	dir := e.node.Config.Etcd.Local.DataDir
	return node.FileExists(e.Existing, path.Join(dir, "member")) && !etcd.FirstStartInterrupted(e.Existing.Path(dir))
}

// store adds the file to the shared files of the control planes, encrypted with a key that is not in etcd. Later, only changes of the keys
// replace it there. In the data of a backup, the Secret may be one step behind the file of the backup.
func (e *encryption) store(ctx context.Context) error {
	if !e.used() {
		return nil
	}
	saKey := func() ([]byte, error) { return e.read(path.Join(e.node.Config.CertificatesDir, "sa.key")) }
	files, err := cluster.SharedFiles(ctx, e.api.Client.API, saKey)
	if err != nil {
		return err
	}
	data, err := e.read(secrets.File)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(files, func(f reconfiguration.File) bool { return f.Path == secrets.File })
	if i >= 0 && (e.node.Restored == nil || bytes.Equal(files[i].Data, data)) {
		return nil
	}
	key, err := saKey()
	if err != nil {
		return err
	}
	all := reconfiguration.Replace(files, []reconfiguration.File{{Path: secrets.File, Data: data}}, func(string) bool { return true })
	sealed, err := reconfiguration.Seal(key, all)
	if err != nil {
		return err
	}
	return e.Applied(e.api.Client.Apply(ctx, render.UploadFiles(sealed)...))
}
