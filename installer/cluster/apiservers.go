package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster/wait"
)

// apiServersSlice is the EndpointSlice in the namespace default in which API servers register themselves. It has
// the addresses of one IP family.
const apiServersSlice = "kubernetes"

const (
	// credentialsInterval is how often a watch reads its kubeconfig again: kubelets renew their
	// certificate long before it expires.
	credentialsInterval = 10 * time.Second
	// watchTime is the shortest time of a watch; as in client-go, the longest is twice that.
	watchTime = 5 * time.Minute
	// minPause and maxPause limit the time between a watch that ended and the next one.
	minPause = time.Second
	maxPause = 15 * time.Second
)

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

// FollowAPIServers passes use the addresses of the cluster's API servers, now and after each change, until ctx
// ends. It never passes an empty list. It reads the kubeconfig and the files that it names again when they
// change, and retries what fails, after it has passed failed the error.
func FollowAPIServers(ctx context.Context, kubeconfig string, use func([]netip.AddrPort), failed func(error)) {
	f := follower{kubeconfig: kubeconfig, use: use}
	pause := minPause
	for ctx.Err() == nil {
		listed, err := f.follow(ctx)
		if listed {
			pause = minPause
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-time.After(pause + rand.N(pause/2)):
		case <-ctx.Done():
		}
		if !listed {
			pause = min(2*pause, maxPause)
		}
	}
}

// A follower has the state of FollowAPIServers.
type follower struct {
	kubeconfig  string // a path
	use         func([]netip.AddrPort)
	credentials []byte // the kubeconfig that client uses, without references to files
	client      *Client
}

// follow reads the list and follows it until the watch ends or the credentials change. listed reports whether the
// API server returned the list.
func (f *follower) follow(ctx context.Context) (listed bool, err error) {
	if err := f.load(); err != nil {
		return false, err
	}
	addresses, version, err := f.client.listAPIServers(ctx)
	if err != nil {
		return false, fmt.Errorf("reading EndpointSlice default/%s: %w", apiServersSlice, err)
	}
	f.pass(addresses)
	if err := f.watch(ctx, version); err != nil {
		return true, fmt.Errorf("watching EndpointSlice default/%s: %w", apiServersSlice, err)
	}
	return true, nil
}

func (f *follower) pass(addresses []netip.AddrPort) {
	if len(addresses) > 0 {
		f.use(addresses)
	}
}

func (f *follower) watch(ctx context.Context, version string) error {
	options := onlyAPIServers()
	options.ResourceVersion = version
	options.TimeoutSeconds = ptr.To(int64((watchTime + rand.N(watchTime)).Seconds()))
	w, err := f.client.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Watch(ctx, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	reread := time.NewTicker(credentialsInterval)
	defer reread.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := f.take(event); err != nil {
				return err
			}
		case <-reread.C:
			if credentials, err := readCredentials(f.kubeconfig); err == nil && !bytes.Equal(credentials, f.credentials) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// take passes on what an event contains. The deletion of the EndpointSlice means nothing: an API server creates it
// again.
func (f *follower) take(event watch.Event) error {
	switch event.Type {
	case watch.Error:
		return apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified:
		if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok {
			f.pass(addressesOf(*slice))
		}
	}
	return nil
}

// load creates the client again if the kubeconfig or a file that it names changed.
func (f *follower) load() error {
	credentials, err := readCredentials(f.kubeconfig)
	if err != nil {
		return err
	}
	if bytes.Equal(credentials, f.credentials) {
		return nil
	}
	client, err := New(credentials, "")
	if err != nil {
		return err
	}
	if f.client != nil {
		f.client.http.CloseIdleConnections()
	}
	client.http.Timeout = 0 // it would end each watch; HTTP/2 pings find a dead connection
	f.credentials, f.client = credentials, client
	return nil
}

// readCredentials returns a kubeconfig with the contents of the files that it names.
func readCredentials(path string) ([]byte, error) {
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmdapi.FlattenConfig(kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return clientcmd.Write(*kubeconfig)
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
