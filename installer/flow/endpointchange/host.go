package endpointchange

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/preflight"
)

// preflight waits until no other control plane changes the cluster, and checks the new endpoint on this host.
func (c *Change) preflight(ctx context.Context) (err error) {
	if c.IsControlPlane() {
		if c.turn, err = node.TakeTurn(ctx, c.Machine, c.TurnName(), node.AdminConf, 0, c.client.Server); err != nil {
			return err
		}
		undoes, used := c.undoes(), c.config.Endpoint.Used()
		if err := c.find(ctx); err != nil { // as it is now
			return err
		}
		if c.undoes() != undoes || c.config.Endpoint.Used() != used { // the steps are for the former one
			return fault.New(fault.Failure, "another control plane has changed the endpoint meanwhile").Hint("run the same command again")
		}
	}
	for _, w := range c.warnings {
		c.Console.Warn("%s", w)
	}
	for line := range strings.Lines(c.Describe()) {
		c.Console.Note("%s", strings.TrimSpace(line))
	}
	if c.config.Endpoint.Change == nil {
		return nil
	}
	if c.undoes() {
		return c.checkFormer(ctx)
	}
	if err := c.checkCertificate(); err != nil {
		return err
	}
	t := preflight.Target{Config: c.config, Root: string(c.Existing.Root), Rerun: c.Exists(endpoint.SettingsPath), Role: preflight.Join}
	if c.IsControlPlane() {
		t.Role = preflight.JoinControlPlane
		if c.newAddress() {
			t.Role = preflight.Init
		}
	}
	report, err := preflight.Endpoint(ctx, t, c.options.IgnorePreflightErrors)
	for _, w := range report.Warnings {
		c.Console.Warn("[%s]: %s", w.Name, w.Message)
	}
	return err
}

// checkFormer waits until the API answers where it is after an undo, before anything is sent there.
func (c *Change) checkFormer(ctx context.Context) error {
	_, err := c.reachable(ctx)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Preflight, "nothing was changed: the former endpoint must answer on this host, try: curl -k "+c.config.Endpoint.Change.Server+"/readyz")
	}
	return err
}

// checkCertificate fails if the API server of this host cannot get the names of the endpoint: its CA may be external.
func (c *Change) checkCertificate() error {
	if !c.IsControlPlane() {
		return nil
	}
	_, err := pki.RenameAPIServer(c.config, c.Files(), time.Now())
	if err != nil {
		return fmt.Errorf("the API server's certificate needs the names %s: %w", strings.Join(c.names(), ", "), err)
	}
	return nil
}

// newAddress reports whether no control plane can have the virtual address yet.
func (c *Change) newAddress() bool {
	last := c.stored.Endpoint.Change
	undone := last != nil && last.Undone && slices.Equal(last.Before.VIPs, c.config.Endpoint.VIPs)
	return len(c.stored.Endpoint.VIPs) == 0 && !undone
}

// addNames adds the names of the endpoint to the certificate of the API server, which reads it again by itself.
func (c *Change) addNames(ctx context.Context) error {
	made, err := pki.RenameAPIServer(c.config, c.Files(), time.Now())
	if err != nil {
		return err
	}
	return c.changeCertificate(ctx, made, c.names())
}

// names are the names at which clients reach the API server through the endpoint.
func (c *Change) names() []string {
	names := c.config.EndpointNames()
	if host, _, err := config.SplitEndpoint(c.config.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return names
}

func (c *Change) changeCertificate(ctx context.Context, made pki.Result, names []string) error {
	for _, file := range made.Files {
		if err := c.Host.RenewFile(file.Path, file.Data, file.Mode); err != nil {
			return err
		}
		c.Console.Debug(1, "wrote %s", file.Path)
		c.Changed(true)
	}
	err := c.waitServed(ctx, names)
	if err == nil || ctx.Err() != nil {
		return err
	}
	c.Console.Warn("the API server does not read its certificate again: it is restarted (%v)", err)
	return c.restartAPIServer(ctx, names)
}

// reloadTimeout is more than the minute in which an API server reads its certificate again if it missed the change
// (FileRefreshDuration of k8s.io/apiserver).
const reloadTimeout = 90 * time.Second

// waitServed waits until the API server of this host has a certificate for the names.
func (c *Change) waitServed(ctx context.Context, names []string) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.client.CA)
	address := strings.TrimPrefix(c.config.LocalURL(), "https://")
	w := wait.For{What: "the API server to use its new certificate", Timeout: reloadTimeout, Attempt: 10 * time.Second, Report: c.Report}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		for _, name := range names {
			dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name}}
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return false, err.Error(), nil
			}
			_ = conn.Close()
		}
		return true, "", nil
	})
}

func (c *Change) restartAPIServer(ctx context.Context, names []string) error {
	static, err := pods.NewStaticPods(c.config, c.Host, c.Console)
	if err != nil {
		return err
	}
	static.Turn, c.turn = c.turn, nil // Close gives it up
	defer static.Close()
	if err := static.CheckOthers(ctx, []string{"kube-apiserver"}); err != nil {
		return err
	}
	if err := static.Restart(ctx, "kube-apiserver"); err != nil {
		return err
	}
	return c.waitServed(ctx, names)
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
	return c.client.Waits().WaitForNodeReady(ctx, c.config.NodeRegistration.Name, timeout, c.Report)
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
		if err := client.Waits().WaitForAPI(ctx, timeout, c.Report); err != nil {
			return false, err
		}
	}
	return true, nil
}

// leadsToServing reports whether the endpoint leads only to control planes that serve it, and so have its names in their
// certificates: a virtual address does. The balancer and a load balancer also lead to the others.
func (c *Change) leadsToServing() bool {
	host, _, err := config.SplitEndpoint(c.config.ControlPlaneEndpoint, config.DefaultBindPort)
	return err == nil && !c.config.Endpoint.Balancer && slices.Contains(c.config.Endpoint.VIPs, host)
}

// kubeletServer is the URL at which the kubelet of this node reaches the API.
func (c *Change) kubeletServer() string { return c.config.KubeletURL(c.IsControlPlane()) }

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
	made, err := pki.RenameAPIServer(c.config, c.Files(), time.Now(), c.formerNames()...)
	if err != nil { // its CA may be external
		c.Console.Warn("the API server's certificate keeps the names of the endpoint, which does no harm: %v", err)
		return nil
	}
	return c.changeCertificate(ctx, made, c.names())
}

// formerNames are the names of the endpoint that was undone.
func (c *Change) formerNames() []string {
	former := *c.config
	before := c.config.Endpoint.Change.Before
	former.Endpoint = config.Endpoint{VIPs: before.VIPs, Balancer: before.Balancer}
	names := former.EndpointNames()
	if host, _, err := config.SplitEndpoint(before.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == c.config.LocalAPIEndpoint.AdvertiseAddress })
}
