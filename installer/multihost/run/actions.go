package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// perform does one action: it brings what the commands of the action need, and runs them. Each of them is idempotent.
func (r *Run) perform(ctx context.Context, a plan.Action, h *Host) error {
	switch a.Verb {
	case plan.NodeMeta:
		return r.nodes(ctx, a)
	case plan.Remove, plan.RemoveOff:
		return r.remove(ctx, a, h)
	}
	from := h.installer
	if r.needsWhole(a) {
		from = whole
		if err := h.bringWhole(ctx); err != nil {
			return err
		}
	}
	if a.ReadsPatches() {
		if err := h.bringPatches(ctx); err != nil {
			return err
		}
	}
	if a.Verb == plan.Mirrors {
		defer h.dropRegistries(ctx)
		if err := h.bringRegistries(ctx); err != nil {
			return err
		}
	}
	document, err := r.document(ctx, a, h)
	if err != nil {
		return err
	}
	for _, args := range a.Commands {
		if _, err := h.install(ctx, document, append([]string{from}, args...)...); err != nil && !(a.More && fault.ExitCode(err) == fault.Waiting) {
			return err
		}
	}
	if keeps := a.Verb == plan.Registry && h.Name == r.Plan.Leader; keeps {
		r.served.Store(true)
	} else if !a.ReadsFile() || a.Verb == plan.Unpack { // the upgrade needs it again
		return nil
	}
	return h.dropWhole(ctx)
}

// needsWhole reports whether an action reads the whole file on its host: if the control planes do not serve the rest of the thin one.
// With the embedded registry, the leader keeps the file for the others, unless it does already.
func (r *Run) needsWhole(a plan.Action) bool {
	switch {
	case a.Verb == plan.Init:
		return true
	case a.Host == r.Plan.Leader && (a.Verb == plan.Registry || a.Verb == plan.Unpack && r.serves()):
		c := r.clusterOf(r.Plan.Leader)
		return c == nil || !c.Keeps(r.File.Bundle.ID())
	}
	return a.ReadsFile() && !r.serves()
}

// serves reports whether the cluster has the embedded registry, or gets it from init. cluster.yaml may have it before the
// cluster does.
func (r *Run) serves() bool {
	c := r.clusterOf(r.Plan.Leader)
	return r.Cluster.EmbeddedRegistry && (r.served.Load() || c == nil || c.EmbeddedRegistry)
}

// document returns the standard input of the commands of an action.
func (r *Run) document(ctx context.Context, a plan.Action, h *Host) (io.Reader, error) {
	switch a.Verb {
	case plan.Init:
		return plan.InitDocuments(r.Cluster, h.Host, plan.Token{Text: r.keys.initToken(), TTL: initTokenTTL})
	case plan.Join:
		c, err := r.joinCredentials(ctx, r.Plan)
		if err != nil {
			return nil, err
		}
		h.row.Note("connecting to the endpoint %s", c.APIServerEndpoint)
		if err := h.Install(ctx, "cluster", "host", "reach", "--endpoint", c.APIServerEndpoint, "--api-servers", strings.Join(c.APIServers, ",")); err != nil {
			return nil, err
		}
		return plan.JoinDocument(r.Cluster, h.Host, c)
	case plan.UpgradeApply, plan.Upgrade:
		return plan.UpgradeDocument(r.Cluster, h.Host)
	case plan.Reconfigure:
		return plan.ClusterDocuments(r.Cluster)
	}
	if a.ReadsTarget() {
		data, err := r.Cluster.Backups.Credentials()
		return bytes.NewReader(data), err
	}
	return nil, nil
}

// A nodeMeta is what a Node is to have, for "cluster host nodes".
type nodeMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Taints []string          `json:"taints"`
}

// nodes sets the labels and taints of a Node, on the leader.
func (r *Run) nodes(ctx context.Context, a plan.Action) error {
	leader, err := r.leader(r.Plan)
	if err != nil {
		return err
	}
	wanted := r.Cluster.Hosts[slices.IndexFunc(r.Cluster.Hosts, func(h spec.Host) bool { return h.Name == a.Host })]
	data, err := json.Marshal([]nodeMeta{{wanted.Name, wanted.Labels, wanted.Taints}})
	if err != nil {
		return err
	}
	_, err = leader.answer(ctx, workTime, bytes.NewReader(data), append([]string{leader.installer}, a.Commands[0]...)...)
	return err
}

// remove removes a Node from the cluster, and resets its host if it can be reached. The Node goes last: without it, a
// run that continues an interrupted one would not find the host.
func (r *Run) remove(ctx context.Context, a plan.Action, h *Host) error {
	leader, err := r.leader(r.Plan)
	if err != nil {
		return err
	}
	out := leader
	if h != nil { // the progress is on the row of the host that is removed
		out = &Host{Host: leader.Host, Facts: leader.Facts, site: r.Site, conn: leader.connection(), locked: leader.lockHeld(), row: h.row}
	}
	last := len(a.Commands) - 1
	for i, args := range a.Commands {
		if i == last && a.Verb == plan.Remove {
			if err := r.reset(ctx, h, a.Adopted); err != nil { // the command before this one
				return err
			}
		}
		if i < last && h.Facts.Node == nil || slices.Equal(args, plan.ResetCommand(a.Adopted)) { // it was reset before the connection was lost
			continue
		}
		if _, err := out.install(ctx, nil, append([]string{leader.installer}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// bringWhole brings the whole file to the host, unless it is in place.
func (h *Host) bringWhole(ctx context.Context) error {
	file, err := h.site.File.whole(ctx)
	if err != nil {
		return err
	}
	return h.send(ctx, file, "file")
}

// dropWhole removes the whole file, which no later command needs: the embedded registry has its own copy.
func (h *Host) dropWhole(ctx context.Context) error {
	_, err := h.Output(ctx, "rm", "-f", whole)
	return err
}

// bringPatches replaces the patches on the host.
func (h *Host) bringPatches(ctx context.Context) error {
	if h.Patches == "" {
		return nil
	}
	if err := h.emptyDir(ctx, plan.PatchesDir); err != nil {
		return err
	}
	return h.eachPatch(func(name string, data []byte) error { return h.bringFile(ctx, path.Join(plan.PatchesDir, name), data) })
}

// emptyDir gives the host an empty directory that only root can read.
func (h *Host) emptyDir(ctx context.Context, dir string) error {
	return h.shell(ctx, "umask 077 && rm -rf "+dir+" && mkdir "+dir)
}

// bringFile sends a small file that only root can read.
func (h *Host) bringFile(ctx context.Context, name string, data []byte) error {
	sum := sha256.Sum256(data)
	return h.send(ctx, remote.File{Content: bytes.NewReader(data), Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), Path: name, Mode: 0o600}, "")
}

// bringRegistries brings the CAs and the credentials of registries to the host. No argument of a command has a secret.
func (h *Host) bringRegistries(ctx context.Context) error {
	_, files := plan.OnHost(h.site.Cluster.Registries)
	if len(files) == 0 {
		return nil
	}
	if err := h.emptyDir(ctx, plan.RegistriesDir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if err != nil {
			return fault.New(fault.Usage, "reading a file of the registries: %w", err).Hint("see registries in cluster.yaml")
		}
		if err := h.bringFile(ctx, name, data); err != nil {
			return err
		}
	}
	return nil
}

// dropRegistries removes what bringRegistries brought: containerd has its own copy, which also only root can
// read. What a lost connection leaves is removed by the command that holds the lock of the host.
func (h *Host) dropRegistries(ctx context.Context) {
	h.remove(ctx, plan.RegistriesDir)
}

// remove removes a file or directory with secrets, also after Ctrl-C.
func (h *Host) remove(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	_, _ = h.Output(ctx, "rm", "-rf", path)
}

// eachPatch calls do with the patches of the host. Package spec has checked them, in subdirectories, too.
func (h *Host) eachPatch(do func(name string, data []byte) error) error {
	dir := os.DirFS(h.Patches)
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		return do(name, data)
	})
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return fault.New(fault.Usage, "reading the patches of %s in %s: %w", h.Name, h.Patches, err).Hint("see patches in cluster.yaml")
	}
	return err
}
