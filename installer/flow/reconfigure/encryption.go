package reconfigure

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/revision"
	"airlift/installer/upgradecheck"
)

// An encryptionStep is a change of how the API servers encrypt etcd's data.
type encryptionStep struct {
	former *reconfiguration.Encryption // with which the API server of this host runs
	next   *reconfiguration.Encryption
}

const encryptionFlag = "encryption-provider-config"

// encryptions reads both configurations. The present one is in the file that the manifest of the API server names.
func (r *Reconfigure) encryptions() (s encryptionStep, err error) {
	h := r.Existing
	if file := reconfiguration.FileOf(&r.Config.Cluster, "kube-apiserver", encryptionFlag); file != "" {
		data, err := r.content(file)
		if err != nil {
			return s, err
		}
		if s.next, err = reconfiguration.ParseEncryption(data); err != nil {
			return s, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	s.former, err = revision.EncryptionOf(func(file string) ([]byte, error) { return os.ReadFile(h.Path(file)) })
	return s, err
}

// checkEncryption refuses a step after which API servers could not read data.
func (r *Reconfigure) checkEncryption(ctx context.Context, _ *upgradecheck.Target) (list []preflight.Problem, err error) {
	if !r.IsControlPlane() {
		return nil, nil
	}
	add := func(fix, message string) {
		list = append(list, preflight.Problem{Name: "Encryption", Message: message, Fix: fix})
	}
	step, err := r.encryptions()
	if err != nil {
		add("correct the file, and give it again: --file PATH=FILE", err.Error())
		return list, nil
	}
	for _, one := range reconfiguration.CheckStep(step.former, step.next) {
		message := one.String()
		if one.MayBeUnused {
			left, err := revision.FindWritten(ctx, r.Machine, &r.Config.Etcd, one)
			if err != nil {
				return nil, err
			}
			if left == "" {
				continue
			}
			message += ": " + left
		}
		add(reconfiguration.Order, message)
	}
	if r.options.Node || reflect.DeepEqual(step.former, step.next) {
		return list, nil
	}
	behind, err := r.behind(ctx)
	if len(behind) > 0 {
		add("on each of them: ./install reconfigure node",
			"these control planes have not followed the last change, and may not read what the next one writes: "+strings.Join(behind, ", "))
	}
	return list, err
}

// behind lists the other control planes that have not followed the last reconfiguration.
func (r *Reconfigure) behind(ctx context.Context) (names []string, err error) {
	nodes, err := r.API.Client.Nodes(ctx)
	return cluster.Behind(r.Stored.Cluster.Reconfiguration, nodes, r.Config.NodeRegistration.Name), err
}

// leaveEncryption records that this control plane does not follow the cluster's configuration while it changes how it encrypts: until the
// run ends, other control planes must not change that.
func (r *Reconfigure) leaveEncryption(ctx context.Context) error {
	if !r.IsControlPlane() {
		return nil
	}
	if step, err := r.encryptions(); err == nil && reflect.DeepEqual(step.former, step.next) {
		return nil
	}
	if err := r.Begin(); err != nil {
		return err
	}
	changed, err := r.API.Client.NodeObjects().Follow(ctx, r.Config.NodeRegistration.Name, func(f *cluster.Follows) { f.Reconfiguration = 0 })
	r.Changed(changed)
	return err
}
