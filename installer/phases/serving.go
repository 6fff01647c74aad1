package phases

import (
	"context"
	"path"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/profile"
	"airlift/installer/serving"
)

// ServingFiles returns the settings and the unit of the process that approves serving certificates of kubelets, nothing if the
// cluster does not sign them.
func (n *Node) ServingFiles(context.Context) (l desired.List, err error) {
	if !profile.SignsServing(&n.Config.Cluster) {
		return l, nil
	}
	l.Files, err = serving.For(n.Config).Files()
	return l, err
}

// StartServing starts the process with these files.
func (n *Node) StartServing(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	if err := n.needCommand(ctx); err != nil {
		return err
	}
	return startService(ctx, n.Machine, serving.Unit, l.Files)
}

// RestartServing makes the process of this host, if it has one, run a new copy of the installer.
func RestartServing(ctx context.Context, m *node.Machine) error {
	if !m.Exists(serving.UnitPath) {
		return nil
	}
	return m.Host.Systemd().Restart(ctx, serving.Unit)
}

// servingTimeout is more than an approval needs, also of a control plane whose process has to start again.
const servingTimeout = time.Minute

// WaitServing waits for the kubelet's serving certificate: without it, kubectl logs and exec do not reach this node. The node works
// without them, so a certificate that is missing is only a warning.
func (n *Node) WaitServing(ctx context.Context) error {
	if !profile.SignsServing(&n.Config.Cluster) {
		return nil
	}
	file := path.Join(n.Config.NodeRegistration.KubeletCertDir(), serving.CertificateName)
	w := wait.For{What: "the kubelet's serving certificate", Timeout: servingTimeout, Interval: time.Second / 2, Report: n.Report}
	err := w.Until(ctx, nil, func(context.Context) (bool, string, error) {
		return node.FileExists(n.Host, file), "no control plane has approved it", nil
	})
	if err != nil && ctx.Err() == nil {
		n.Console.Warn("%v", err)
		n.Console.Note("%s", serving.Hint(n.Config.NodeRegistration.Name))
	}
	return ctx.Err()
}
