package status

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/render"
)

// Causes of a Drift.
const (
	Edited = "edited" // it was changed by hand
	Behind = "behind" // the configuration of the cluster was changed, and this node has not followed
)

// A Drift is a file of this host or an object of the cluster that differs from what the stored configuration gives.
type Drift struct {
	Name  string `json:"name"` // a path, or "DaemonSet kube-system/kube-proxy"
	Cause string `json:"cause"`
	// Diff is unified, from what the stored configuration gives; "" if the contents are secret or the cluster does not store them.
	Diff string `json:"diff,omitempty"`
	// Keep is what keeps an edit: fields of kubeadm's documents, a patch, a flag; "" if nothing does.
	Keep string `json:"keep,omitempty"`
}

// readDrift compares this host and the cluster with the stored configuration. That it cannot is no problem of this part: the API
// server has its own.
func (r *Reader) readDrift(ctx context.Context) (found result, err error) {
	if r.Contents.Drift == nil {
		return found, notHere{"this file has no Kubernetes"}
	}
	var list []Drift
	if _, err = r.api(); err == nil {
		list, err = r.Contents.Drift(ctx, r.Kubeconfig)
	}
	if err != nil {
		why := oneLine(err)
		if edited := r.editedFiles(); len(edited) > 0 {
			why += "; these files have other contents than Airlift wrote: " + strings.Join(edited, ", ")
		}
		return found, notHere{why}
	}
	found.set = func(s *Status) { s.Drift = append(s.Drift, list...) }
	for _, d := range list {
		what := "was edited by hand: it differs from what the stored configuration gives"
		if d.Cause == Behind {
			what = "does not follow the stored configuration, which was changed"
		}
		found.warn(d.Advise(r.node.Role), "%s %s", d.Name, what)
	}
	return found, nil
}

// Advise returns what to type on a node of a role.
func (d Drift) Advise(role string) string {
	command := "./install reconfigure"
	if role == node.Worker {
		command += " node"
	}
	if d.Cause == Behind {
		return "to see it: ./install reconfigure node --plan; to follow: ./install reconfigure node"
	}
	fix := fmt.Sprintf("to see it: %s --restore --plan; to drop it: %[1]s --restore", command)
	if d.Diff == "" && d.Name == config.KubeletFlagsFile { // the cluster does not store it
		fix = "to drop it, edit it again, and run: systemctl restart kubelet"
	}
	if d.Keep != "" {
		fix += "; to keep it, use " + d.Keep
	}
	return fix
}

// editedFiles returns the files of this host's configuration that have other contents than Airlift wrote. The stored configuration
// may give them so.
func (r *Reader) editedFiles() (list []string) {
	for _, e := range r.Host.Records().Entries(ledger.File) {
		dir := path.Dir(e.Name)
		if dir != config.ManifestsDir && dir != config.KubeletDir && e.Name != render.KubeletUnitPath && e.Name != render.KubeletDropInPath {
			continue
		}
		if sum, err := filesystem.Sum(r.Host.Path(e.Name)); err == nil && !e.Wrote(sum) {
			list = append(list, e.Name)
		}
	}
	slices.Sort(list)
	return list
}
