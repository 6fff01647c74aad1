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

// A hostPart changes the files and services of this host.
type hostPart struct {
	*node.Machine
	run *run
}

// addNames adds the names of the endpoint to the certificate of the API server, which reads it again by itself.
func (p *hostPart) addNames(ctx context.Context) error {
	made, err := pki.Rename(p.run.config, p.Files(), time.Now(), "apiserver")
	if err != nil {
		return err
	}
	return p.changeCertificate(ctx, made)
}

func (p *hostPart) changeCertificate(ctx context.Context, made pki.Result) error {
	for _, file := range made.Files {
		if err := p.Host.RenewFile(file.Path, file.Data, file.Mode); err != nil {
			return err
		}
		p.Console.Debug(1, "wrote %s", file.Path)
		p.Changed(true)
	}
	err := phases.WaitServed(ctx, p.Machine, p.run.config)
	if err == nil || ctx.Err() != nil {
		return err
	}
	p.Console.Warn("the API server does not read its certificate again: it is restarted (%v)", err)
	return p.restartAPIServer(ctx)
}

func (p *hostPart) restartAPIServer(ctx context.Context) error {
	static, err := pods.NewStaticPods(p.run.config, p.Host, p.Console)
	if err != nil {
		return err
	}
	static.Turn, p.run.turn = p.run.turn, nil // Close gives it up
	defer static.Close()
	if err := static.CheckOthers(ctx, []string{"kube-apiserver"}); err != nil {
		return err
	}
	if err := static.Restart(ctx, "kube-apiserver"); err != nil {
		return err
	}
	return phases.WaitServed(ctx, p.Machine, p.run.config)
}

// serve starts the service of this node, with what is new and what it had before.
func (p *hostPart) serve(ctx context.Context) error {
	servers, err := p.run.client.APIServers(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, s := range servers {
		known = append(known, s.String())
	}
	slices.Sort(known)
	list, err := phases.EndpointFiles(p.run.config, p.IsControlPlane(), known)
	if err != nil {
		return err
	}
	if len(list.Files) == 0 {
		p.Console.Note("this node needs no service: only control planes have the virtual address")
		return nil
	}
	if err := p.Host.InstallSelf(ctx); err != nil {
		return err
	}
	return phases.StartEndpoint(ctx, p.Machine, list)
}

// useEndpoint lets the kubelet of this node, and on a control plane its administrators, use the endpoint.
func (p *hostPart) useEndpoint(ctx context.Context) error {
	ready, err := p.reachable(ctx)
	if err != nil {
		return err
	}
	if p.run.late = !ready; p.run.late {
		p.Console.Note("not yet: the other control planes do not serve %s", p.run.config.Endpoint.Change.Server)
		return nil
	}
	if p.IsControlPlane() {
		for _, file := range []string{node.AdminConf, node.SuperAdminConf} {
			if _, err := p.point(file, p.run.config.Endpoint.Change.Server); err != nil {
				return err
			}
		}
	}
	changed, err := p.point(node.KubeletConf, p.run.kubeletServer())
	if err != nil {
		return err
	}
	if !p.IsControlPlane() { // the balancer that it used may be stopped now
		if p.run.client, err = node.LoadClient(p.Host, node.KubeletConf, "", 0); err != nil {
			return err
		}
	}
	stale, err := p.Host.Systemd().StartedBefore(ctx, "kubelet.service", node.KubeletConf)
	if err != nil || !changed && !stale {
		return err
	}
	if err := p.Host.Systemd().Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return p.run.client.Waits().WaitForNodeReady(ctx, p.run.config.NodeRegistration.Name, timeout, p.Report)
}

// reachable waits until the URLs that this node will use answer. If other control planes do not serve the endpoint yet,
// it does not wait: the virtual address is on the one that is etcd's leader.
func (p *hostPart) reachable(ctx context.Context) (bool, error) {
	patient := true
	if p.IsControlPlane() && !p.run.undoes() {
		planes, _, err := p.run.behind(ctx, func(n cluster.NodeState) bool { return p.run.serves(n) || n.Name == p.run.config.NodeRegistration.Name })
		if err != nil {
			return false, err
		}
		if patient = len(planes) == 0; !patient && !p.run.leadsToServing() {
			return false, nil
		}
	}
	for _, server := range slices.Compact([]string{p.run.config.Endpoint.Change.Server, p.run.kubeletServer()}) {
		client, err := node.LoadClient(p.Host, node.KubeletConf, server, 0)
		if err != nil {
			return false, err
		}
		if ready, _ := client.Ready(ctx); ready || !patient {
			if !ready {
				return false, ctx.Err()
			}
			continue
		}
		if err := client.Waits().WaitForAPI(ctx, timeout, p.Report); err != nil {
			return false, err
		}
	}
	return true, nil
}

// point sets the server in a kubeconfig of this host, if it exists.
func (p *hostPart) point(file, server string) (changed bool, err error) {
	data, err := os.ReadFile(p.Host.Path(file))
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
	p.Console.Debug(1, "%s: %s", file, server)
	p.Changed(true)
	return true, p.Host.RenewFile(file, data, 0o600)
}

// cleanup stops what this node does not need any more after an undo: on a worker at once, on a control plane when no other
// node uses it.
func (p *hostPart) cleanup(ctx context.Context) error {
	if !p.run.undoes() {
		return nil
	}
	if p.IsControlPlane() {
		planes, workers, err := p.run.behind(ctx, p.run.serves)
		if err != nil {
			return err
		}
		left := append(planes, workers...)
		if p.run.late = len(left) > 0; p.run.late {
			p.Console.Note("not yet: these nodes may use it: %s", strings.Join(left, ", "))
			return nil
		}
	}
	list, err := phases.EndpointFiles(p.run.config, p.IsControlPlane(), nil)
	switch {
	case err != nil:
		return err
	case len(list.Files) == 0:
		err = phases.StopEndpoint(ctx, p.Machine)
	default:
		err = p.serve(ctx)
	}
	if err != nil || !p.IsControlPlane() {
		return err
	}
	made, err := pki.Rename(p.run.config, p.Files(), time.Now(), "apiserver", p.run.formerNames()...)
	if err != nil { // its CA may be external
		p.Console.Warn("the API server's certificate keeps the names of the endpoint, which does no harm: %v", err)
		return nil
	}
	return p.changeCertificate(ctx, made)
}
