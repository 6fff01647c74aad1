package phases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/registry/images"
	"airlift/internal/fault"
)

// UsesRegistry reports whether containerd of this host asks the embedded registry of its cluster for images.
func UsesRegistry(m *node.Machine) bool {
	return m.Exists(hosts.Timer.UnitPath()) && m.Existing.Records().OwnsRuntime()
}

// listTimeout limits the wait for a control plane's list of images.
const listTimeout = 10 * time.Second

// ServedImages asks all control planes which images they serve, with the certificate of this host's kubelet, and returns
// what any of them serves to containerd of this host: not images of registries that the site configured itself. It fails
// if none answers.
func ServedImages(ctx context.Context, m *node.Machine) ([]images.Served, error) {
	kubeconfig, err := cluster.ReadCredentials(m.Host.Path(node.KubeletConf))
	if err != nil {
		return nil, err
	}
	client, err := cluster.New(kubeconfig, "")
	if err != nil {
		return nil, err
	}
	servers, err := client.APIServers(ctx)
	if err != nil {
		return nil, err
	}
	trust, _, err := cluster.Credentials(kubeconfig)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	list, err := servedBy(ctx, &http.Client{Transport: transport, Timeout: listTimeout}, RegistryAddresses(servers))
	if err != nil {
		return nil, err
	}
	return pulledBy(m, list)
}

// servedBy merges what the control planes serve. One that keeps a file of an earlier version of Airlift has no list.
func servedBy(ctx context.Context, client *http.Client, servers []netip.AddrPort) (all []images.Served, err error) {
	lists, errs := make([][]images.Served, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	for i, a := range servers {
		wg.Go(func() { lists[i], errs[i] = servedAt(ctx, client, a) })
	}
	wg.Wait()
	answered := false
	for i, list := range lists {
		answered = answered || errs[i] == nil
		for _, s := range list {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	if !answered {
		return nil, fault.New(fault.Failure, "no control plane lists the images that it serves: %w", errors.Join(errs...)).Hint("see ./install registry status")
	}
	return all, nil
}

// maxImages limits the list, in bytes: some hundred thousand images.
const maxImages = 64 << 20

func servedAt(ctx context.Context, client *http.Client, a netip.AddrPort) (list []images.Served, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.String()+registry.ImagesPath, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", a, answer.Status)
	}
	return list, json.NewDecoder(io.LimitReader(answer.Body, maxImages)).Decode(&list)
}

// pulledBy leaves out the images of registries for which containerd of this host asks no control plane.
func pulledBy(m *node.Machine, list []images.Served) ([]images.Served, error) {
	var names []string
	for _, s := range list {
		names = append(names, s.Registry())
	}
	slices.Sort(names)
	states, err := hosts.States(m.Existing, slices.Compact(names))
	return slices.DeleteFunc(list, func(s images.Served) bool {
		return !slices.ContainsFunc(states, func(state hosts.State) bool { return state.Registry == s.Registry() && len(state.ControlPlanes) > 0 })
	}), err
}
