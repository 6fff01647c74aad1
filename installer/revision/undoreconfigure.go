package revision

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
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// checkOvertaken refuses to undo a finished change that later changes of the cluster have overtaken.
func (u *Undo) checkOvertaken(ctx context.Context) error {
	if !u.wasFinished() {
		return nil
	}
	now, former, err := u.encryptions()
	if err != nil {
		return fault.Wrap(err, fault.Preflight, "correct the file, and run again: ./install reconfigure undo")
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if ok, err := u.reaches(ctx, client, !reflect.DeepEqual(now, former)); err != nil || !ok {
		return err
	}
	stored, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	if u.record.Overtaken(stored.Cluster.Reconfiguration) {
		return fault.New(fault.Preflight, "the cluster was reconfigured since this change, and undo would bring back an older configuration").
			Hint("undo first on the control plane that changed it last: ./install reconfigure undo; or follow the cluster: ./install reconfigure node")
	}
	return u.checkEncryption(ctx, &stored.Cluster.Etcd, now, former)
}

// reaches reports whether the API server answers. Undo goes on without it, unless it changes how the API server encrypts: the other
// control planes must learn that.
func (u *Undo) reaches(ctx context.Context, client *cluster.Client, must bool) (bool, error) {
	probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	if client.Answers(probe) {
		return true, nil
	}
	if must {
		return false, fault.New(fault.Preflight, "the API server does not answer, and undo changes how it encrypts data: the other control planes must learn that").
			Hint("see why: ./install doctor; then run again: ./install reconfigure undo")
	}
	u.Console.Warn("the API server does not answer, so later changes of the cluster are not checked")
	return false, nil
}

// wasFinished reports whether the change was finished once: the cluster, and other nodes, may build on it.
func (u *Undo) wasFinished() bool {
	return u.record.Finished || u.record.WasFinished
}

// leave records that this control plane does not follow the configuration of the cluster any more, before a finished change is
// undone. An unfinished one has not recorded that it does.
func (u *Undo) leave(ctx context.Context) error {
	if !u.IsControlPlane() || !u.wasFinished() {
		return nil
	}
	now, former, err := u.encryptions()
	if err != nil {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	must := !reflect.DeepEqual(now, former)
	if ok, err := u.reaches(ctx, client, must); err != nil || !ok {
		return err
	}
	err = u.follow(ctx, client, 0)
	if err != nil && ctx.Err() == nil && (!must || apierrors.IsNotFound(err)) { // a node that is not registered does not count
		u.Console.Debug(1, "%v", err)
		err = nil
	}
	return err
}

// follow records the number of the configuration that this node follows.
func (u *Undo) follow(ctx context.Context, client *cluster.Client, number int) error {
	changed, err := client.NodeObjects().Follow(ctx, pki.NodeName(u.Files()), func(f *cluster.Follows) { f.Reconfiguration = number })
	u.Changed(changed)
	return err
}

// followFormer records that this node follows what it did before the change. Without that, it counts as one that does not.
func (u *Undo) followFormer(ctx context.Context) error {
	client, err := u.client()
	if err != nil {
		return err
	}
	if u.IsControlPlane() { // its API server may start
		err = client.WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report)
	} else {
		probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
		defer cancel()
		err = client.Reach(probe)
	}
	if err == nil {
		err = u.follow(ctx, client, u.record.Followed)
	}
	if err != nil && ctx.Err() == nil {
		u.Console.Warn("the cluster does not know which configuration this node follows: %v; afterwards, run here: ./install reconfigure node", err)
		err = nil
	}
	return err
}

// finish removes the saved files. Files that a reconfiguration took over count as edited by hand again.
func (u *Undo) finish(context.Context) error {
	for file, sum := range u.record.TakenOver {
		if slices.Contains(u.paths, file) {
			continue
		}
		if err := RecordWritten(u.Host, file, sum); err != nil {
			return err
		}
	}
	return Remove(u.Host, u.record.Kind)
}

// restoreBefore restores the files that existed before, so that the previous static pods find them. New ones are removed when no
// static pod reads them any more.
func (u *Undo) restoreBefore(ctx context.Context) error {
	if err := u.leave(ctx); err != nil {
		return err
	}
	if err := u.Begin(); err != nil {
		return err
	}
	for _, p := range u.paths {
		former, err := u.former.Read(p)
		if err != nil {
			return err
		}
		if former == nil || path.Dir(p) == config.ManifestsDir {
			continue
		}
		changed, err := u.restore(ctx, p)
		if err != nil {
			return err
		}
		u.Changed(changed)
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
	if !u.record.IsPending(name) || !u.Exists(node.ManifestPath(name)) {
		return nil
	}
	if !restarted {
		if err := u.pods.Restart(ctx, name); err != nil {
			return err
		}
		u.Changed(true)
	}
	return u.record.SetRestarted(u.Host, name)
}

// pend records what must restart to read a file of a reconfiguration, before undo restores it.
func (u *Undo) pend(file string) error {
	if u.record.Kind == Upgrade || path.Dir(file) == config.ManifestsDir {
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
		return u.record.Pend(u.Host, KubeletPart)
	case file == render.ContainerdConfigPath:
		return u.record.Pend(u.Host, RuntimePart)
	case former == nil: // no former static pod reads it
		return nil
	}
	return u.record.Pend(u.Host, u.record.Readers...)
}

// restoreStored restores what the cluster stored, and requires the other nodes to follow again.
func (u *Undo) restoreStored(ctx context.Context) error {
	if len(u.record.Objects) == 0 {
		return u.followFormer(ctx)
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if err := client.WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report); err != nil {
		return err
	}
	now, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	began, last := u.record.Began, now.Cluster.Reconfiguration
	if u.record.Overtaken(last) {
		u.Console.Warn("the cluster was reconfigured since: what it stores stays; afterwards, run here: ./install reconfigure node")
		return u.followFormer(ctx)
	}
	next := began // with all fields that are no counters
	next.Number, next.Workers, next.As, next.Removed = last.Number, last.Workers, last.As, last.Removed
	follows := u.record.Followers != "" && next.Number > 0
	if follows { // before the objects: an interrupted undo must not lose which names certificates had
		former, err := u.formerCluster(ctx, client)
		if err != nil {
			return err
		}
		next = next.Next(&now.Cluster, former, u.record.Followers == AllNodes)
		if err := u.number(ctx, client, &next); err != nil {
			return err
		}
	}
	if err := u.restoreObjects(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(u.record.Objects, func(o json.RawMessage) bool { return bytes.Contains(o, []byte(`"`+config.FilesSecret+`"`)) }) {
		err := client.API.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, config.FilesSecret, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Secret %s/%s: %w", metav1.NamespaceSystem, config.FilesSecret, err)
		}
	}
	if follows {
		next.As = cmp.Or(began.As, began.Number)
	}
	if !reflect.DeepEqual(next, last) {
		if err := u.storeNumber(ctx, client, &next); err != nil {
			return err
		}
	}
	if !follows {
		return u.followFormer(ctx)
	}
	return u.follow(ctx, client, next.Number)
}

// formerCluster returns the configuration that restoreObjects restores.
func (u *Undo) formerCluster(ctx context.Context, client *cluster.Client) (*config.Cluster, error) {
	kept, err := readEndpoint(ctx, client, true)
	if err != nil {
		return nil, err
	}
	for _, data := range u.record.Objects {
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
func (u *Undo) number(ctx context.Context, client *cluster.Client, next *config.Reconfiguration) error {
	u.record.Number = next.Number
	if err := u.record.Write(u.Host); err != nil {
		return err
	}
	return u.storeNumber(ctx, client, next)
}

func (u *Undo) storeNumber(ctx context.Context, client *cluster.Client, next *config.Reconfiguration) error {
	objects, err := render.UploadReconfiguration(&config.Config{Cluster: config.Cluster{Reconfiguration: *next}})
	if err != nil {
		return err
	}
	return u.Applied(client.Apply(ctx, objects...))
}

// restoreMarks restores the labels and taints of this node.
func (u *Undo) restoreMarks(ctx context.Context) error {
	if u.record.Marks == nil {
		return nil
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	changed, err := client.NodeObjects().RestoreMarks(ctx, pki.NodeName(u.Files()), u.record.Marks)
	u.Changed(changed)
	if apierrors.IsForbidden(err) && !u.IsControlPlane() {
		return fault.Wrap(err, fault.Failure, "the kubelet of a worker may not do that: give an administrator's kubeconfig: ./install reconfigure undo --kubeconfig FILE")
	}
	return err
}

// next returns the text with the next commands, after a reconfiguration.
func (u *Undo) next() string {
	text := "This node has its former configuration again.\n"
	switch {
	case len(u.record.Objects) == 0:
		text += "\nThe cluster stores what it did: to follow that again, run here: ./install reconfigure node\n"
	case u.record.Followers == ControlPlanes:
		text += "\nThen run on each other control plane: ./install reconfigure node\n"
	case u.record.Followers == AllNodes:
		text += "\nThen run on each other node, control planes first: ./install reconfigure node\n"
	}
	return text
}
