package upgrade

import (
	"context"
	"net/url"
	"slices"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/render"
)

// keptEndpoint is the endpoint of the cluster before undo restores older objects. A change of the endpoint after the
// upgrade stays: nodes and certificates follow it already.
type keptEndpoint struct {
	client *cluster.Client
	stored *cluster.Stored
}

// readEndpoint returns nil if the endpoint was never changed.
func readEndpoint(ctx context.Context, client *cluster.Client) (*keptEndpoint, error) {
	stored, err := client.FetchStored(ctx)
	if err != nil || stored.Cluster.Endpoint.Change == nil {
		return nil, err
	}
	return &keptEndpoint{client, stored}, nil
}

// keep sets the endpoint in the restored objects.
func (k *keptEndpoint) keep(ctx context.Context) error {
	if k == nil {
		return nil
	}
	restored, err := k.client.FetchStored(ctx)
	if err != nil {
		return err
	}
	now, was := restored.Cluster, k.stored.Cluster
	if now.ControlPlaneEndpoint != was.ControlPlaneEndpoint || !slices.Equal(now.APIServer.CertSANs, was.APIServer.CertSANs) {
		now.ControlPlaneEndpoint, now.APIServer.CertSANs = was.ControlPlaneEndpoint, was.APIServer.CertSANs
		objects, err := render.UploadClusterConfig(&config.Config{Cluster: now})
		if err != nil {
			return err
		}
		if _, err := k.client.Apply(ctx, objects[0]); err != nil {
			return err
		}
	}
	if _, _, err := k.client.PointProxies(ctx, []string{restored.ProxyServer}, k.stored.ProxyServer); err != nil {
		return err
	}
	server, err := url.Parse(was.Endpoint.Change.Server)
	if was.Endpoint.Balancer {
		server, err = url.Parse((&config.Config{Cluster: was}).NodeURL())
	}
	if err != nil {
		return err
	}
	_, err = k.client.PointFlannel(ctx, server.Hostname(), server.Port())
	return err
}
