package undo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// NewReconfigure returns the Undo of the last reconfiguration of this host.
func NewReconfigure(h *host.Host, c *workflow.Console) (*Undo, error) {
	state, err := node.ReadReconfigureState(h)
	if err != nil {
		return nil, err
	}
	if state == nil {
		return nil, fault.New(fault.Preflight, "there is nothing to undo: this host has no saved files of a reconfiguration").Hint("see what this node has: ./install reconfigure print")
	}
	if err := node.UnfinishedUpgrade(h); err != nil {
		return nil, err
	}
	return Of(node.NewMachine(h, c), state, nil)
}

// A reconfiguredNode is the part of an Undo that only undo of a reconfiguration has.
type reconfiguredNode struct{ undo *Undo }

// steps returns the steps that undo a reconfiguration.
func (r reconfiguredNode) steps() []workflow.Step {
	return []workflow.Step{
		{Name: "preflight", Doc: "wait for the turn of this control plane, and check that the cluster was not changed since", Run: r.preflight},
		{Name: "files", Doc: "restore the previous files and certificates", Run: r.restoreFiles},
		{Name: "control-plane", Doc: "restore the previous static pods, one by one", Run: r.undo.restoreControlPlane},
		{Name: "objects", Doc: "restore the previous configuration and add-ons", Run: r.restoreStored},
		{Name: "node", Doc: "restore the previous configuration of this node", Run: r.undo.restoreNode},
		{Name: "images", Doc: "restore the image names that changed", Run: r.undo.restoreNames},
		{Name: "marks", Doc: "restore the labels and taints of this node", Run: r.restoreMarks},
		{Name: "finish", Doc: "remove the saved files of the change", Run: r.finish},
	}
}

// preflight refuses to undo a finished change that later changes of the cluster have overtaken, on a control plane.
func (r reconfiguredNode) preflight(ctx context.Context) error {
	u := r.undo
	if !u.IsControlPlane() {
		return nil
	}
	if err := u.takeTurn(ctx); err != nil || !r.wasFinished() {
		return err
	}
	now, former, err := r.encryptions()
	if err != nil {
		return fault.Wrap(err, fault.Preflight, "correct the file, and run again: ./install reconfigure undo")
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if ok, err := r.reaches(ctx, client, !reflect.DeepEqual(now, former)); err != nil || !ok {
		return err
	}
	stored, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	if u.state.Overtaken(stored.Cluster.Reconfiguration) {
		return fault.New(fault.Preflight, "the cluster was reconfigured since this change, and undo would bring back an older configuration").
			Hint("undo first on the control plane that changed it last: ./install reconfigure undo; or follow the cluster: ./install reconfigure node")
	}
	return r.checkEncryption(ctx, &stored.Cluster.Etcd, now, former)
}

// reaches reports whether the API server answers. Undo goes on without it, unless it changes how the API server encrypts: the other
// control planes must learn that.
func (r reconfiguredNode) reaches(ctx context.Context, client *cluster.Client, must bool) (bool, error) {
	probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	if client.Answers(probe) {
		return true, nil
	}
	if must {
		return false, fault.New(fault.Preflight, "the API server does not answer, and undo changes how it encrypts data: the other control planes must learn that").
			Hint("see why: ./install doctor; then run again: ./install reconfigure undo")
	}
	r.undo.Console.Warn("the API server does not answer, so later changes of the cluster are not checked")
	return false, nil
}

// wasFinished reports whether the change was finished once: the cluster, and other nodes, may build on it.
func (r reconfiguredNode) wasFinished() bool {
	return r.undo.state.Finished || r.undo.state.WasFinished
}

// leave records that this control plane does not follow the configuration of the cluster any more, before a finished change is
// undone. An unfinished one has not recorded that it does.
func (r reconfiguredNode) leave(ctx context.Context) error {
	u := r.undo
	if !u.IsControlPlane() || !r.wasFinished() {
		return nil
	}
	now, former, err := r.encryptions()
	if err != nil {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	must := !reflect.DeepEqual(now, former)
	if ok, err := r.reaches(ctx, client, must); err != nil || !ok {
		return err
	}
	err = r.follow(ctx, client, 0)
	if err != nil && ctx.Err() == nil && (!must || apierrors.IsNotFound(err)) { // a node that is not registered does not count
		u.Console.Debug(1, "%v", err)
		err = nil
	}
	return err
}

// follow records the number of the configuration that this node follows.
func (r reconfiguredNode) follow(ctx context.Context, client *cluster.Client, number int) error {
	changed, err := client.NodeObjects().SetReconfiguration(ctx, pki.NodeName(r.undo.Files()), number)
	r.undo.Changed(changed)
	return err
}

// followFormer records that this node follows what it did before the change. Without that, it counts as one that does not.
func (r reconfiguredNode) followFormer(ctx context.Context) error {
	u := r.undo
	client, err := u.client()
	if err != nil {
		return err
	}
	if u.IsControlPlane() { // its API server may start
		err = client.Waits().WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report)
	} else {
		probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
		defer cancel()
		err = client.Reach(probe)
	}
	if err == nil {
		err = r.follow(ctx, client, u.state.Followed)
	}
	if err != nil && ctx.Err() == nil {
		u.Console.Warn("the cluster does not know which configuration this node follows: %v; afterwards, run here: ./install reconfigure node", err)
		err = nil
	}
	return err
}

// finish removes the saved files. Files that the reconfiguration took over count as edited by hand again.
func (r reconfiguredNode) finish(context.Context) error {
	for file, sum := range r.undo.state.TakenOver {
		if slices.Contains(r.undo.paths, file) {
			continue
		}
		if err := node.RecordWritten(r.undo.Host, file, sum); err != nil {
			return err
		}
	}
	return r.undo.state.Files(r.undo.Host).RemoveUpgrade()
}

// restoreFiles restores the files that existed before, so that the previous static pods find them. New ones are removed when no
// static pod reads them any more.
func (r reconfiguredNode) restoreFiles(ctx context.Context) error {
	if err := r.leave(ctx); err != nil {
		return err
	}
	if err := r.undo.Begin(); err != nil {
		return err
	}
	for _, p := range r.undo.paths {
		former, err := r.undo.former.Read(p)
		if err != nil {
			return err
		}
		if former == nil || path.Dir(p) == config.ManifestsDir {
			continue
		}
		changed, err := r.undo.restore(ctx, p)
		if err != nil {
			return err
		}
		r.undo.Changed(changed)
	}
	return nil
}

// restoreCertificate restores a file of a certificate, unless it was renewed since the reconfiguration wrote it.
func (u *Undo) restoreCertificate(file, written string) (changed bool, err error) {
	former, err := u.former.Read(file)
	if err != nil || former == nil {
		return false, err
	}
	now, err := u.Optional(file)
	if err != nil || bytes.Equal(now, former) {
		return false, err
	}
	if filesystem.Digest(now) != written && now != nil {
		u.Console.Note("left in place: %s, which was renewed since", file)
		return false, nil
	}
	return true, u.Host.RenewFile(file, former, 0o600)
}

// restartReader restarts a component that reads files which were restored. restarted is set if it has a new container since.
func (u *Undo) restartReader(ctx context.Context, name string, restarted bool) error {
	if !u.state.IsPending(name) || !u.Exists(node.ManifestPath(name)) {
		return nil
	}
	if !restarted {
		if err := u.pods.Restart(ctx, name); err != nil {
			return err
		}
		u.Changed(true)
	}
	return u.state.SetRestarted(u.Host, name)
}

// pend records what must restart to read a file of a reconfiguration, before undo restores it.
func (r reconfiguredNode) pend(file string) error {
	u := r.undo
	if u.state.Change == "" || path.Dir(file) == config.ManifestsDir {
		return nil
	}
	former, err := u.former.Read(file)
	if err != nil {
		return err
	}
	now, err := u.Optional(file)
	if err != nil || bytes.Equal(now, former) {
		return err
	}
	switch {
	case strings.HasPrefix(file, config.KubeletDir+"/"):
		return u.state.Pend(u.Host, kubeletPart)
	case file == render.ContainerdConfigPath:
		return u.state.Pend(u.Host, runtimePart)
	case former == nil: // no former static pod reads it
		return nil
	}
	return u.state.Pend(u.Host, u.state.Readers...)
}

// Names in node.UpgradeState.Pending that are no static pods.
const kubeletPart, runtimePart = "kubelet", "containerd"

// restoreStored restores what the cluster stored, and requires the other nodes to follow again.
func (r reconfiguredNode) restoreStored(ctx context.Context) error {
	u := r.undo
	if len(u.state.Objects) == 0 {
		return r.followFormer(ctx)
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if err := client.Waits().WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report); err != nil {
		return err
	}
	now, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	if u.state.Overtaken(now.Cluster.Reconfiguration) {
		u.Console.Warn("the cluster was reconfigured since: what it stores stays; afterwards, run here: ./install reconfigure node")
		return r.followFormer(ctx)
	}
	next := now.Cluster.Reconfiguration
	follows := u.state.Followers != "" && next.Number > 0
	if follows { // before the objects: an interrupted undo must not lose which names certificates had
		former, err := r.formerCluster(ctx, client)
		if err != nil {
			return err
		}
		next = next.Next(&now.Cluster, former, u.state.Followers == node.AllNodes)
		if err := r.number(ctx, client, &next); err != nil {
			return err
		}
	}
	if err := u.restoreObjects(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(u.state.Objects, func(o json.RawMessage) bool { return bytes.Contains(o, []byte(`"`+config.FilesSecret+`"`)) }) {
		err := client.API.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, config.FilesSecret, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Secret %s/%s: %w", metav1.NamespaceSystem, config.FilesSecret, err)
		}
	}
	began := u.state.Began
	next.Stored = began.Stored
	if follows {
		next.As = cmp.Or(began.As, began.Number)
	}
	if !reflect.DeepEqual(next, now.Cluster.Reconfiguration) {
		if err := r.storeNumber(ctx, client, &next); err != nil {
			return err
		}
	}
	if !follows {
		return r.followFormer(ctx)
	}
	return r.follow(ctx, client, next.Number)
}

// formerCluster returns the configuration that restoreObjects restores.
func (r reconfiguredNode) formerCluster(ctx context.Context, client *cluster.Client) (*config.Cluster, error) {
	kept, err := readEndpoint(ctx, client, true)
	if err != nil {
		return nil, err
	}
	for _, data := range r.undo.state.Objects {
		if data, err = kept.in(data); err != nil {
			return nil, err
		}
		var m corev1.ConfigMap
		if err := json.Unmarshal(data, &m); err == nil && m.Kind == "ConfigMap" && m.Name == Objects[0].Name {
			c, _, err := config.DecodeClusterConfiguration([]byte(m.Data["ClusterConfiguration"]))
			return &c, err
		}
	}
	return nil, fmt.Errorf("the record of the change has no ConfigMap %s", Objects[0].Name)
}

// number stores the number of undo, which is a change for the other nodes. The record has it first: an interrupted undo continues.
func (r reconfiguredNode) number(ctx context.Context, client *cluster.Client, next *config.Reconfiguration) error {
	r.undo.state.Number = next.Number
	if err := r.undo.state.Write(r.undo.Host); err != nil {
		return err
	}
	return r.storeNumber(ctx, client, next)
}

func (r reconfiguredNode) storeNumber(ctx context.Context, client *cluster.Client, next *config.Reconfiguration) error {
	objects, err := render.UploadReconfiguration(&config.Config{Cluster: config.Cluster{Reconfiguration: *next}})
	if err != nil {
		return err
	}
	return r.undo.Applied(client.Apply(ctx, objects...))
}

// restoreMarks restores the labels and taints of this node.
func (r reconfiguredNode) restoreMarks(ctx context.Context) error {
	if r.undo.state.Marks == nil {
		return nil
	}
	client, err := r.undo.client()
	if err != nil {
		return err
	}
	changed, err := client.NodeObjects().RestoreMarks(ctx, pki.NodeName(r.undo.Files()), r.undo.state.Marks)
	r.undo.Changed(changed)
	if apierrors.IsForbidden(err) && !r.undo.IsControlPlane() {
		return fault.Wrap(err, fault.Failure, "the kubelet of a worker may not do that: give an administrator's kubeconfig: ./install reconfigure undo --kubeconfig FILE")
	}
	return err
}

// summarize sets the text with the next commands.
func (r reconfiguredNode) summarize() {
	text := "This node has its former configuration again.\n"
	switch {
	case len(r.undo.state.Objects) == 0:
		text += "\nThe cluster stores what it did: to follow that again, run here: ./install reconfigure node\n"
	case r.undo.state.Followers == node.ControlPlanes:
		text += "\nThen run on each other control plane: ./install reconfigure node\n"
	case r.undo.state.Followers == node.AllNodes:
		text += "\nThen run on each other node, control planes first: ./install reconfigure node\n"
	}
	r.undo.Console.Summary(text)
}
