package model

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/flow/endpointchange"
	"airlift/installer/flow/noderemove"
	"airlift/installer/host"
	"airlift/installer/workflow"
)

// Commands that change which hosts the cluster has, and how it is reached.
const (
	// nodeRemove takes the node Command.Target out of the cluster, on another control plane.
	nodeRemove = "node remove"
	// claimAddress lets a kubelet report an address of the host Command.Target as its own: nothing prevents that.
	claimAddress  = "the kubelet claims the address of another host"
	endpointApply = "endpoint apply"
	endpointNode  = "endpoint node"
	endpointUndo  = "endpoint undo"
	// endpointMoves gives the address of the endpoint to the host of the command.
	endpointMoves = "the endpoint moves"
)

// otherEndpoint is the endpoint to which endpoint apply changes the cluster. It leads to the same API servers as Endpoint.
const otherEndpoint = "10.0.0.101"

// removeNode takes a node out of the cluster.
func (r *run) removeNode(name string) (string, error) {
	r.removes = name
	return r.nodeRemove(noderemove.Options{Node: name, Drain: true})
}

func (r *run) nodeRemove(o noderemove.Options) (string, error) {
	return r.changing(nodeRemove, "", func(h *host.Host, c *workflow.Console) error {
		before := r.changes
		removal, err := noderemove.New(r.ctx, o, h, c)
		if err != nil {
			return r.refused(before, err)
		}
		defer removal.Close()
		return removal.Run(r.ctx)
	})
}

// changeEndpoint changes how the cluster is reached, lets this node follow, or undoes it.
func (r *run) changeEndpoint(name string) (string, error) {
	o := endpointchange.Options{IgnorePreflightErrors: []string{"all"}}
	switch name {
	case endpointApply:
		o.Verb, o.ControlPlaneEndpoint = endpointchange.Apply, otherEndpoint
	case endpointNode:
		o.Verb = endpointchange.Follow
	case endpointUndo:
		o.Verb = endpointchange.Undo
	}
	return r.endpoint(name, o)
}

func (r *run) endpoint(name string, o endpointchange.Options) (string, error) {
	return r.changing(name, "", func(h *host.Host, c *workflow.Console) error {
		change, err := endpointchange.New(r.ctx, o, h, c)
		if err != nil {
			return err
		}
		defer change.Close()
		return change.Run(r.ctx)
	})
}

// left fails if the cluster still has a node that was taken out of it, or its member of etcd. Its kubelet may have started since, and
// registered again.
func (s *Site) left(target *Host) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	if c == nil {
		return nil
	}
	if c.data["nodes/"+target.Name] != "" && target.registered != c.id {
		return fmt.Errorf("the cluster still has the node %s", target.Name)
	}
	for _, m := range c.members {
		if m.name == target.Name {
			return fmt.Errorf("etcd still has the member of %s", target.Name)
		}
	}
	return nil
}

// reaches fails if the kubeconfigs of a host lead to no API server.
func (s *Site) reaches(h *Host) error {
	for _, file := range []string{"etc/kubernetes/kubelet.conf", "etc/kubernetes/admin.conf"} {
		kubeconfig, err := clientcmd.Load([]byte(h.read(file)))
		if err != nil || !h.exists(file) {
			continue
		}
		for _, k := range kubeconfig.Clusters {
			server := strings.TrimPrefix(k.Server, "https://")
			s.mu.Lock()
			found := s.listeners[h.address("tcp", server)]
			s.mu.Unlock()
			if found == nil {
				return fmt.Errorf("%s of %s leads to %s, where no API server is", file, h.Name, server)
			}
		}
	}
	return nil
}
