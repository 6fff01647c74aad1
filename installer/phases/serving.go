package phases

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/pki"
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

// StopServing stops the process, and removes its files.
func StopServing(ctx context.Context, m *node.Machine) error {
	if !m.Exists(serving.UnitPath) && !m.Exists(serving.SettingsPath) {
		return nil
	}
	return stopService(ctx, m, serving.Unit, serving.SettingsPath, serving.UnitPath)
}

// ResumeServing starts the process with the files that an undo restored.
func ResumeServing(ctx context.Context, m *node.Machine) error {
	if err := m.Host.Systemd().Enable(ctx, serving.Unit); err != nil {
		return err
	}
	return m.Host.Systemd().Restart(ctx, serving.Unit)
}

// DropServing removes the kubelet's link to its signed certificate, unless it requests one. Otherwise it would be reported when it expires.
func DropServing(m *node.Machine) error {
	settings, err := node.KubeletConfiguration(m.Existing)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil || settings.ServerTLSBootstrap:
		return err
	}
	file := ServingLink(m)
	if file == "" {
		return nil
	}
	m.Changed(true)
	return m.Host.Remove(file)
}

// ServingLink returns the path of the kubelet's link to its signed certificate, "" if it has none.
func ServingLink(m *node.Machine) string {
	file := path.Join(path.Dir(cmp.Or(pki.KubeletClientFile(m.Files()), path.Join(config.KubeletPKIDir, "any"))), serving.CertificateName)
	if !node.FileExists(m.Existing, file) {
		return ""
	}
	return file
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
