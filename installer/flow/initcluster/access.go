package initcluster

import (
	"cmp"
	"context"
	"errors"
	"io/fs"

	"airlift/installer/cluster"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/render"
)

// An access connects the steps of init to the API server, as an administrator.
type access struct {
	*node.Machine
	node       *phases.Node
	api        *phases.API
	kubeconfig string // of the user, for a phase that runs alone
	adminReady bool   // the user of admin.conf is an administrator
}

// admin prepares the steps after wait-control-plane. The step wait-control-plane makes the user of
// admin.conf an administrator. If it was skipped, or did not run before a phase that runs alone,
// admin does this, as in kubeadm.
func (a *access) admin(ctx context.Context) error {
	if err := a.client(ctx); err != nil {
		return err
	}
	if a.node.Plan.OnePhase || a.node.Plan.Skips("wait-control-plane") {
		return a.needAdmin(ctx)
	}
	return nil
}

// client creates the API client, unless an earlier step has. It uses --kubeconfig if given,
// else admin.conf if it exists, else kubelet.conf.
func (a *access) client(context.Context) (err error) {
	timeout := a.node.Config.Timeouts.KubernetesAPICall
	switch {
	case a.api.Client != nil:
	case a.otherKubeconfig():
		a.api.Client, err = cluster.Load(a.kubeconfig, "")
	case a.Exists(node.AdminConf):
		a.api.Client, err = node.LoadClient(a.Host, node.AdminConf, a.localURL(), timeout)
	default:
		a.api.Client, err = node.LoadClient(a.Host, node.KubeletConf, "", timeout)
	}
	return err
}

// otherKubeconfig reports whether the user chose another kubeconfig than admin.conf.
func (a *access) otherKubeconfig() bool {
	return a.kubeconfig != "" && a.kubeconfig != node.AdminConf
}

// localURL returns the URL of the API server of this host. If a phase runs alone, it reads the URL
// from the static pod, so the user need not repeat init's flags or file.
func (a *access) localURL() string {
	if a.node.Plan.OnePhase {
		return cmp.Or(node.OwnAPIServer(a.Host), a.node.Config.LocalURL())
	}
	return a.node.Config.LocalURL()
}

// superAdmin returns a client with super-admin.conf, nil if that does not exist.
func (a *access) superAdmin() (*cluster.Client, error) {
	client, err := node.LoadClient(a.Host, node.SuperAdminConf, a.localURL(), a.node.Config.Timeouts.KubernetesAPICall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return client, err
}

// needAdmin makes the user of admin.conf an administrator, once. Without
// super-admin.conf it does nothing.
func (a *access) needAdmin(ctx context.Context) error {
	if a.adminReady || a.otherKubeconfig() || !a.Exists(node.AdminConf) {
		return nil
	}
	superAdmin, err := a.superAdmin()
	if err != nil || superAdmin == nil {
		return err
	}
	if err := a.Applied(cluster.EnsureAdmin(ctx, a.api.Client, superAdmin, render.ClusterAdmins())); err != nil {
		return err
	}
	a.adminReady = true
	return nil
}
