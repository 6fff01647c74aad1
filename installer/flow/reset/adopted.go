package reset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// The reset of an adopted node takes back what Airlift changed on it, and the node stays as it was adopted. With
// --remove-node, it removes the node as any other reset.

// isAdopted reports whether this reset leaves the node.
func (r *Reset) isAdopted() bool { return r.Host != nil && r.Host.Records().Adopted() != nil }

// adoptedSteps returns the steps in order for an adopted node. The pods, the certificates and etcd's member stay.
func (r *Reset) adoptedSteps() []workflow.Step {
	return committed(r, []workflow.Step{
		{Name: "preflight", Doc: "check that the node can be as it was adopted", Run: r.checkAdopted},
		{Name: "registry", Doc: "take this server of the embedded registry from the cluster", Run: func(ctx context.Context) error {
			r.leaveRegistry(ctx)
			return ctx.Err()
		}},
		{Name: "state", Doc: "remove the files that Airlift kept for the cluster", Run: r.onHost(uninstall.RemoveState)},
		{Name: "kubeconfig", Doc: "restore the servers in kubeconfigs", Run: r.restoreServers},
		{Name: "packages", Doc: "remove the packages that Airlift installed", Run: r.onHost(uninstall.RemovePackages)},
		{Name: "installed", Doc: "remove Airlift's units, binaries and files, and restore the originals", Run: r.restoreFiles},
		{Name: "kubelet", Doc: "restart the kubelet, if its files changed", Run: r.restartKubelet},
	})
}

// whyDisown is a part of hints.
const whyDisown = "or keep the node as it is, without Airlift: ./install disown"

// checkAdopted refuses to take changes back that the node needs: another version or configuration, new CAs, the endpoint of the cluster.
func (r *Reset) checkAdopted(ctx context.Context) error {
	cfg := node.Observe(r.Host).PKI()
	if err := cmp.Or(node.Unfinished(r.Host), node.RotationInProgress(r.Host, cfg)); err != nil {
		return err
	}
	adopted := r.Host.Records().Adopted()
	reconfigured, err := revision.Read(r.Host, revision.Reconfigure)
	if err != nil {
		return err
	}
	if reconfigured != nil {
		return fault.New(fault.Preflight, "this node was reconfigured after it was adopted").
			Hint("undo that first: ./install reconfigure undo; then run the same command again; " + whyDisown)
	}
	upgrade, err := revision.Read(r.Host, revision.Upgrade)
	if err != nil {
		return err
	}
	if upgrade != nil {
		return fault.New(fault.Preflight, "this node was upgraded from %s to %s after it was adopted", upgrade.From, upgrade.To).
			Hint("undo that first: ./install upgrade undo; then run the same command again; " + whyDisown)
	}
	if r.Exists(endpoint.SettingsPath) {
		return fault.New(fault.Preflight, "Airlift's endpoint serves this node: the cluster would not reach its API without it").
			Hint("change the endpoint of the cluster first: ./install endpoint undo; " + whyDisown)
	}
	if err := r.checkAdoptedEndpoint(ctx); err != nil {
		return err
	}
	if ca := node.CAFile(r.Host, cfg.CertificatesDir, adopted.Kubelet.Config); adopted.Files[ca] != "" {
		if now, err := filesystem.DigestFile(r.Host.Path(ca)); err != nil || now != adopted.Files[ca] {
			return fault.New(fault.Preflight, "the cluster's CA is not the one with which this node was adopted: the CAs were rotated").Hint("this cannot be taken back; " + strings.TrimPrefix(whyDisown, "or "))
		}
	}
	changed, err := r.replaced()
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		return fault.New(fault.Preflight, "this node does not have the version any more with which it was adopted, %s: these files differ: %s", adopted.Kubernetes, strings.Join(changed, ", ")).
			Hint("this cannot be taken back; " + strings.TrimPrefix(whyDisown, "or "))
	}
	return nil
}

// checkAdoptedEndpoint refuses to restore the servers in kubeconfigs while the cluster has another endpoint than before. A kubeconfig
// whose server was changed with it may have no original: another tool wrote it.
func (r *Reset) checkAdoptedEndpoint(ctx context.Context) error {
	if err := r.readEndpoint(ctx); err != nil {
		return err
	}
	if r.endpoint == nil || r.endpoint.Change == nil {
		return nil
	}
	change := r.endpoint.Change
	if !change.Undone {
		return fault.New(fault.Preflight, "the endpoint of the cluster was changed to %s: this node would not reach its API any more", change.Server).
			Hint("change it back first: ./install endpoint undo; then on each node: ./install endpoint node; " + whyDisown)
	}
	for _, file := range []string{node.KubeletConf, node.AdminConf} {
		data, err := r.Optional(file)
		if err != nil || data == nil {
			continue
		}
		if server, err := cluster.ServerOf(data); err == nil && server == change.Before.Server && server != change.Server {
			return fault.New(fault.Preflight, "this node does not follow the change of the cluster's endpoint: %s has %s", file, server).
				Hint("run first: ./install endpoint node; " + whyDisown)
		}
	}
	return nil
}

// readEndpoint reads the endpoint of the cluster. Without an API server it stays nil.
func (r *Reset) readEndpoint(ctx context.Context) error {
	kubeconfig := node.KubeletConf
	if r.IsControlPlane() {
		kubeconfig = r.etcd.adminKubeconfig()
	}
	r.endpoint = nil
	client, err := node.LoadClient(r.Existing, kubeconfig, "", r.etcd.timeout)
	if err == nil {
		probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
		defer cancel()
		if err = client.Accepts(probe); err == nil {
			var is config.Endpoint
			if is, err = client.Endpoint(probe); err == nil {
				r.endpoint = &is
			}
		}
	}
	if err != nil {
		r.Console.Debug(1, "the endpoint of the cluster is not known: %v", err)
	}
	return ctx.Err()
}

// leads reports whether the former server of a kubeconfig leads to the cluster. Without an API server to ask, it is only known
// that this host's own, which an upgrade wrote there, was not a change of the endpoint.
func (r *Reset) leads(now, former string) bool {
	own := node.OwnAPIServer(r.Existing)
	switch {
	case r.endpoint == nil:
		return own != "" && now == own
	case r.endpoint.Change == nil:
		return true
	}
	return former == own || former == r.endpoint.Change.Server
}

// replaced returns the files of components that Airlift replaced, and that are not the adopted ones: an upgrade or a
// reconfiguration of which no undo is possible.
func (r *Reset) replaced() (list []string, err error) {
	for _, kind := range []string{ledger.File, ledger.Binary} {
		for _, e := range r.Host.Records().Entries(kind) {
			if path.Dir(e.Name) != config.ManifestsDir && e.Name != kubeletBinary {
				continue
			}
			differs, err := r.differs(e)
			if err != nil {
				return nil, err
			}
			if differs {
				list = append(list, e.Name)
			}
		}
	}
	return list, nil
}

const kubeletBinary = "/usr/local/bin/kubelet"

// differs reports whether the file of an entry is not what was there before Airlift wrote it.
func (r *Reset) differs(e ledger.Entry) (bool, error) {
	sum := func(file string) (string, error) {
		if file == "" {
			return "", nil
		}
		s, err := filesystem.Sum(r.Host.Path(file))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return s, err
	}
	if e.Original != "" && !r.Exists(e.Original) {
		return false, nil // an interrupted reset has restored it
	}
	now, err := sum(e.Name)
	if err != nil {
		return false, err
	}
	before, err := sum(e.Original)
	return now != before, err
}

// restoreServers restores the servers in kubeconfigs that Airlift wrote. Their certificates stay: they may be renewed.
func (r *Reset) restoreServers(context.Context) error {
	var failures []error
	for _, e := range r.Host.Records().Entries(ledger.File) {
		if e.Original == "" || !uninstall.KeepsCredentials(r.Host, e) {
			continue
		}
		failures = append(failures, r.restoreServersOf(e))
	}
	return errors.Join(failures...)
}

func (r *Reset) restoreServersOf(e ledger.Entry) error {
	now, err := r.Optional(e.Name)
	if err != nil {
		return err
	}
	former, err := r.Optional(e.Original)
	if err != nil {
		return err
	}
	if path.Ext(e.Name) == ".conf" && now != nil && former != nil {
		data, err := r.withFormerServer(e.Name, now, former)
		if err != nil {
			return fmt.Errorf("restoring the server in %s: %w", e.Name, err)
		}
		if data != nil {
			if err := r.markKubelet(e.Name == node.KubeletConf); err != nil {
				return err
			}
			if err := r.Host.RenewFile(e.Name, data, 0o600); err != nil {
				return err
			}
		}
	}
	return r.Host.Records().Forget(e.Kind, e.Name)
}

// withFormerServer returns the kubeconfig of a file with the server of its original; nil if it has that, or is to keep another one.
func (r *Reset) withFormerServer(file string, now, original []byte) ([]byte, error) {
	server, err := cluster.ServerOf(now)
	if err != nil {
		return nil, err
	}
	former, err := cluster.ServerOf(original)
	if err != nil || server == former {
		return nil, err
	}
	if !r.leads(server, former) {
		r.Console.Warn("%s keeps the server %s: it is not known whether %s, which it had when this node was adopted, still leads to the cluster", file, server, former)
		return nil, nil
	}
	return cluster.WithServersOf(now, original)
}

// kubeletFiles are the files with which the kubelet starts.
var kubeletFiles = []string{kubeletBinary, config.KubeletConfigFile, config.KubeletFlagsFile, node.KubeletConf, render.KubeletUnitPath, render.KubeletDropInPath}

// markKubelet records that the kubelet must restart, before one of its files changes.
func (r *Reset) markKubelet(yes bool) error {
	if !yes {
		return nil
	}
	return r.Host.Records().Record(ledger.Entry{Kind: ledger.Restart, Name: "kubelet.service"})
}

// restoreFiles removes what Airlift installed, and restores what was there before.
func (r *Reset) restoreFiles(ctx context.Context) error {
	for _, kind := range []string{ledger.File, ledger.Binary} {
		for _, e := range r.Host.Records().Entries(kind) {
			if !slices.Contains(kubeletFiles, e.Name) {
				continue
			}
			differs, err := r.differs(e)
			if err == nil {
				err = r.markKubelet(differs)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := r.Host.Records().ForgetImageNames(r.Host.Records().ImageNames()...); err != nil { // pods may use the images
		return err
	}
	return r.removeInstalled(ctx)
}

// restartKubelet restarts the kubelet if its files changed, also if an interrupted reset restored them.
func (r *Reset) restartKubelet(ctx context.Context) error {
	if _, ok := r.Host.Records().Find(ledger.Restart, "kubelet.service"); !ok {
		return nil
	}
	static, err := pods.NewStaticPods(&config.Config{Timeouts: r.config.Timeouts}, r.Host, r.Console)
	if err != nil {
		return err
	}
	defer static.Close()
	if r.IsControlPlane() {
		if static.Turn, err = node.TryTurn(ctx, r.Machine, r.etcd.adminKubeconfig(), node.ShortPatience); err != nil {
			return err
		}
	}
	if err := r.Host.Systemd().Reload(ctx, "kubelet.service"); err != nil {
		return err
	}
	if err := static.RestartKubelet(ctx); err != nil {
		return err
	}
	if err := r.Host.Records().Forget(ledger.Restart, "kubelet.service"); err != nil {
		return err
	}
	return r.removeInstalled(ctx) // nothing is left but the ledger
}

// traces returns the paths of the node on this host, for its removal without a list of what created them.
func traces(h *host.Host, certificatesDir string) (uninstall.Traces, error) {
	t := uninstall.Traces{CertificatesDir: certificatesDir}
	_, volumes, err := node.ReadStaticPod(h, "etcd")
	t.EtcdDataDir = volumes["etcd-data"]
	return t, err
}

// adoptedWords is the summary of the reset of an adopted node.
func (r *Reset) adoptedWords() string {
	var b strings.Builder
	if r.Host.Records().HasEntries() {
		fmt.Fprintf(&b, "Phases were skipped: the files that they restore are still listed in %s. Run reset again to finish it.\n", ledger.Path)
	} else {
		b.WriteString("This node is as it was adopted. Its ledger stays: Airlift may change the node again.\nTo end that: ./install disown. To remove the node: ./install reset --remove-node\n")
	}
	for _, i := range uninstall.Left(r.Host, r.plan) {
		fmt.Fprintf(&b, "    left: %s\n", i)
	}
	return b.String()
}
