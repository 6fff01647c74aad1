package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
)

// apiServersSlice is the EndpointSlice in the namespace default in which API servers register themselves. It has
// the addresses of one IP family.
const apiServersSlice = "kubernetes"

// APIServers returns the addresses at which the cluster's API servers registered themselves.
func (c *Client) APIServers(ctx context.Context) (addresses []netip.AddrPort, err error) {
	err = wait.Retry(ctx, func() error {
		addresses, _, err = c.listAPIServers(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading EndpointSlice default/%s: %w", apiServersSlice, err)
	}
	return addresses, nil
}

// Reachable returns where other hosts reach the API that this host reaches at the URL server, "host:port". If that is the
// balancer of this host, it is an API server: a host that joins has no balancer yet.
func (c *Client) Reachable(ctx context.Context, server string) (string, error) {
	endpoint := strings.TrimPrefix(server, "https://")
	if a, err := netip.ParseAddrPort(endpoint); err != nil || !a.Addr().IsLoopback() || a.Port() != config.BalancerPort {
		return endpoint, nil
	}
	servers, err := c.APIServers(ctx)
	if err != nil || len(servers) == 0 {
		return endpoint, err
	}
	return servers[0].String(), nil
}

// FollowAPIServers passes use the addresses of the cluster's API servers, now and after each change, until ctx
// ends. It never passes an empty list. It reads the kubeconfig and the files that it names again when they
// change, and retries what fails, after it has passed failed the error.
func FollowAPIServers(ctx context.Context, kubeconfig string, use func([]netip.AddrPort), failed func(error)) {
	NewIdentity(kubeconfig).FollowAPIServers(ctx, use, failed)
}

// FollowAPIServers is the function with this name, for an identity.
func (i *Identity) FollowAPIServers(ctx context.Context, use func([]netip.AddrPort), failed func(error)) {
	pass := func(addresses []netip.AddrPort) {
		if len(addresses) > 0 {
			use(addresses)
		}
	}
	i.follow(ctx, followed{
		what: "EndpointSlice default/" + apiServersSlice,
		list: func(ctx context.Context, c *Client) (version string, err error) {
			addresses, version, err := c.listAPIServers(ctx)
			if err == nil {
				pass(addresses)
			}
			return version, err
		},
		watch: func(ctx context.Context, c *Client, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = onlyAPIServers().FieldSelector
			return c.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Watch(ctx, options)
		},
		take: func(event watch.Event) {
			// The deletion means nothing: an API server creates the EndpointSlice again.
			if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok && event.Type != watch.Deleted {
				pass(addressesOf(*slice))
			}
		},
	}, failed)
}

// onlyAPIServers selects the one object that the Role airlift:api-servers allows.
func onlyAPIServers() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + apiServersSlice}
}

// listAPIServers makes one request. version is where a watch begins.
func (c *Client) listAPIServers(ctx context.Context) (addresses []netip.AddrPort, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	list, err := c.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, onlyAPIServers())
	if err != nil {
		return nil, "", err
	}
	return addressesOf(list.Items...), list.ResourceVersion, nil
}

// addressesOf returns the addresses with the port named https, or the only port.
func addressesOf(slices ...discoveryv1.EndpointSlice) (addresses []netip.AddrPort) {
	for _, s := range slices {
		for _, port := range s.Ports {
			if port.Port == nil || len(s.Ports) > 1 && ptr.Deref(port.Name, "") != "https" {
				continue
			}
			for _, endpoint := range s.Endpoints {
				for _, text := range endpoint.Addresses {
					if a, err := netip.ParseAddr(text); err == nil {
						addresses = append(addresses, netip.AddrPortFrom(a, uint16(*port.Port)))
					}
				}
			}
		}
	}
	return addresses
}
