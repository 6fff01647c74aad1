package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// perform does one action. Each of its commands is idempotent.
func (r *Run) perform(ctx context.Context, a plan.Action, h *Host) error {
	switch a.Verb {
	case plan.Init:
		return r.init(ctx, a, h)
	case plan.Join:
		return r.join(ctx, a, h)
	case plan.Unpack:
		return r.unpack(ctx, a, h)
	case plan.UpgradeApply, plan.Upgrade:
		return r.upgrade(ctx, a, h)
	case plan.EndpointApply, plan.Endpoint:
		return h.commands(ctx, a, h.installer, nil)
	case plan.Registry:
		return r.registry(ctx, a, h)
	case plan.Reconfigure, plan.ReconfigureNode:
		return r.reconfigure(ctx, a, h)
	case plan.NodeMeta:
		return r.nodes(ctx, a)
	case plan.Remove, plan.RemoveOff:
		return r.remove(ctx, a, h)
	}
	return fmt.Errorf("the plan has an action %q, which this file does not know", a.Verb)
}

// commands runs the commands of an action, which the plan has, with a file on the host.
func (h *Host) commands(ctx context.Context, a plan.Action, file string, stdin io.Reader) error {
	for _, args := range a.Commands {
		if err := h.install(ctx, stdin, append([]string{file}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) init(ctx context.Context, a plan.Action, h *Host) error {
	if err := h.bringWhole(ctx); err != nil {
		return err
	}
	if err := h.bringPatches(ctx); err != nil {
		return err
	}
	documents, err := h.initDocuments(r.keys.initToken())
	if err != nil {
		return err
	}
	if err := h.commands(ctx, a, whole, documents); err != nil {
		return err
	}
	return h.dropWhole(ctx)
}

func (r *Run) join(ctx context.Context, a plan.Action, h *Host) error {
	from, err := r.source(ctx, h)
	if err != nil {
		return err
	}
	if err := h.bringPatches(ctx); err != nil {
		return err
	}
	c, err := r.joinCredentials(ctx, r.Plan)
	if err != nil {
		return err
	}
	h.row.Note("connecting to the endpoint %s", c.APIServerEndpoint)
	if err := h.install(ctx, nil, h.installer, "cluster", "host", "reach", "--endpoint", c.APIServerEndpoint, "--api-servers", strings.Join(c.APIServers, ",")); err != nil {
		return err
	}
	document, err := h.joinDocument(c)
	if err != nil {
		return err
	}
	if err := h.commands(ctx, a, from, document); err != nil {
		return err
	}
	return h.dropWhole(ctx)
}

// source returns the path of the file on a host from which a command installs: the thin file if the control planes serve
// the rest, else the whole one.
func (r *Run) source(ctx context.Context, h *Host) (string, error) {
	if r.serves() {
		return h.installer, nil
	}
	return whole, h.bringWhole(ctx)
}

// serves reports whether the cluster has the embedded registry, or gets it from init. cluster.yaml may have it before the
// cluster does.
func (r *Run) serves() bool {
	if !r.Cluster.EmbeddedRegistry || r.served.Load() {
		return r.Cluster.EmbeddedRegistry
	}
	leader := r.host(r.Plan.Leader)
	return leader == nil || leader.Facts == nil || leader.Facts.Cluster == nil || leader.Facts.Cluster.EmbeddedRegistry
}

// unpack imports the images of a newer file and places its binaries, while all runs on. With the embedded registry, the
// leader keeps the file from then on, so that the other hosts read from it.
func (r *Run) unpack(ctx context.Context, a plan.Action, h *Host) error {
	source := r.source
	if r.serves() && h.Name == r.Plan.Leader {
		source = r.leaderSource
	}
	from, err := source(ctx, h)
	if err != nil {
		return err
	}
	return h.commands(ctx, a, from, nil)
}

// leaderSource is source for the leader with the embedded registry: it needs the whole file, unless the control planes keep
// it already.
func (r *Run) leaderSource(ctx context.Context, h *Host) (string, error) {
	if h.Facts != nil && h.Facts.Cluster != nil && h.Facts.Cluster.Keeps(r.File.Bundle.ID()) {
		return h.installer, nil
	}
	return whole, h.bringWhole(ctx)
}

func (r *Run) upgrade(ctx context.Context, a plan.Action, h *Host) error {
	from, err := r.source(ctx, h)
	if err != nil {
		return err
	}
	if err := h.bringPatches(ctx); err != nil {
		return err
	}
	document, err := h.upgradeDocument()
	if err != nil {
		return err
	}
	if err := h.commands(ctx, a, from, document); err != nil {
		return err
	}
	return h.dropWhole(ctx)
}

// undo takes the upgrade of a host back.
func (r *Run) undo(ctx context.Context, h *Host) error {
	return h.install(ctx, nil, h.installer, "upgrade", "undo", "--yes")
}

// registry enables the embedded registry on a node. The leader gets the whole file first, and keeps a copy.
func (r *Run) registry(ctx context.Context, a plan.Action, h *Host) error {
	if h.Name != r.Plan.Leader {
		return h.commands(ctx, a, h.installer, nil)
	}
	from, err := r.leaderSource(ctx, h)
	if err == nil {
		err = h.commands(ctx, a, from, nil)
	}
	if err != nil {
		return err
	}
	r.served.Store(true)
	return h.dropWhole(ctx)
}

// A nodeMeta is what a Node is to have, for "cluster host nodes".
type nodeMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Taints []string          `json:"taints"`
}

// nodes sets the labels and taints of a Node, on the leader.
func (r *Run) nodes(ctx context.Context, a plan.Action) error {
	at := slices.IndexFunc(r.Cluster.Hosts, func(h spec.Host) bool { return h.Name == a.Host })
	if at < 0 {
		return fmt.Errorf("the plan has labels for %s, which is not in cluster.yaml", a.Host)
	}
	wanted := r.Cluster.Hosts[at]
	data, err := json.Marshal([]nodeMeta{{wanted.Name, wanted.Labels, wanted.Taints}})
	if err != nil {
		return err
	}
	leader, err := r.leader(r.Plan)
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
		out = leader.on(h.row)
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
		if err := out.install(ctx, nil, append([]string{leader.installer}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// on returns the host with the row of another one.
func (h *Host) on(row *live.Row) *Host {
	return &Host{Host: h.Host, Facts: h.Facts, site: h.site, conn: h.connection(), locked: h.lockHeld(), row: row}
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
	_, err := h.output(ctx, nil, "rm", "-f", whole)
	return err
}

// bringPatches replaces the patches on the host.
func (h *Host) bringPatches(ctx context.Context) error {
	if h.Patches == "" {
		return nil
	}
	if _, err := h.output(ctx, nil, "/bin/sh", "-c", "umask 077 && rm -rf "+plan.PatchesDir+" && mkdir "+plan.PatchesDir); err != nil {
		return err
	}
	return h.eachPatch(func(name string, data []byte) error {
		sum := sha256.Sum256(data)
		return h.send(ctx, remote.File{Content: bytes.NewReader(data), Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), Path: path.Join(plan.PatchesDir, name), Mode: 0o600}, "")
	})
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
