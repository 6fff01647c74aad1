package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/internal/fault"
)

// A File is a backup that was read to its end, and is complete.
type File struct {
	*backup.Backup
	Path       string // or the URL of a backup at a target, which was copied to file
	file       string
	close      func() error
	identities []age.Identity
}

// Open reads and checks a backup. It writes nothing.
func Open(ctx context.Context, path string, identities []age.Identity) (*File, error) {
	return openAt(ctx, path, path, identities)
}

// openAt reads a backup in a file, and names it by a path or a URL.
func openAt(ctx context.Context, path, file string, identities []age.Identity) (*File, error) {
	f := &File{Path: path, file: file, identities: identities}
	var err error
	f.Backup, err = f.readAgain(backup.Until(ctx, discard{}))
	return f, err
}

// Close removes the copy of a backup of a target.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// CopySnapshot reads the file again and writes its snapshot to w. It refuses another backup than the one
// that was opened.
func (f *File) CopySnapshot(ctx context.Context, w io.Writer) error {
	_, err := f.readAgain(backup.Until(ctx, w))
	return err
}

// readAgain reads the file and writes its snapshot to w.
func (f *File) readAgain(w io.Writer) (*backup.Backup, error) {
	in, err := os.Open(cmp.Or(f.file, f.Path))
	if err != nil {
		return nil, fault.New(fault.Usage, "reading the backup: %w", err).Hint("name a file that './install etcd snapshot' wrote")
	}
	defer in.Close()
	b, err := backup.Read(in, w, f.identities...)
	if err != nil {
		return nil, readFault(f.Path, err)
	}
	if f.Backup != nil && !reflect.DeepEqual(b.Manifest, f.Manifest) { // with the sha256 of everything else
		return nil, fault.New(fault.Bundle, "the backup %s was changed while this command was running", f.Path).Hint("copy it to a disk that only root can write to, and run the command again")
	}
	return b, nil
}

// readFault adds a hint to an error about a backup.
func readFault(path string, err error) error {
	code, hint := fault.Bundle, "copy the file again, or use another backup"
	switch {
	case errors.Is(err, backup.ErrEncrypted):
		code, hint = fault.Usage, "give the key with --identity FILE, or --passphrase"
	case errors.Is(err, backup.ErrOtherKey):
		code, hint = fault.Usage, "give the key of one of its recipients with --identity FILE, or the correct passphrase"
	case errors.Is(err, backup.ErrNotBackup), errors.Is(err, syscall.EISDIR):
		code, hint = fault.Usage, "name a file that './install etcd snapshot' wrote"
	}
	return fault.New(code, "reading the backup %s: %w", path, err).Hint(hint)
}

// Config returns the configuration of init that creates the cluster of the backup on another
// host: the cluster's, without what belongs to the node that wrote it.
func (f *File) Config() (*config.Config, []string, error) {
	c, warnings, err := config.ParseInit(f.Path+": "+backup.ConfigName, f.Files[backup.ConfigName])
	if err != nil {
		return nil, nil, err
	}
	if c.Etcd.External != nil {
		return nil, nil, fault.New(fault.Usage, "the cluster of this backup uses an external etcd").Hint("restore it with the tools of that etcd")
	}
	c.KubernetesVersion, c.CNI, c.Registry.Used = "", f.Manifest.CNI, f.Manifest.EmbeddedRegistry
	if e := f.Manifest.Endpoint; e != nil {
		c.Endpoint = *e
	}
	port := c.LocalAPIEndpoint.BindPort
	c.LocalAPIEndpoint, c.NodeRegistration, c.BootstrapTokens = config.APIEndpoint{BindPort: port}, config.NodeRegistration{}, nil
	return c, warnings, nil
}

// CheckVersion refuses a backup of another minor version of Kubernetes.
func (f *File) CheckVersion(b *payload.Bundle) error {
	is, want := config.Cluster{KubernetesVersion: b.KubernetesVersion()}, config.Cluster{KubernetesVersion: f.Manifest.KubernetesVersion}
	if is.Minor() == want.Minor() {
		return nil
	}
	return fault.New(fault.Preflight, "the backup %s is of Kubernetes %s, and this file has %s: a backup can be restored only with the same minor version", f.Path, want.KubernetesVersion, is.KubernetesVersion).
		Hint(fmt.Sprintf("use a file with Kubernetes v1.%d, and upgrade afterwards: ./FILE etcd restore %s", want.Minor(), fault.Word(f.Path)))
}
