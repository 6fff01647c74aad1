package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/staticpod"
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
	pod, err := staticpod.Read(h.Path(node.APIServerManifest))
	if err != nil {
		return s, err
	}
	file := pod.HostPath(pod.Flags[encryptionFlag])
	if file == "" {
		return s, nil
	}
	data, err := os.ReadFile(h.Path(file))
	if err != nil {
		return s, err
	}
	if s.former, err = reconfiguration.ParseEncryption(data); err != nil {
		return s, fmt.Errorf("reading %s, with which the API server runs: %w", file, err)
	}
	return s, nil
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
			left, err := e.findWritten(ctx, one)
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
	last := e.change.run.facts.stored.Cluster.Reconfiguration
	nodes, err := e.change.run.facts.api.Client.Nodes(ctx)
	for _, n := range nodes {
		if n.Name != e.change.config().NodeRegistration.Name && n.Role == cluster.ControlPlaneRole && !last.Follows(n.Reconfiguration, true) {
			names = append(names, n.Name)
		}
	}
	return names, err
}

// findWritten returns a key of etcd whose value was written with a provider, "" for none.
func (e encryption) findWritten(ctx context.Context, u reconfiguration.Unsafe) (key string, err error) {
	client, err := e.connect(ctx)
	if err != nil {
		return "", fmt.Errorf("finding data that was written with %s: %w", u.Provider, err)
	}
	defer client.Close()
	prefix := "/registry"
	if pod, err := staticpod.Read(e.change.run.facts.node.Existing.Path(node.APIServerManifest)); err == nil {
		prefix = "/" + strings.Trim(cmp.Or(pod.Flags["etcd-prefix"], prefix), "/")
	}
	if written := u.Provider.Prefix(); written != "" {
		return client.Find(ctx, prefix+"/", func(value []byte) bool { return bytes.HasPrefix(value, []byte(written)) })
	}
	// Other resources are not encrypted either.
	resource, group, _ := strings.Cut(u.Resource, ".")
	for _, below := range []string{prefix + "/" + resource + "/", prefix + "/" + group + "/" + resource + "/"} {
		if key, err = client.Find(ctx, below, func(value []byte) bool { return !bytes.HasPrefix(value, []byte("k8s:enc:")) }); err != nil || key != "" {
			return key, err
		}
	}
	if strings.HasPrefix(u.Resource, reconfiguration.AllOthers) {
		return "other resources, which cannot be listed", nil
	}
	return "", nil
}

// connect connects to the etcd of the cluster.
func (e encryption) connect(ctx context.Context) (*etcd.Client, error) {
	m := e.change.run.facts.node.Machine
	if x := e.change.config().Etcd.External; x != nil {
		tls, err := etcd.TLS(m.Host.Path(x.CAFile), m.Host.Path(x.CertFile), m.Host.Path(x.KeyFile))
		if err != nil {
			return nil, err
		}
		return etcd.Connect(ctx, x.Endpoints, tls, m.Report)
	}
	own, err := node.FindEtcd(m.Existing)
	if err == nil && own == nil {
		err = errors.New("this host has no etcd")
	}
	if err != nil {
		return nil, err
	}
	return node.ConnectEtcd(ctx, m, []string{own.ClientURL}, own.Certificates, node.ProbeTimeout)
}
