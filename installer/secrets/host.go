package secrets

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/revision"
	"airlift/installer/staticpod"
	"airlift/internal/fault"
)

// nextPath has the keys that an unfinished Change gives to the control planes: a run that continues it needs the same ones.
const nextPath = ledger.StateDir + "/secrets-next.yaml"

// A ControlPlane is the Cluster, seen from this host.
type ControlPlane struct {
	*node.Machine
	Client *cluster.Client
	// Kubeconfig is the one of Client.
	Kubeconfig string
	// Reconfigure edits the stored ClusterConfiguration, and gives the control planes a file.
	Reconfigure func(ctx context.Context, edit func(*config.Cluster) error, f reconfiguration.File) error
}

// Open returns the cluster of a control plane.
func Open(ctx context.Context, m *node.Machine, kubeconfig string) (*ControlPlane, error) {
	client, err := node.AdminClient(ctx, m.Existing, kubeconfig)
	if err != nil {
		return nil, err
	}
	if !node.FileExists(m.Existing, node.APIServerManifest) {
		return nil, fault.New(fault.Preflight, "this host is not a control plane").Hint("run it on a control plane")
	}
	return &ControlPlane{Machine: m, Client: client, Kubeconfig: kubeconfig}, nil
}

// Provider returns the file with which the API server of this host encrypts: "", File, or one of the site.
func (c *ControlPlane) Provider() (string, error) {
	pod, err := staticpod.Read(c.Existing.Path(node.APIServerManifest))
	if err != nil {
		return "", err
	}
	return pod.Flags[providerFlag], nil
}

// Keys reads the file that the API server of this host reads.
func (c *ControlPlane) Keys() (*Keys, error) {
	file, err := c.Provider()
	if err != nil {
		return nil, err
	}
	switch file {
	case "":
		return nil, nil
	case File:
	default:
		return nil, fault.New(fault.Preflight, "the API servers encrypt with the configuration of the site: --%s=%s", providerFlag, file).
			Hint("change that one in steps: ./install docs reconfigure")
	}
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	k, err := Parse(data)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading %s: %w", File, err), fault.Preflight, "write again what the cluster keeps: ./install reconfigure node --restore")
	}
	return k, nil
}

func (c *ControlPlane) read() ([]byte, error) { return os.ReadFile(c.Existing.Path(File)) }

// Behind returns the control planes that have not followed the last change of the cluster, and the API servers that do not use the file of
// this host. Not all versions report which file that is.
func (c *ControlPlane) Behind(ctx context.Context) ([]string, error) {
	nodes, err := c.Client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := c.Client.FetchStored(ctx)
	if err != nil {
		return nil, err
	}
	if behind := cluster.Behind(stored.Cluster.Reconfiguration, nodes, ""); len(behind) > 0 {
		return behind, nil
	}
	data, err := c.read()
	if errors.Is(err, fs.ErrNotExist) || err == nil && !IsUsed(&stored.Cluster) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	shared, err := cluster.SharedFiles(ctx, c.Client.API, func() ([]byte, error) {
		return os.ReadFile(c.Existing.Path(path.Join(cmp.Or(stored.Cluster.CertificatesDir, config.CertificatesDir), "sa.key")))
	})
	if err != nil {
		return nil, err
	}
	var behind []string
	if i := slices.IndexFunc(shared, func(f reconfiguration.File) bool { return f.Path == File }); i >= 0 && !bytes.Equal(shared[i].Data, data) {
		behind = append(behind, "this host: its "+File+" is not the one that the control planes share")
	}
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range servers {
		if why := one.differs(sha256Of(data)); why != "" {
			behind = append(behind, "API server at "+one.Address+": "+why)
		}
	}
	return behind, nil
}

// A Server is an API server of the cluster, and which file it has read.
type Server struct {
	Address string `json:"address"`
	// File is the sha256 of the file that it uses, "" if it does not report that.
	File string `json:"file,omitempty"`
	// Error is why it did not answer.
	Error string `json:"error,omitempty"`
}

// differs returns why a server is not known to use the file with a sum.
func (s Server) differs(sum string) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.File != "" && s.File != sum:
		return "it uses another file (" + s.File + ") than this host has (" + sum + ")"
	}
	return ""
}

func sha256Of(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// loaded matches the metric with the file that an API server uses (k8s.io/apiserver, not in v1.29).
var loaded = regexp.MustCompile(`(?m)^apiserver_encryption_config_controller_last_config_info\{[^}]*hash="(sha256:[0-9a-f]{64})"[^}]*\} 1`)

// servers reads the metrics of each API server.
func (c *ControlPlane) servers(ctx context.Context) (list []Server, err error) {
	addresses, err := c.Client.APIServers(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		one := Server{Address: a.String()}
		if one.File, err = c.loaded(ctx, one.Address); err != nil {
			one.Error = err.Error()
		}
		list = append(list, one)
	}
	return list, nil
}

func (c *ControlPlane) loaded(ctx context.Context, address string) (sum string, err error) {
	kubeconfig := c.Kubeconfig
	if kubeconfig == node.AdminConf {
		kubeconfig = c.Existing.Path(kubeconfig)
	}
	client, err := cluster.Load(kubeconfig, address)
	if err != nil {
		return "", err
	}
	var metrics []byte
	err = wait.Retry(ctx, func() error {
		metrics, err = client.API.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		return err
	})
	if m := loaded.FindSubmatch(metrics); err == nil && m != nil {
		return string(m[1]), nil
	}
	return "", err
}

// Walk visits all Secrets in etcd. It reads etcd itself: an API server shows only what it can decrypt.
func (c *ControlPlane) Walk(ctx context.Context, visit func(key string, value []byte)) error {
	stored, err := c.Client.FetchStored(ctx)
	if err != nil {
		return err
	}
	return revision.WalkEtcd(ctx, c.Machine, &stored.Cluster.Etcd, "secrets", visit)
}

// writers is how many Secrets are written at once.
const writers = 8

// Touch sends empty patches. An API server stores an object also without a change, if another key than its first one wrote it. A Secret
// that changes at the same time needs no other attempt: the API server applies the patch to what it is then.
func (c *ControlPlane) Touch(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan string)
	var running sync.WaitGroup
	for range min(writers, len(names)) {
		running.Go(func() {
			for name := range work {
				if err := c.touch(ctx, name); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		work <- name
	}
	close(work)
	running.Wait()
	return context.Cause(ctx)
}

func (c *ControlPlane) touch(ctx context.Context, name string) error {
	namespace, object, _ := strings.Cut(name, "/")
	err := wait.Retry(ctx, func() error {
		_, err := c.Client.API.CoreV1().Secrets(namespace).Patch(ctx, object, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		if apierrors.IsConflict(err) { // after several attempts of the API server: what was written in between is encrypted, or found again
			return nil
		}
		return err
	})
	if err == nil || apierrors.IsNotFound(err) { // it was deleted meanwhile
		return nil
	}
	return fault.Wrap(fmt.Errorf("writing Secret %s again: %w", name, err), fault.Failure,
		"the API server refuses it: correct that, and run the same command again; nothing is lost, no key is removed")
}

// Change lets a reconfiguration give the keys to this host and to the cluster.
func (c *ControlPlane) Change(ctx context.Context, k *Keys) error {
	text := k.Text()
	if err := c.Write(file(nextPath, text)); err != nil {
		return err
	}
	err := c.Reconfigure(ctx, Use, reconfiguration.File{Path: File, Data: text})
	if r, unread := revision.Read(c.Existing, revision.Reconfigure); err != nil && (unread != nil || r != nil && !r.Finished) {
		return err // to be continued with these keys
	}
	return errors.Join(err, c.Host.Remove(nextPath))
}

// Resume finishes an interrupted Change. After an undo, the next run begins with other keys.
func (c *ControlPlane) Resume(ctx context.Context) error {
	text, err := os.ReadFile(c.Existing.Path(nextPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := revision.Read(c.Existing, revision.Reconfigure)
	if err != nil {
		return err
	}
	if r != nil && !r.Finished {
		k, err := Parse(text)
		if err != nil {
			return fault.Wrap(fmt.Errorf("reading %s: %w", nextPath, err), fault.Failure, "undo the unfinished step: ./install reconfigure undo")
		}
		c.Console.Note("an earlier run was interrupted: its step is finished first")
		return c.Change(ctx, k)
	}
	return c.Host.Remove(nextPath)
}

func file(path string, data []byte) pki.File { return pki.File{Path: path, Data: data, Mode: 0o600} }
