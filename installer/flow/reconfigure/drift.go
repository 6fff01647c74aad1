package reconfigure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/status"
	"airlift/installer/workflow"
)

// ReadDrift returns what was edited by hand on this host and in the cluster, compared with what the stored configuration gives: the
// changes of reconfigure --restore, without files that Airlift wrote so. It changes nothing. The error is why that is not known.
func ReadDrift(ctx context.Context, b *payload.Bundle, kubeconfig string, h *host.Host) ([]status.Drift, error) {
	switch {
	case !h.Records().Manages():
		return nil, errors.New("this node was not installed by Airlift")
	case node.AdoptedKubelet(h) != nil:
		return nil, errors.New("this node was adopted and not upgraded since: its files come from its former installer")
	}
	if err := revision.Unfinished(h, revision.Upgrade); err != nil {
		return nil, err
	}
	o := Options{Node: !node.FileExists(h, node.APIServerManifest), Restore: true, Kubeconfig: kubeconfig}
	r := New(b, o, h, &workflow.Console{Out: io.Discard})
	defer r.Close()
	if err := r.Learn(ctx); err != nil {
		return nil, err
	}
	if err := r.checkHost(); err != nil {
		return nil, err
	}
	wants, err := workflow.Desired(ctx, r.Steps())
	if err != nil {
		return nil, err
	}
	if node.FileExists(h, config.KubeletFlagsFile) { // the cluster does not store its contents
		wants.Files = append(wants.Files, pki.File{Path: config.KubeletFlagsFile})
	}
	files, err := r.Differing(wants.Files...)
	if err != nil {
		return nil, err
	}
	list := []status.Drift{}
	add := func(d status.Drift, gives, now []byte) {
		if gives != nil {
			d.Diff = r.Diff(d.Name, d.Name+" as configured", gives, d.Name+" now", now, driftLines)
		}
		list = append(list, d)
	}
	for _, f := range files {
		if r.isEdit(f) {
			add(status.Drift{Name: f.Path, Cause: status.Edited, Keep: r.keep(f)}, f.Data, f.Now)
		} else if behind, err := r.followsNot(ctx, f); err != nil {
			return nil, err
		} else if behind {
			add(status.Drift{Name: f.Path, Cause: status.Behind}, f.Data, f.Now)
		}
	}
	objects, err := r.Compared(ctx, wants.Objects)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.EditedByHand {
			add(status.Drift{Name: o.Name, Cause: status.Edited, Keep: patchable[o.Name]}, []byte(o.After), []byte(o.Before))
		}
	}
	return list, nil
}

// driftLines are the lines around a change in the diff of a drift.
const driftLines = 2

// patchable are the objects that can have patches.
var patchable = map[string]string{"Deployment kube-system/coredns": reconfiguration.Patch, "DaemonSet kube-system/kube-proxy": reconfiguration.Patch}

// followsNot reports whether the configuration from which a file comes was changed in the cluster since this node followed it: by a
// reconfiguration on another node, or in its ConfigMap.
func (r *Reconfigure) followsNot(ctx context.Context, f node.DifferingFile) (bool, error) {
	configMap := ""
	switch {
	case f.Data == nil:
		return false, nil
	case f.Path == config.KubeletConfigFile:
		configMap = "kubelet-config"
	case path.Dir(f.Path) == config.ManifestsDir:
		configMap = "kubeadm-config"
	case !r.brings(f.Path):
		return false, nil
	}
	follows := r.Stored.Cluster.Reconfiguration.Follows(r.Goal.Followed, r.IsControlPlane())
	if !follows || configMap == "" {
		return !follows, nil
	}
	m, err := cluster.ConfigMap(ctx, r.API.Client.API, metav1.NamespaceSystem, configMap)
	return err == nil && m != nil && cluster.EditedByHand(m.ManagedFields), err
}

// isEdit reports whether a file was edited or removed since Airlift wrote it, and is not as the stored configuration gives it.
func (r *Reconfigure) isEdit(f node.DifferingFile) bool {
	return revision.EditedByHand(r.Existing, f.Path, f.Now) && !r.isConfigured(f.Path, f.Now)
}

// isConfigured reports whether the stored configuration gives a file its contents. It is false if that cannot be computed.
func (r *Reconfigure) isConfigured(file string, now []byte) bool {
	gives := r.configured(file)
	switch {
	case gives == nil || now == nil:
		return false
	case file == config.KubeletConfigFile:
		return reconfiguration.SameDocument(gives, now)
	case path.Dir(file) == config.ManifestsDir:
		return reconfiguration.SamePod(gives, now)
	}
	return bytes.Equal(gives, now)
}

// configured returns what the stored configuration gives a file, nil if that cannot be computed.
func (r *Reconfigure) configured(file string) []byte {
	for _, f := range r.filesBefore {
		if f.Path == file {
			return f.Data
		}
	}
	switch {
	case r.former == nil:
	case file == config.KubeletConfigFile:
		if s, err := r.KubeletDocuments(r.former); err == nil {
			return s.Data
		}
	case path.Dir(file) == config.ManifestsDir && r.IsControlPlane():
		if pods, err := r.Rendered(r.former, func(string, []string) {}); err == nil {
			return pods[componentOf(file)]
		}
	}
	return nil
}

func componentOf(manifest string) string { return strings.TrimSuffix(path.Base(manifest), ".yaml") }

// keep returns what keeps the edit of a file: the fields of kubeadm's documents that give it. It is "" if nothing does.
func (r *Reconfigure) keep(f node.DifferingFile) string {
	const documents = " (--config FILE, or cluster.yaml)"
	stored := &r.former.Cluster
	switch {
	case f.Now == nil:
		return ""
	case r.brings(f.Path):
		// The API server reads its keys only when it starts. Until then, nobody knows with which it writes.
		if f.Path == reconfiguration.FileOf(stored, "kube-apiserver", encryptionFlag) {
			return ""
		}
		return "--file " + f.Path + "=" + f.Path
	case path.Dir(f.Path) == config.ManifestsDir:
		fields := strings.Join(reconfiguration.PodFields(stored, componentOf(f.Path), r.configured(f.Path), f.Now), ", ")
		if fields != "" && fields != reconfiguration.Patch {
			fields += documents
		}
		return fields
	case f.Path == config.KubeletConfigFile:
		fields, err := reconfiguration.DifferingFields(r.configured(f.Path), f.Now)
		if err != nil {
			return ""
		}
		return "KubeletConfiguration." + strings.Join(fields, ", KubeletConfiguration.") + documents + ", or for this node alone " + render.KubeletInstanceConfigPath
	case f.Path == config.KubeletFlagsFile:
		return "InitConfiguration.nodeRegistration.kubeletExtraArgs: ./install reconfigure node --config FILE"
	case f.Path == render.KubeletUnitPath || f.Path == render.KubeletDropInPath:
		return "a drop-in of your own, such as " + path.Dir(render.KubeletDropInPath) + "/20-site.conf"
	}
	return ""
}

// takeOver records that files which were edited by hand, and are as this run wants them, are Airlift's from now on. Undo of this
// run takes that back.
func (r *Reconfigure) takeOver() error {
	files, err := r.localFiles()
	if err != nil {
		return err
	}
	for _, f := range files {
		now, err := r.Present(f.Path)
		if err != nil {
			return err
		}
		if !bytes.Equal(now, f.Data) || !revision.EditedByHand(r.Existing, f.Path, now) {
			continue
		}
		if r.Unfinished() {
			if err := r.Record.TakeOver(r.Host, f.Path); err != nil {
				return err
			}
		}
		if err := revision.RecordWritten(r.Host, f.Path, filesystem.Digest(now)); err != nil {
			return err
		}
		r.Console.Note("%s stays as it was edited", f.Path)
	}
	return nil
}
