package model

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/registrychange"
	"airlift/installer/flow/registrymirrors"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// Commands of the embedded registry. The service that serves the kept files does not run in the model.
const (
	registryEnable  = "registry enable"
	registryDisable = "registry disable"
	// registryNode is what the timer of a node runs each minute, which the model does, too.
	registryNode = "registry node"
)

// enableRegistry gives the node its part in the embedded registry.
func (r *run) enableRegistry(b *payload.Bundle) (string, error) {
	return r.changing(registryEnable, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		before := r.changes
		run, err := registrychange.NewEnable(r.ctx, b, []string{"all"}, h, c)
		if err != nil {
			return r.refused(before, err)
		}
		return run.Run(r.ctx)
	})
}

// disableRegistry removes the embedded registry from the cluster.
func (r *run) disableRegistry() (string, error) {
	return r.changing(registryDisable, "", func(h *host.Host, c *workflow.Console) error {
		before := r.changes
		run, err := registrychange.NewDisable(r.ctx, h, c)
		if err != nil {
			return r.refused(before, err)
		}
		return run.Run(r.ctx)
	})
}

// mirrors gives the node the registries of the site.
func (r *run) mirrors(args []string) (string, error) {
	flags := config.RegistryFlags{}
	if mirror := flagOf(args, "--registry-mirror"); mirror != "" {
		flags.Mirrors = []string{mirror}
	}
	if auth := flagOf(args, "--registry-auth"); auth != "" {
		flags.Auth = filepath.Join(r.root, auth)
	}
	list, _, err := flags.Read()
	if err != nil {
		return "", err
	}
	return r.changing("registry mirrors", "", func(h *host.Host, c *workflow.Console) error {
		before := r.changes
		run, err := registrymirrors.New(list, h, c)
		if err != nil {
			return r.refused(before, err)
		}
		return run.Run(r.ctx)
	})
}

// followRegistry lets the node follow the embedded registry once.
func (r *run) followRegistry() (out string, err error) {
	f := registrychange.Follower{Root: r.root, Use: r.use, Log: func(format string, args ...any) { out += fmt.Sprintf(format+"\n", args...) }}
	err = f.Run(r.ctx)
	return out, err
}

// refused records that a command that refuses has changed something since it had made before changes.
func (r *run) refused(before int, err error) error {
	if r.changes > before {
		r.host.world.violate("it refuses, and has changed something: %v", err)
	}
	return err
}

// fireTimer runs what the timer of the embedded registry starts, if the host has that timer.
func (h *Host) fireTimer() {
	select {
	case h.timer <- struct{}{}:
	default:
		return // it runs, or the model holds it back
	}
	defer func() { <-h.timer }()
	h.world.mu.Lock()
	fires := h.unit(hosts.Timer.Unit()).active && (h.current == nil || !h.current.dead)
	h.world.mu.Unlock()
	if !fires {
		return
	}
	r, err := h.process(0)
	if err != nil {
		return
	}
	defer r.cancel()
	out, err := r.followRegistry()
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if out != "" || err != nil {
		h.world.note("%s: registry node: %s%v", h.Name, out, err)
	}
}

// holdTimer prevents that the timer of a host changes something, until release.
func (h *Host) holdTimer() (release func()) {
	h.timer <- struct{}{}
	return func() { <-h.timer }
}

// registryFile is the file with which containerd of a host asks the control planes for images.
const registryFile = render.RegistriesDir + "/registry.k8s.io/hosts.toml"

// usesRegistry fails if a host has no part in the embedded registry.
func (s *Site) usesRegistry(h *Host) error {
	if !h.isAdopted() && !strings.Contains(h.read(registryFile), fmt.Sprintf(":%d", config.RegistryPort)) {
		return fmt.Errorf("%s of %s leads to no control plane: %q", registryFile, h.Name, h.read(registryFile))
	}
	if s.value(config.RegistryConfigMap, config.RegistryKey) == "" {
		return errors.New("the cluster has no list of kept files")
	}
	kept, _ := filepath.Glob(filepath.Join(h.Root, registry.Directory, "*"))
	if h.controlPlane() && (len(kept) == 0 || !h.unit(registry.Unit).active) {
		return fmt.Errorf("%s does not serve the kept files %q", h.Name, kept)
	}
	return nil
}

// usesNoRegistry fails if a host has something of the embedded registry, after it was disabled.
func (h *Host) usesNoRegistry() error {
	for _, file := range []string{registryFile, hosts.Timer.UnitPath(), registry.UnitPath, registry.SettingsPath, registry.Directory} {
		if h.exists(file) {
			return fmt.Errorf("%s has %s, and the embedded registry is disabled", h.Name, file)
		}
	}
	return nil
}

// leftRegistry waits until the nodes have followed the end of the embedded registry, and fails if one has something of it.
func (s *Site) leftRegistry() error {
	if s.value(config.RegistryConfigMap, config.RegistryKey) != "" { // a node that is off has to follow
		return nil
	}
	for _, h := range s.hosts {
		if h.unit(hosts.Timer.Unit()).active && s.follows(h) >= 0 {
			time.Sleep(2 * time.Minute)
		}
		if s.follows(h) < 0 { // it is no node
			continue
		}
		if err := h.usesNoRegistry(); err != nil {
			return err
		}
	}
	return nil
}

// installer returns the path of the running installer of a version.
func (w *World) installer(version string) string {
	return filepath.Join(path.Dir(w.hosts[0].Root), "installer-"+version)
}

// writeInstallers writes the installers of the bundles.
func (w *World) writeInstallers() (err error) {
	for _, v := range Versions {
		err = errors.Join(err, os.WriteFile(w.installer(v.Kubernetes), []byte(installerText(v.Kubernetes)), 0o755))
	}
	return err
}
