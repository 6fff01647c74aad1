package registrychange

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/installer/cluster"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/registry/service"
	"airlift/internal/progress"
)

// A Status is the embedded registry as this host sees it.
type Status struct {
	Enabled bool `json:"enabled"`
	// Bundles are the files that control planes keep, in order of precedence.
	Bundles []KeptFile `json:"bundles"`
	// Images are what every node is to have on its disk.
	Images  []string `json:"images"`
	Servers []Server `json:"servers"`
	// Nodes is empty on a worker, which may not list them.
	Nodes []Node `json:"nodes"`
	// Registries are what containerd of this host asks for the images of each registry.
	Registries []hosts.State `json:"registries"`
}

// A KeptFile is a file that control planes keep.
type KeptFile struct {
	config.KeptBundle
	Here bool `json:"here"` // this host has it, intact
	// Copied is how many bytes of it this host has, while it copies the file from another control plane.
	Copied int64 `json:"copied,omitempty"`
	// Problem is why this host cannot serve it: the file is damaged, or was not copied.
	Problem string `json:"problem,omitempty"`
}

// A Server is the registry of a control plane.
type Server struct {
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // why it is not
}

// A Node is a node of the cluster.
type Node struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Ready bool   `json:"ready"`
	// Follows is "yes", "not yet", or "no" for a node that does not use the embedded registry.
	Follows string `json:"follows"`
}

// ReadStatus reads the state of the embedded registry.
func ReadStatus(ctx context.Context, h *host.Host) (*Status, error) {
	kubeconfig := node.KubeletConf
	if node.FileExists(h, node.AdminConf) {
		kubeconfig = node.AdminConf
	}
	client, err := node.LoadClient(h, kubeconfig, node.OwnAPIServer(h), 0)
	if err != nil {
		return nil, err
	}
	now, addresses, err := ask(ctx, client)
	if err != nil {
		return nil, err
	}
	s := &Status{Bundles: []KeptFile{}, Images: []string{}, Servers: []Server{}, Nodes: []Node{}, Registries: []hosts.State{}}
	if now == nil || !now.Used {
		return s, nil
	}
	s.Enabled, s.Images = true, append(s.Images, now.Images...)
	local, err := service.Query(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range now.Bundles {
		s.Bundles = append(s.Bundles, keptFile(h, b, local))
	}
	s.Servers = probe(ctx, client.CA, addresses)
	if s.Nodes, err = nodes(ctx, client, now.Generation); err != nil {
		return nil, err
	}
	s.Registries, err = hosts.States(h, now.Registries())
	return s, err
}

// keptFile returns the state of a file on this host. local is the state of its service, nil if none runs: then only the name of
// the file is known.
func keptFile(h *host.Host, b config.KeptBundle, local *service.State) KeptFile {
	if local == nil {
		return KeptFile{KeptBundle: b, Here: node.FileExists(h, path.Join(registry.Directory, b.ID))}
	}
	k := KeptFile{KeptBundle: b, Here: local.Serves(b.ID), Problem: local.Problems[b.ID]}
	if c := local.Copy; c != nil && c.ID == b.ID {
		k.Copied = c.Done
	}
	return k
}

func nodes(ctx context.Context, client *cluster.Client, generation int) ([]Node, error) {
	states, err := client.Nodes(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	list := []Node{}
	for _, n := range states {
		follows := "not yet"
		switch {
		case !n.Follows.UsesRegistry:
			follows = "no"
		case n.Follows.Registry >= generation:
			follows = "yes"
		}
		list = append(list, Node{n.Name, n.Role, n.Ready, follows})
	}
	return list, nil
}

// probeTimeout limits the wait for a server. containerd waits one second for a connection.
const probeTimeout = 3 * time.Second

// probe asks all servers at once whether they are ready.
func probe(ctx context.Context, ca []byte, addresses []netip.AddrPort) []Server {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: health.ServerName}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: probeTimeout}
	list := make([]Server, len(addresses))
	var wg sync.WaitGroup
	for i, a := range addresses {
		wg.Go(func() {
			list[i] = Server{Address: a.String()}
			if err := ready(ctx, client, a); err != nil {
				list[i].Reason = err.Error()
				return
			}
			list[i].Ready = true
		})
	}
	wg.Wait()
	return list
}

func ready(ctx context.Context, client *http.Client, a netip.AddrPort) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.String()+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return fmt.Errorf("%s %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// here is the state of the file on this host, for people.
func (k KeptFile) here() string {
	switch {
	case k.Copied > 0:
		return fmt.Sprintf("copying, %d %%", 100*k.Copied/max(1, k.Size))
	case k.Problem != "":
		return k.Problem
	}
	return yesNo(k.Here)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// duplicates describes files with the same version of Kubernetes. All stay, because they may have different images.
func (s *Status) duplicates() (list []string) {
	first := map[string]string{}
	for _, b := range s.Bundles {
		about := b.KubernetesVersion + " for " + b.Platform
		switch {
		case len(b.Only) > 0:
		case first[about] == "":
			first[about] = b.ID
		default:
			list = append(list, fmt.Sprintf("The files %.12s and %.12s both have Kubernetes %s. The first one decides. To remove the other one: ./install registry remove %.12s",
				first[about], b.ID, about, b.ID))
		}
	}
	return list
}

// Write prints the status for people.
func (s *Status) Write(out io.Writer) error {
	if !s.Enabled {
		_, err := fmt.Fprintln(out, "The cluster has no embedded registry. To start one, on a control plane: ./install registry enable")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FILE\tSIZE\tKUBERNETES\tCONTENTS\tHERE")
	for _, b := range s.Bundles {
		fmt.Fprintf(w, "%.12s\t%s\t%s\t%s\t%s\n", b.ID, progress.Bytes(b.Size), b.KubernetesVersion, cmp.Or(strings.Join(b.Only, ", "), "all"), b.here())
	}
	for _, text := range s.duplicates() {
		fmt.Fprintln(w, "\n"+text)
	}
	fmt.Fprintln(w, "\nSERVER\tSTATE")
	for _, server := range s.Servers {
		fmt.Fprintf(w, "%s\t%s\n", server.Address, cmp.Or(server.Reason, "ready"))
	}
	if len(s.Nodes) > 0 {
		fmt.Fprintln(w, "\nNODE\tROLE\tREADY\tUSES IT")
	}
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, n.Role, yesNo(n.Ready), n.Follows)
	}
	fmt.Fprintln(w, "\nREGISTRY\tTHIS HOST ASKS")
	for _, r := range s.Registries {
		asks := strings.Join(r.ControlPlanes, ", ")
		if r.Left != "" {
			asks = r.Left + " is not managed by Airlift"
		}
		fmt.Fprintf(w, "%s\t%s\n", r.Registry, cmp.Or(asks, "only the registry itself"))
	}
	if len(s.Images) > 0 {
		fmt.Fprintln(w, "\nEVERY NODE HAS")
	}
	for _, image := range slices.Sorted(slices.Values(s.Images)) {
		fmt.Fprintln(w, image)
	}
	return w.Flush()
}
