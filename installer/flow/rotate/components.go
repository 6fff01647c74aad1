package rotate

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"

	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/profile"
)

// components restarts the components of this host that have not read the files of the stage yet.
type components struct {
	*node.Machine
	run  *run
	pods *pods.StaticPods // without static pods on a worker
}

// replaceControllerManager makes the controller manager sign with the stage's CA. One with
// another signer of its own keeps it.
func (c *components) replaceControllerManager(ctx context.Context) error {
	former, err := c.ReadManifest(node.ControllerManager)
	if err != nil || former == nil {
		return err
	}
	manifest := former
	for flag, name := range map[string]string{"cluster-signing-cert-file": "ca.crt", "cluster-signing-key-file": "ca.key"} {
		manifest = c.withSigner(manifest, flag, name)
	}
	changed, err := c.pods.Replace(ctx, node.ControllerManager, manifest, former)
	c.Changed(changed)
	return err
}

// withSigner changes a flag of the controller manager that names a file of the CA.
func (c *components) withSigner(manifest []byte, flag, name string) []byte {
	own := func(dir string) string { return path.Join(c.run.config.CertificatesDir, dir, name) }
	pattern := regexp.MustCompile(`(--` + flag + `=)([^"'\s]+)`)
	return pattern.ReplaceAllFunc(manifest, func(arg []byte) []byte {
		key, value, _ := bytes.Cut(arg, []byte("="))
		if !slices.Contains([]string{own(""), own(pki.FormerCAs), own(pki.NextCAs)}, string(value)) {
			c.Console.Warn("%s signs with %s (--%s), which is not one of the rotated CAs: this flag is not changed", node.ControllerManager, value, flag)
			return arg
		}
		return fmt.Appendf(nil, "%s=%s", key, own(c.run.signer()))
	})
}

// restartStaticPods restarts the static pods that have not read the files of this stage yet.
func (c *components) restartStaticPods(ctx context.Context) error {
	if c.run.options.Stage != Distribute {
		if err := c.replaceControllerManager(ctx); err != nil {
			return err
		}
	}
	written, err := c.Host.Systemd().Newest(c.existingOf(pki.ReadByStaticPods(c.run.config)...))
	if err != nil {
		return err
	}
	for _, name := range c.pods.Names() {
		restarted, err := c.pods.RestartOlder(ctx, name, written)
		if err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
		c.Changed(restarted)
	}
	return c.run.client.WaitForAPI(ctx, timeout, c.Report)
}

// restartKubelet restarts a kubelet that has not read the files of this stage yet. One that gets
// its serving certificate from the cluster requests a new one.
func (c *components) restartKubelet(ctx context.Context) error {
	settings, err := node.KubeletConfiguration(c.Host)
	if err != nil {
		return err
	}
	current := pki.KubeletCertFile(c.run.config)
	stale, err := c.Host.Systemd().StartedBefore(ctx, "kubelet.service", c.existingOf(node.KubeletConf, settings.Authentication.X509.ClientCAFile, current)...)
	if err != nil {
		return err
	}
	serving := path.Join(path.Dir(current), "kubelet-server-current.pem")
	if stale && c.run.options.Stage == Issue && node.FileExists(c.Host, serving) {
		if err := c.Host.Remove(serving); err != nil {
			return err
		}
		if profile.SignsServing(&c.run.config.Cluster) {
			c.Console.Note("the kubelet requests a new serving certificate, which the cluster approves")
		} else {
			c.Console.Note("the kubelet requests a new serving certificate: approve it on a control plane with kubectl certificate approve")
		}
	}
	if stale {
		c.Changed(true)
		if err := c.pods.RestartKubelet(ctx); err != nil {
			return err
		}
	}
	return c.run.client.WaitForNodeReady(ctx, c.run.node, timeout, c.Report)
}

// existingOf returns the files that exist.
func (c *components) existingOf(files ...string) []string {
	return slices.DeleteFunc(files, func(file string) bool { return file == "" || !node.FileExists(c.Host, file) })
}
