package endpointchange

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
)

// addNames adds the names of the endpoint to the certificate of the API server, which reads it again by itself.
func (c *Change) addNames(ctx context.Context) error {
	made, err := pki.Rename(c.config, c.Files(), time.Now(), "apiserver")
	if err != nil {
		return err
	}
	return c.changeCertificate(ctx, made)
}

func (c *Change) changeCertificate(ctx context.Context, made pki.Result) error {
	for _, file := range made.Files {
		if err := c.Host.RenewFile(file.Path, file.Data, file.Mode); err != nil {
			return err
		}
		c.Console.Debug(1, "wrote %s", file.Path)
		c.Changed(true)
	}
	return phases.WaitServed(ctx, c.Machine, c.config, c.restartAPIServer)
}

func (c *Change) restartAPIServer(ctx context.Context) error {
	static, err := pods.NewStaticPods(c.config, c.Host, c.Console)
	if err != nil {
		return err
	}
	static.Turn, c.turn = c.turn, nil // Close gives it up
	defer static.Close()
	if err := static.CheckOthers(ctx, []string{"kube-apiserver"}); err != nil {
		return err
	}
	return static.Restart(ctx, "kube-apiserver")
}

// serve starts the service of this node, with what is new and what it had before.
func (c *Change) serve(ctx context.Context) error {
	servers, err := c.client.APIServers(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, s := range servers {
		known = append(known, s.String())
	}
	slices.Sort(known)
	list, err := phases.EndpointFiles(c.config, c.IsControlPlane(), known)
	if err != nil {
		return err
	}
	if len(list.Files) == 0 {
		c.Console.Note("this node needs no service: only control planes have the virtual address")
		return nil
	}
	if err := c.Host.InstallSelf(ctx); err != nil {
		return err
	}
	return phases.StartEndpoint(ctx, c.Machine, list)
}

// useEndpoint lets the kubelet of this node, and on a control plane its administrators, use the endpoint.
func (c *Change) useEndpoint(ctx context.Context) error {
	ready, err := c.reachable(ctx)
	if err != nil {
		return err
	}
	if c.late = !ready; c.late {
		c.Console.Note("not yet: the other control planes do not serve %s", c.config.Endpoint.Change.Server)
		return nil
	}
	if c.IsControlPlane() {
		for _, file := range []string{node.AdminConf, node.SuperAdminConf} {
			if _, err := c.point(file, c.config.Endpoint.Change.Server); err != nil {
				return err
			}
		}
	}
	changed, err := c.point(node.KubeletConf, c.kubeletServer())
	if err != nil {
		return err
	}
	if !c.IsControlPlane() { // the balancer that it used may be stopped now
		if c.client, err = node.LoadClient(c.Host, node.KubeletConf, "", 0); err != nil {
			return err
		}
	}
	stale, err := c.Host.Systemd().StartedBefore(ctx, "kubelet.service", node.KubeletConf)
	if err != nil || !changed && !stale {
		return err
	}
	if err := c.Host.Systemd().Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return c.client.WaitForNodeReady(ctx, c.config.NodeRegistration.Name, timeout, c.Report)
}

// reachable waits until the URLs that this node will use answer. If other control planes do not serve the endpoint yet,
// it does not wait: the virtual address is on the one that is etcd's leader.
func (c *Change) reachable(ctx context.Context) (bool, error) {
	patient := true
	if c.IsControlPlane() && !c.undoes() {
		planes, _, err := c.behind(ctx, func(n cluster.NodeState) bool { return c.serves(n) || n.Name == c.config.NodeRegistration.Name })
		if err != nil {
			return false, err
		}
		if patient = len(planes) == 0; !patient && !c.leadsToServing() {
			return false, nil
		}
	}
	for _, server := range slices.Compact([]string{c.config.Endpoint.Change.Server, c.kubeletServer()}) {
		client, err := node.LoadClient(c.Host, node.KubeletConf, server, 0)
		if err != nil {
			return false, err
		}
		if ready, _ := client.Ready(ctx); ready || !patient {
			if !ready {
				return false, ctx.Err()
			}
			continue
		}
		if err := client.WaitForAPI(ctx, timeout, c.Report); err != nil {
			return false, err
		}
	}
	return true, nil
}

// point sets the server in a kubeconfig of this host, if it exists.
func (c *Change) point(file, server string) (changed bool, err error) {
	data, err := os.ReadFile(c.Host.Path(file))
	if os.IsNotExist(err) && file == node.SuperAdminConf {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	client, err := cluster.New(data, "")
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", file, err)
	}
	if client.Server == server {
		return false, nil
	}
	if data, err = cluster.WithServer(data, server); err != nil {
		return false, fmt.Errorf("reading %s: %w", file, err)
	}
	c.Console.Debug(1, "%s: %s", file, server)
	c.Changed(true)
	return true, c.Host.RenewFile(file, data, 0o600)
}

// cleanup stops what this node does not need any more after an undo: on a worker at once, on a control plane when no other
// node uses it.
func (c *Change) cleanup(ctx context.Context) error {
	if !c.undoes() {
		return nil
	}
	if c.IsControlPlane() {
		planes, workers, err := c.behind(ctx, c.serves)
		if err != nil {
			return err
		}
		left := append(planes, workers...)
		if c.late = len(left) > 0; c.late {
			c.Console.Note("not yet: these nodes may use it: %s", strings.Join(left, ", "))
			return nil
		}
	}
	list, err := phases.EndpointFiles(c.config, c.IsControlPlane(), nil)
	switch {
	case err != nil:
		return err
	case len(list.Files) == 0:
		err = phases.StopEndpoint(ctx, c.Machine)
	default:
		err = c.serve(ctx)
	}
	if err != nil || !c.IsControlPlane() {
		return err
	}
	made, err := pki.Rename(c.config, c.Files(), time.Now(), "apiserver", c.formerNames()...)
	if err != nil { // its CA may be external
		c.Console.Warn("the API server's certificate keeps the names of the endpoint, which does no harm: %v", err)
		return nil
	}
	return c.changeCertificate(ctx, made)
}
