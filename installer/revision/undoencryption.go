package revision

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/reconfiguration"
	"airlift/installer/staticpod"
	"airlift/internal/fault"
)

// FindWritten returns a key of etcd whose value was written with a provider, "" for none.
func FindWritten(ctx context.Context, m *node.Machine, of *config.Etcd, u reconfiguration.Unsafe) (key string, err error) {
	client, err := connectEtcd(ctx, m, of)
	if err != nil {
		return "", fmt.Errorf("finding data that was written with %s: %w", u.Provider, err)
	}
	defer client.Close()
	return findWritten(etcdPrefix(m), u, func(below string, matches func(value []byte) bool) (string, error) {
		return client.Find(ctx, below, matches)
	})
}

// WalkEtcd visits the values of a resource in etcd, as the API servers store them.
func WalkEtcd(ctx context.Context, m *node.Machine, of *config.Etcd, resource string, visit func(key string, value []byte)) error {
	client, err := connectEtcd(ctx, m, of)
	if err != nil {
		return fmt.Errorf("reading %s in etcd: %w", resource, err)
	}
	defer client.Close()
	return client.Walk(ctx, etcdPrefix(m)+"/"+resource+"/", func(key string, value []byte) bool {
		visit(key, value)
		return false
	})
}

// etcdPrefix is where the API servers store their data.
func etcdPrefix(m *node.Machine) string {
	prefix := "/registry"
	if pod, err := staticpod.Read(m.Existing.Path(node.APIServerManifest)); err == nil {
		prefix = "/" + strings.Trim(cmp.Or(pod.Flags["etcd-prefix"], prefix), "/")
	}
	return prefix
}

// findWritten is FindWritten below a prefix of etcd. find returns the first key below another one whose value matches.
func findWritten(prefix string, u reconfiguration.Unsafe, find func(below string, matches func(value []byte) bool) (string, error)) (key string, err error) {
	if written := u.Provider.Prefix(); written != "" {
		return find(prefix+"/", func(value []byte) bool { return bytes.HasPrefix(value, []byte(written)) })
	}
	// Other resources are not encrypted either.
	for _, below := range placesOf(u.Resource) {
		if key, err = find(prefix+"/"+below+"/", func(value []byte) bool { return !bytes.HasPrefix(value, []byte("k8s:enc:")) }); err != nil || key != "" {
			return key, err
		}
	}
	if strings.HasPrefix(u.Resource, reconfiguration.AllOthers) {
		return "other resources, which cannot be listed", nil
	}
	return "", nil
}

// otherPlaces are the places in etcd of the resources that are not below their names (SpecialDefaultResourcePrefixes of
// k8s.io/kubernetes/pkg/kubeapiserver, the same from v1.29 to v1.37).
var otherPlaces = map[string]string{
	"replicationcontrollers": "controllers", "endpoints": "services/endpoints", "nodes": "minions", "services": "services/specs",
	"ingresses.extensions": "ingress", "ingresses.networking.k8s.io": "ingress",
}

// placesOf returns where etcd may have the objects of a resource, "secrets" or "pandas.example", below the prefix of the cluster.
// Custom resources are below their group.
func placesOf(resource string) []string {
	if other := otherPlaces[resource]; other != "" {
		return []string{other}
	}
	name, group, grouped := strings.Cut(resource, ".")
	if !grouped {
		return []string{name}
	}
	return []string{name, group + "/" + name}
}

// connectEtcd connects to the etcd of the cluster.
func connectEtcd(ctx context.Context, m *node.Machine, of *config.Etcd) (*etcd.Client, error) {
	if x := of.External; x != nil {
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
	return node.ConnectEtcd(ctx, m.Host, m.Report, []string{own.ClientURL}, own.Certificates, node.ProbeTimeout)
}

// encryptions returns how the API server of this host encrypts, and how it will after undo.
func (u *Undo) encryptions() (now, former *reconfiguration.Encryption, err error) {
	read := func(file string) ([]byte, error) { return os.ReadFile(u.Existing.Path(file)) }
	if now, err = EncryptionOf(read); err != nil {
		return nil, nil, err
	}
	former, err = EncryptionOf(func(file string) ([]byte, error) {
		if slices.Contains(u.paths, file) {
			return u.former.Read(file)
		}
		return read(file)
	})
	return now, former, err
}

// EncryptionOf returns how an API server encrypts. read reads the files of its host.
func EncryptionOf(read func(file string) ([]byte, error)) (*reconfiguration.Encryption, error) {
	manifest, err := read(node.APIServerManifest)
	if err != nil {
		return nil, err
	}
	pod, err := staticpod.Parse(node.APIServerManifest, manifest)
	if err != nil {
		return nil, err
	}
	file := pod.HostPath(pod.Flags["encryption-provider-config"])
	if file == "" {
		return nil, nil
	}
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	e, err := reconfiguration.ParseEncryption(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s, with which the API server encrypts: %w", file, err)
	}
	return e, nil
}

// checkEncryption refuses to restore an encryption with which API servers could not read data.
func (u *Undo) checkEncryption(ctx context.Context, of *config.Etcd, now, former *reconfiguration.Encryption) error {
	for _, one := range reconfiguration.CheckStep(now, former) {
		message := one.String()
		if one.MayBeUnused {
			left, err := FindWritten(ctx, u.Machine, of, one)
			if err != nil {
				return err
			}
			if left == "" {
				continue
			}
			message += ": " + left
		}
		return fault.New(fault.Preflight, "undo would make data unreadable: %s", message).Hint(reconfiguration.Order)
	}
	return nil
}
