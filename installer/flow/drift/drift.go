// Package drift finds what was edited by hand on a node and in its cluster, and what keeps it.
package drift

import (
	"context"
	"errors"
	"io"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/redact"
	"airlift/installer/status"
	"airlift/installer/workflow"
)

// Read returns what was edited by hand on this host and in the cluster, compared with what the stored configuration gives: the
// changes of reconfigure --restore, without files that Airlift wrote so. It changes nothing. The error is why that is not known.
func Read(ctx context.Context, b *payload.Bundle, kubeconfig string, h *host.Host) ([]status.Drift, error) {
	switch {
	case !h.Records().Used():
		return nil, errors.New("this node was not installed by Airlift")
	case status.AdoptedKubelet(h) != nil:
		return nil, errAdopted
	}
	if err := node.UnfinishedReconfigure(h); err != nil {
		return nil, err
	}
	o := upgrade.ReconfigureOptions{Node: !node.FileExists(h, node.APIServerManifest), Restore: true, Kubeconfig: kubeconfig}
	r := upgrade.NewReconfigure(b, o, h, &workflow.Console{Out: io.Discard})
	defer r.Close()
	p, err := r.Compare(ctx)
	if err != nil {
		return nil, err
	}
	list := []status.Drift{}
	for _, f := range p.Files {
		one := status.Drift{Name: f.Path}
		if one.Cause, err = causeOf(ctx, p, f); err != nil {
			return nil, err
		}
		if !f.Secret && f.Wanted != nil {
			one.Diff = diff(redact.File(f.Path), f.Path, f.Wanted, f.Now)
		}
		if one.Cause != "" {
			list = append(list, one)
		}
	}
	for _, o := range p.Objects {
		if !o.EditedByHand {
			continue
		}
		list = append(list, status.Drift{Name: o.Name, Cause: status.Edited, Diff: diff(redact.Documents, o.Name, []byte(o.After), []byte(o.Before))})
	}
	return list, nil
}

var errAdopted = errors.New("this node was adopted and not upgraded since: its files come from its former installer")

// diffLines are the lines around a change in a diff.
const diffLines = 2

// diff returns what an edit changed in what the stored configuration gives.
func diff(form redact.Form, name string, gives, is []byte) string {
	return redact.Diff(form, redact.Version{Name: name + " as configured", Text: gives}, redact.Version{Name: name + " now", Text: is}, diffLines)
}

// causeOf returns why a file differs from what the stored configuration gives: it was edited, or the configuration was; "" if it
// does not differ, or for another reason, such as a patch.
func causeOf(ctx context.Context, p *upgrade.Comparison, f upgrade.ComparedFile) (string, error) {
	if f.Edited {
		return status.Edited, nil
	}
	if f.Wanted == nil || string(f.Wanted) == string(f.Now) {
		return "", nil
	}
	behind, err := isBehind(ctx, p, f)
	if err != nil || !behind {
		return "", err
	}
	return status.Behind, nil
}

// isBehind reports whether the configuration from which a file comes was changed in the cluster since this node followed it:
// by a reconfiguration on another node, or in its ConfigMap.
func isBehind(ctx context.Context, p *upgrade.Comparison, f upgrade.ComparedFile) (bool, error) {
	configMap := ""
	switch {
	case f.Path == config.KubeletConfigFile:
		configMap = "kubelet-config"
	case path.Dir(f.Path) == config.ManifestsDir:
		configMap = "kubeadm-config"
	case !f.Carried:
		return false, nil
	}
	if !p.Follows || configMap == "" {
		return !p.Follows, nil
	}
	m, err := cluster.ConfigMap(ctx, p.Client.API, metav1.NamespaceSystem, configMap)
	return err == nil && m != nil && cluster.EditedByHand(m.ManagedFields), err
}
