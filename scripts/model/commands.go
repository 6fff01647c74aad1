package model

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/certs"
	"airlift/installer/flow/initcluster"
	"airlift/installer/flow/join"
	"airlift/installer/flow/reset"
	"airlift/installer/flow/rotate"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/profile"
	"airlift/installer/revision"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

const token = "abcdef.0123456789abcdef"

// changing runs a command that changes the host, as its cobra command does.
func (r *run) changing(command, version string, do func(h *host.Host, c *workflow.Console) error) (output string, err error) {
	if version != "" {
		r.installer = r.host.world.installer(version)
	}
	h, unlock, err := r.open(command)
	if err != nil {
		return "", err
	}
	defer unlock()
	var out bytes.Buffer
	if r.dry {
		return "", do(h, &workflow.Console{Out: &out, Results: io.Discard})
	}
	h.Records().BeginRun(ledger.Run{Command: command, Version: version, Began: time.Now().UTC().Truncate(time.Millisecond)})
	err = do(h, &workflow.Console{Out: &out, Results: io.Discard})
	message := ""
	if err != nil {
		message = err.Error()
	}
	h.Records().EndRun(time.Now(), int(fault.ExitCode(err)), message)
	return out.String(), err
}

// end ends a command.
func (r *run) end() {
	r.cancel()
	w := r.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.host.current == r {
		r.host.current = nil
	}
}

// busy reports whether a command runs on the host.
func (h *Host) busy() bool {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	return h.current != nil
}

// init makes the host the first control plane.
func (r *run) init(b *payload.Bundle) (string, error) {
	return r.initWith(b, &config.Config{})
}

// initWith is init with more of a configuration.
func (r *run) initWith(b *payload.Bundle, cfg *config.Config) (string, error) {
	cfg.ControlPlaneEndpoint, cfg.EncryptionAlgorithm = Endpoint+":6443", "ECDSA-P256"
	cfg.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: r.host.IP, BindPort: config.DefaultBindPort}
	cfg.UploadCerts, cfg.CertificateKey = true, certificateKey
	cfg.BootstrapTokens = []config.BootstrapToken{{Token: token, TTL: 24 * time.Hour}}
	return r.initialise(b, cfg)
}

// initialise is init with a configuration.
func (r *run) initialise(b *payload.Bundle, cfg *config.Config) (string, error) {
	return r.changing("init", b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		cfg.SkipPhases = []string{"preflight"}
		plan, err := r.plan(b, h, c, cfg)
		if err != nil {
			return err
		}
		if r.dry {
			return initcluster.DryRun(r.ctx, plan, phases.InitOptions{UserToken: true}, h, c)
		}
		run := initcluster.New(plan, phases.InitOptions{UserToken: true}, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// join makes the host a node of the cluster of another host.
func (r *run) join(b *payload.Bundle, from *Host, controlPlane bool) (string, error) {
	hashes, err := from.caHashes()
	if err != nil {
		return "", err
	}
	cfg := &config.Config{ControlPlane: controlPlane}
	cfg.Discovery = config.Discovery{Token: token, TLSBootstrapToken: token, APIServerEndpoint: Endpoint + ":6443", CACertHashes: hashes}
	if controlPlane {
		cfg.CertificateKey = certificateKey
		cfg.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: r.host.IP, BindPort: config.DefaultBindPort}
	}
	return r.joins(b, cfg)
}

// joins is join with a configuration.
func (r *run) joins(b *payload.Bundle, cfg *config.Config) (string, error) {
	return r.changing("join", b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		cfg.SkipPhases = []string{"preflight"}
		if err := b.Configure(cfg); err != nil {
			return err
		}
		if err := b.CheckHost(r.ctx, h); err != nil {
			return err
		}
		cfg.Facts = r.host.facts()
		cfg.CompleteJoin()
		if err := cfg.ValidateJoin(); err != nil {
			return err
		}
		plan, err := phases.PlanJoin(b, cfg, false, c.Warn)
		if err != nil {
			return err
		}
		if r.dry {
			return join.DryRun(r.ctx, plan, h, c)
		}
		run := join.New(plan, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

const certificateKey = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// reset removes what Airlift installed. removeNode also removes a node that was adopted.
func (r *run) reset(force, removeNode bool) (string, error) {
	r.resets = removeNode || !r.host.isAdopted()
	return r.changing("reset", "", func(h *host.Host, c *workflow.Console) error {
		cfg := config.Reset{Force: force, RemoveNode: removeNode}
		cfg.Complete()
		run, err := reset.New(cfg, config.KubernetesDir+"/admin.conf", h, c)
		if err != nil {
			return err
		}
		return run.Run(r.ctx)
	})
}

// upgrade upgrades the node to the version of the file.
func (r *run) upgrade(b *payload.Bundle, others bool) (string, error) {
	name := "upgrade apply"
	if others {
		name = "upgrade node"
	}
	return r.changing(name, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		o := upgrade.Options{Node: others}
		o.CertificateRenewal, o.EtcdUpgrade, o.Drain = true, true, true
		o.IgnorePreflightErrors = []string{"all"}
		run := upgrade.New(b, o, false, h, c)
		defer run.Close()
		if r.dry && !others {
			plan, err := upgrade.ReadPlan(r.ctx, b, upgrade.PlanOptions{UpgradePlan: config.UpgradePlan{EtcdUpgrade: true, IgnorePreflightErrors: []string{"all"}}, Drain: true}, h, c)
			if err != nil {
				return err
			}
			for _, change := range plan.Changes {
				r.planned = append(r.planned, change.Name)
			}
		}
		if r.dry {
			return run.DryRun(r.ctx)
		}
		return run.Run(r.ctx)
	})
}

// renewAll renews all certificates, as the timer does.
const renewAll = "certs renew all --restart"

func (r *run) renew() (string, error) {
	var out bytes.Buffer
	warn := func(format string, args ...any) { fmt.Fprintf(&out, "warning: "+format+"\n", args...) }
	source := &certs.Source{Rootfs: r.root, Kubeconfig: config.KubernetesDir + "/admin.conf", Warn: warn}
	err := certs.Renew(r.ctx, source, certs.Options{Names: []string{"all"}, Restart: true}, &workflow.Console{Out: &out, Results: io.Discard}, func(h *host.Host, run func() error) error {
		r.use(h)
		return run()
	})
	return out.String(), err
}

// autoRenew sets the timer that renews certificates, or removes it.
func (r *run) autoRenew(off bool) (string, error) {
	h, unlock, err := r.open("certs auto")
	if err != nil {
		return "", err
	}
	defer unlock()
	var out bytes.Buffer
	if off {
		return out.String(), certs.RemoveTimer(r.ctx, h, &out)
	}
	return out.String(), certs.StartTimer(r.ctx, h, "", &out)
}

// rotate runs a stage of the rotation of the CAs.
func (r *run) rotate(stage, key string) (string, error) {
	return r.changing("certs rotate-ca "+stage, "", func(h *host.Host, c *workflow.Console) error {
		run, err := rotate.New(r.ctx, rotate.Options{Stage: stage, CertificateKey: key}, h, c)
		if err != nil {
			return err
		}
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// undo undoes the last upgrade of the node.
func (r *run) undo() (string, error) {
	return r.changing("upgrade undo", "", func(h *host.Host, c *workflow.Console) error {
		run, err := revision.NewUndo(revision.Upgrade, h, c)
		if err != nil {
			return err
		}
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// drive is the directory of the backups, which all hosts have.
func (r *run) drive() string { return filepath.Join(filepath.Dir(r.host.Root), "drive") }

// snapshot saves a backup.
func (r *run) snapshot() (string, error) {
	return r.changing("etcd snapshot", "", func(h *host.Host, c *workflow.Console) error {
		if err := os.MkdirAll(r.drive(), 0o700); err != nil {
			return err
		}
		return snapshot.New(h, c).Save(r.ctx, filepath.Join(r.drive(), "cluster.tar"), true)
	})
}

func (r *run) snapshotTo(file string) (string, error) {
	return r.changing("etcd snapshot", "", func(h *host.Host, c *workflow.Console) error {
		return snapshot.New(h, c).Save(r.ctx, file, true)
	})
}

// restore restores the cluster from a backup.
func (r *run) restore(b *payload.Bundle, path string) (string, error) {
	file, err := snapshot.Open(r.ctx, path, nil)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return r.restoreFile(b, file)
}

func (r *run) restoreFile(b *payload.Bundle, file *snapshot.File) (string, error) {
	return r.changing("etcd restore", b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		if err := file.CheckVersion(b); err != nil {
			return err
		}
		cfg, _, err := file.Config()
		if err != nil {
			return err
		}
		cfg.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: r.host.IP, BindPort: config.DefaultBindPort}
		cfg.BootstrapTokens = []config.BootstrapToken{{Token: token, TTL: 24 * time.Hour}}
		cfg.SkipPhases = []string{"preflight"}
		plan, err := r.plan(b, h, c, cfg)
		if err != nil {
			return err
		}
		run := initcluster.NewRestore(plan, phases.InitOptions{UserToken: true}, file, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// plan completes the configuration of init, and plans it.
func (r *run) plan(b *payload.Bundle, h *host.Host, c *workflow.Console, cfg *config.Config) (*phases.Plan, error) {
	if err := b.Configure(cfg); err != nil {
		return nil, err
	}
	if err := b.CheckHost(r.ctx, h); err != nil {
		return nil, err
	}
	cfg.Facts = r.host.facts()
	cfg.CompleteInit()
	if _, err := profile.Apply(r.profile, cfg); err != nil {
		return nil, err
	}
	if err := cfg.ValidateInit(); err != nil {
		return nil, err
	}
	return phases.PlanInit(b, cfg, false, c.Warn)
}
