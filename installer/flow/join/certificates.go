package join

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// sharedCerts puts the certificates that all control planes share on this host, and creates the certificates
// of this control plane, which the shared CAs sign.
type sharedCerts struct {
	*node.Machine
	node  *phases.Node
	join  *nodeJoin
	local *phases.ControlPlane
}

// checkReady checks that the cluster can have another control plane, and that
// this host has, or can download, the certificates that all control planes
// share.
func (c *sharedCerts) checkReady(found *discovery.Cluster) error {
	if c.node.Config.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight,
			"the cluster has no controlPlaneEndpoint, a stable address for more than one control plane").
			Hint("add one, on its control plane, with a free address in its subnet: ./install endpoint apply --control-plane-vip ADDRESS --control-plane-balancer; then join through that address, or see './install docs high-availability' for other endpoints")
	}
	if c.node.Config.CertificateKey != "" {
		return nil
	}
	if err := pki.CheckShared(c.node.Config, c.Files(), time.Now()); err != nil {
		return fault.Wrap(err, fault.Preflight,
			"copy them from a control plane's "+c.node.Config.CertificatesDir+", or download them with --certificate-key; to get the key, run on a control plane: ./install init phase upload-certs --upload-certs")
	}
	return c.checkCA(found.CA)
}

// checkCA checks that this host's CA is one of the cluster's trusted CAs.
func (c *sharedCerts) checkCA(trusted []byte) error {
	data, err := fs.ReadFile(c.Files(), strings.TrimPrefix(c.caFile(), "/"))
	if err != nil {
		return fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return c.checkCAData(data, trusted)
}

// caFile returns the path of the CA on this host.
func (c *sharedCerts) caFile() string { return path.Join(c.node.Config.CertificatesDir, "ca.crt") }

// checkCAData is checkCA for a ca.crt that is not on the host yet. This host
// signs with the first certificate in it.
func (c *sharedCerts) checkCAData(data, trusted []byte) error {
	mine, _ := pem.Decode(data)
	for rest := trusted; mine != nil; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if bytes.Equal(block.Bytes, mine.Bytes) {
			return nil
		}
	}
	hint := "copy the certificates from a control plane of this cluster, or remove them and give --certificate-key"
	if hashes, err := pki.CAHashes(data); err == nil && len(c.node.Config.Discovery.CACertHashes) > 0 {
		hint += "; if the cluster is replacing its CA, pass --discovery-token-ca-cert-hash " + hashes[0] + " too"
	}
	return fault.New(fault.Preflight, "%s is not the CA of the cluster at %s", c.caFile(), c.node.Config.ServerURL()).Hint(hint)
}

// download downloads the certificates that all control planes share,
// unless this host already has them.
func (c *sharedCerts) download(ctx context.Context) (l desired.List, err error) {
	if c.node.Config.CertificateKey == "" {
		c.Console.Note("no --certificate-key: using the certificates that are already on this host")
		return l, nil
	}
	if err := pki.CheckShared(c.node.Config, c.Files(), time.Now()); err == nil {
		return l, nil
	}
	client, err := cluster.New(c.join.cluster.found.Kubeconfig, "")
	if err != nil {
		return l, err
	}
	files, err := client.DownloadCerts(ctx, c.node.Config, c.node.Config.CertificateKey)
	if err != nil {
		return l, err
	}
	if ca := files[c.caFile()]; ca != nil {
		if err := c.checkCAData(ca, c.join.cluster.found.CA); err != nil {
			return l, err
		}
	}
	for name, data := range files {
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".crt") {
			mode = 0o644
		}
		l.Files = append(l.Files, pki.File{Path: name, Data: data, Mode: mode})
	}
	slices.SortFunc(l.Files, func(a, b pki.File) int { return cmp.Compare(a.Path, b.Path) })
	return l, nil
}

// createOwn creates this node's own certificates.
func (c *sharedCerts) createOwn(ctx context.Context) (desired.List, error) {
	if err := c.checkCA(c.join.cluster.found.CA); err != nil {
		return desired.List{}, err
	}
	return c.local.Certs()(ctx)
}
