package join

import (
	"context"
	"io/fs"
	"path"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
)

// staticPods returns the static pods, and in front of them the files that the cluster keeps for flags of their components.
func (c *controlPlaneJoin) staticPods(ctx context.Context) (desired.List, error) {
	files, err := c.sharedFiles(ctx)
	if err != nil {
		return desired.List{}, err
	}
	pods, err := c.local.StaticPods()(ctx)
	return desired.List{Files: files}.Add(pods), err
}

// sharedFiles returns the files that "reconfigure --file" gave to all control planes. On a host that runs as a control plane
// already, only "reconfigure node" replaces them: it restarts what reads them.
func (c *controlPlaneJoin) sharedFiles(ctx context.Context) (list []pki.File, err error) {
	if c.Exists(node.APIServerManifest) {
		return nil, nil
	}
	if c.api.Client == nil {
		c.Console.Note("the files that the cluster keeps for flags are not written: there is no %s", node.AdminConf)
		return nil, nil
	}
	files, err := cluster.SharedFiles(ctx, c.api.Client.API, func() ([]byte, error) {
		return fs.ReadFile(c.Files(), strings.TrimPrefix(path.Join(c.node.Config.CertificatesDir, "sa.key"), "/"))
	})
	for _, f := range files {
		if len(reconfiguration.UsersOf(&c.node.Config.Cluster, f.Path)) > 0 {
			list = append(list, pki.File{Path: f.Path, Data: f.Data, Mode: 0o600})
		}
	}
	return list, err
}
