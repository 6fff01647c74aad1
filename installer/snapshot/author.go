package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"airlift/installer/backup"
	"airlift/installer/cluster/discovery"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// CACertHash returns the hash of the CA in the backup, as etcd snapshot has printed it.
func (f *File) CACertHash() string { return f.Manifest.CACertHash }

// CheckCA refuses a backup of a cluster whose CA has none of these hashes. Anyone with the public
// key can encrypt a file, and anyone who reaches the cluster can read its CA certificate. Only a
// file with the CA's key proves that its author had all secrets of the cluster. Without hashes, it
// only checks that the file is consistent.
func (f *File) CheckCA(hashes []string) error {
	pins, err := discovery.ParsePins(hashes)
	if err != nil {
		return fault.Wrap(fmt.Errorf("--ca-cert-hash: %w", err), fault.Usage, "sha256: and 64 hexadecimal digits, as './install etcd snapshot' and './install etcd status' print it")
	}
	ca := f.Files[backup.PKIDir+"ca.crt"]
	is, err := node.CAHash(ca)
	if err == nil && is != f.CACertHash() {
		err = fmt.Errorf("%w: its manifest has the CA hash %s, and its CA has %s", backup.ErrDamaged, f.CACertHash(), is)
	}
	if err != nil {
		return readFault(f.Path, err)
	}
	if len(pins) == 0 {
		return nil
	}
	if !slices.Contains(pins, is) {
		return fault.New(fault.Preflight, "the backup %s is of another cluster: its CA has the hash %s, want %s", f.Path, is, strings.Join(pins, " or ")).Hint("use a backup of this cluster; if its CAs were rotated after the backup, give the hash from that time")
	}
	key, ok := f.Files[backup.PKIDir+"ca.key"]
	if !ok {
		return fault.New(fault.Preflight, "the backup %s does not have the CA's key, so nothing proves who wrote it", f.Path).Hint("if you know that nobody has changed the file, run without --ca-cert-hash")
	}
	if err := pki.ProveKey(ca, key); err != nil {
		return fault.New(fault.Preflight, "the backup %s does not have the key of the CA that it names: %w", f.Path, err).Hint("do not use this file")
	}
	return nil
}
