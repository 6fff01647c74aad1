package status

import (
	"context"
	"slices"

	"airlift/installer/cluster/apply"
)

// States of a manifest.
const (
	stateApplied    = "applied"            // as it is in this bundle
	stateDifferent  = "different"          // another version of it is applied
	stateIncomplete = "incomplete"         // a run was interrupted, or objects or hooks wait for a worker
	stateMissing    = "not applied"        // only in this bundle
	stateElsewhere  = "not in this bundle" // only in the cluster
)

// A Manifest is the state of one of the site's manifests in the cluster, or of an optional
// add-on.
type Manifest struct {
	Name    string        `json:"name"`
	Chart   string        `json:"chart,omitempty"`
	State   string        `json:"state"`
	Applied string        `json:"applied,omitempty"` // when init last changed something
	Objects []apply.State `json:"objects,omitempty"`
	Later   []string      `json:"later,omitempty"` // objects that are not applied before a worker joins
}

// objectTimeout is for the workloads of manifests that are being read.
const objectTimeout = partTimeout

func (r *Reader) readManifests(ctx context.Context) (found result, err error) {
	client, err := r.admin()
	if err != nil {
		return found, err
	}
	inventory, err := apply.ReadInventory(ctx, client.API)
	if err != nil {
		return found, err
	}
	list := manifests(r.Contents.Manifests, inventory)
	site := apply.New(client, objectTimeout, nil)
	hasImage := r.Contents.HasImage
	if hasImage == nil {
		hasImage = func(string) bool { return true }
	}
	for i, m := range list {
		if list[i].Objects, err = site.States(ctx, inventory[m.Name], hasImage); err != nil {
			return found, err
		}
	}
	found.set = func(s *Status) { s.Manifests = append(s.Manifests, list...) }
	for _, m := range list {
		for _, o := range m.Objects {
			if !o.Ready && !o.NodesNotReady { // the part api names the nodes
				found.problem("", "%s: %s: %s", m.Name, o.Object, o.Reason)
			}
		}
		if len(m.Later) > 0 || m.State == stateDifferent || m.State == stateMissing {
			found.warn(r.Contents.Apply, "the manifest %s is %s", m.Name, m.State)
		}
	}
	return found, nil
}

// manifests compares the manifests of the file with the manifests in the cluster.
func manifests(listed []apply.Manifest, inventory map[string]apply.Entry) (list []Manifest) {
	known := map[string]bool{}
	for _, m := range listed {
		known[m.Name] = true
		one := Manifest{Name: m.Name, Chart: m.Chart, State: stateMissing}
		if e, ok := inventory[m.Name]; ok {
			one = manifestOf(m.Name, e)
			if e.SHA256 != m.SHA256 {
				one.State = stateDifferent
			}
		}
		list = append(list, one)
	}
	var others []string
	for name := range inventory {
		if !known[name] {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		one := manifestOf(name, inventory[name])
		one.State = stateElsewhere
		list = append(list, one)
	}
	return list
}

func manifestOf(name string, e apply.Entry) Manifest {
	state := stateApplied
	if e.Applied == "" || len(e.Later) > 0 || len(e.Pending) > 0 {
		state = stateIncomplete
	}
	return Manifest{Name: name, Chart: e.Chart, State: state, Applied: e.Applied, Later: e.Later}
}
