package upgrade

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/undo"
	"airlift/installer/upgradecheck"
)

// An encryptionStep is a change of how the API servers encrypt etcd's data.
type encryptionStep struct {
	former *reconfiguration.Encryption // with which the API server of this host runs
	next   *reconfiguration.Encryption
}

const encryptionFlag = "encryption-provider-config"

// encryption is how the API servers encrypt etcd's data.
type encryption struct{ change *change }

// read reads both configurations. The present one is in the file that the manifest of the API server names.
func (e encryption) read() (s encryptionStep, err error) {
	h := e.change.run.facts.node.Existing
	if file := reconfiguration.FileOf(&e.change.config().Cluster, "kube-apiserver", encryptionFlag); file != "" {
		data, err := e.change.carried.content(file)
		if err != nil {
			return s, err
		}
		if s.next, err = reconfiguration.ParseEncryption(data); err != nil {
			return s, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	s.former, err = undo.EncryptionOf(func(file string) ([]byte, error) { return os.ReadFile(h.Path(file)) })
	return s, err
}

// check refuses a step after which API servers could not read data.
func (e encryption) check(ctx context.Context, _ *upgradecheck.Target) (list []preflight.Problem, err error) {
	if !e.change.isControlPlane() {
		return nil, nil
	}
	add := func(fix, message string) {
		list = append(list, preflight.Problem{Name: "Encryption", Message: message, Fix: fix})
	}
	step, err := e.read()
	if err != nil {
		add("correct the file, and give it again: --file PATH=FILE", err.Error())
		return list, nil
	}
	for _, one := range reconfiguration.CheckStep(step.former, step.next) {
		message := one.String()
		if one.MayBeUnused {
			left, err := undo.FindWritten(ctx, e.change.run.facts.node.Machine, &e.change.config().Etcd, one)
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
	if e.change.options.Node || reflect.DeepEqual(step.former, step.next) {
		return list, nil
	}
	behind, err := e.behind(ctx)
	if len(behind) > 0 {
		add("on each of them: ./install reconfigure node",
			"these control planes have not followed the last change, and may not read what the next one writes: "+strings.Join(behind, ", "))
	}
	return list, err
}

// behind lists the other control planes that have not followed the last reconfiguration.
func (e encryption) behind(ctx context.Context) (names []string, err error) {
	nodes, err := e.change.run.facts.api.Client.Nodes(ctx)
	return cluster.Behind(e.change.run.facts.stored.Cluster.Reconfiguration, nodes, e.change.config().NodeRegistration.Name), err
}

// leave records that this control plane does not follow the cluster's configuration while it changes how it encrypts: until the
// run ends, other control planes must not change that.
func (e encryption) leave(ctx context.Context) error {
	if !e.change.isControlPlane() {
		return nil
	}
	if step, err := e.read(); err == nil && reflect.DeepEqual(step.former, step.next) {
		return nil
	}
	r := e.change.run.record
	if err := r.begin(); err != nil {
		return err
	}
	changed, err := e.change.run.facts.api.Client.NodeObjects().SetReconfiguration(ctx, e.change.config().NodeRegistration.Name, 0)
	r.machine.Changed(changed)
	return err
}
