package status

import (
	"context"
	"sync"

	"airlift/installer/node"
)

// Versions are the versions in this file, on this host, and of the nodes in the cluster.
type Versions struct {
	File    FileVersion   `json:"file"`
	Host    HostVersions  `json:"host"`
	API     string        `json:"apiServer,omitempty"` // of the API server that answers
	Cluster []NodeVersion `json:"cluster,omitempty"`   // of the kubelets; on a worker only its own
}

// A FileVersion has the versions in the command's own file.
type FileVersion struct {
	Kubernetes string `json:"kubernetes,omitempty"`
	Airlift    string `json:"airlift"`
}

// HostVersions are the versions that the installed binaries print.
type HostVersions struct {
	Kubelet    string `json:"kubelet,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
}

// A NodeVersion is the version of a node's kubelet.
type NodeVersion struct {
	Node    string `json:"node"`
	Kubelet string `json:"kubelet"`
}

func (r *Reader) readVersions(ctx context.Context) (found result, err error) {
	v := Versions{File: FileVersion{r.Contents.Kubernetes, r.Contents.Airlift}}
	var wg sync.WaitGroup
	for name, to := range map[string]*string{"kubelet": &v.Host.Kubelet, "containerd": &v.Host.Containerd, "runc": &v.Host.Runc} {
		wg.Go(func() { *to = node.BinaryVersion(ctx, r.Host, name) })
	}
	var clusterErr error
	wg.Go(func() {
		client, err := r.api()
		if err == nil {
			v.API, err = client.Version(ctx)
		}
		if clusterErr = err; err != nil {
			return
		}
		if admin, err := r.admin(); err == nil {
			nodes, err := admin.Nodes(ctx)
			clusterErr = err
			for _, n := range nodes {
				v.Cluster = append(v.Cluster, NodeVersion{n.Name, n.Version})
			}
		}
	})
	wg.Wait()
	found.set = func(s *Status) {
		if len(v.Cluster) == 0 {
			v.Cluster = s.Versions.Cluster // this node's, from the part api
		}
		s.Versions = v
	}
	if have, host := v.File.Kubernetes, v.Host.Kubelet; r.node.Role != node.NoNode && have != "" && host != "" && have != host {
		found.warn("", "this file has Kubernetes %s, this host's kubelet is %s", have, host)
	}
	return found, clusterErr
}
