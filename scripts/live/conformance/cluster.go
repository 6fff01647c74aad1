package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	addons "airlift/images/release"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
)

// A cluster has two nodes, the first two hosts. The tests run on the third host, which is not a
// node.
type cluster struct {
	site   *site.Site
	tester *lab.Host
}

// An installer makes a cluster of two hosts, with the images of upstream's tests on both.
type installer func(ctx context.Context, release components.Release, control, worker *lab.Host, dir string) error

var installers = map[string]installer{
	"airlift":       byAirlift(""),
	"hardened":      byAirlift("", "--profile", "hardened"),
	"load-balancer": withPool(byAirlift(addons.LoadBalancer)),
	"kubeadm":       byKubeadm,
}

// startCluster returns a cluster, also with an error if hosts have to be removed.
func startCluster(ctx context.Context, name string, kept bool, release components.Release, install installer, dir string) (*cluster, error) {
	s, err := site.Up(ctx, lab.Options{Name: name, Hosts: 3, Kept: kept, Log: func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
	}})
	if err != nil {
		return nil, err
	}
	nodes := *s.Lab
	nodes.Hosts = s.Hosts[:2]
	c := &cluster{site: s, tester: s.Hosts[2]}
	started := time.Now()
	if err := install(ctx, release, nodes.Hosts[0], nodes.Hosts[1], dir); err != nil {
		return c, err
	}
	// Tests use every node that pods can run on. With the taint, that would be one.
	if _, err := s.Kubectl(ctx, "taint", "nodes", "--selector", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/control-plane:NoSchedule-"); err != nil {
		return c, err
	}
	for _, what := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		if _, err := s.Kubectl(ctx, "-n", "kube-system", "rollout", "status", what, "--timeout", "5m"); err != nil {
			return c, err
		}
	}
	if _, err := s.Kubectl(ctx, "wait", "nodes", "--all", "--for", "condition=Ready", "--timeout", "5m"); err != nil {
		return c, err
	}
	fmt.Printf("the cluster is ready after %.0f s\n", time.Since(started).Seconds())
	return c, c.prepareTester(ctx, release)
}

// prepareTester copies what the tests need to the third host.
func (c *cluster) prepareTester(ctx context.Context, release components.Release) error {
	for _, name := range []string{"e2e.test", "ginkgo", "kubectl"} {
		local, err := components.Path(release.Kubernetes, name)
		if err != nil {
			return err
		}
		if _, err := c.tester.CopyIn(ctx, local, "/usr/local/bin/"+name, 0o755); err != nil {
			return err
		}
	}
	config, err := c.site.Hosts[0].Output(ctx, "cat", "/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "airlift-conformance-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := io.WriteString(file, config); err != nil {
		return err
	}
	_, err = c.tester.CopyIn(ctx, file.Name(), kubeconfig, 0o600)
	return err
}

// byAirlift builds a bundle with the images, and an add-on unless it is "", and installs it, as an operator does, with these flags of init.
func byAirlift(addOn string, flags ...string) installer {
	return func(ctx context.Context, release components.Release, control, worker *lab.Host, dir string) error {
		bundle := filepath.Join(dir, "install")
		if err := logged(ctx, filepath.Join(dir, "bundle.log"), "go", "run", "./scripts/buildbundle", "--conformance",
			"--version", release.Kubernetes, "--compression", "fastest", "--output", bundle, "--addon", addOn); err != nil {
			return fmt.Errorf("building the bundle: %w", err)
		}
		for _, h := range []*lab.Host{control, worker} {
			if _, err := h.CopyIn(ctx, bundle, site.Installer, 0o755); err != nil {
				return err
			}
		}
		log, err := os.Create(filepath.Join(dir, "install.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		out, err := site.Install(ctx, control, log, append([]string{"init", "--embedded-registry"}, flags...)...) // some pods have imagePullPolicy Always
		if err != nil {
			return fmt.Errorf("%w, see %s", err, log.Name())
		}
		join, err := site.JoinArgs(out)
		if err != nil {
			return err
		}
		if _, err := site.Install(ctx, worker, log, join...); err != nil {
			return fmt.Errorf("%w, see %s", err, log.Name())
		}
		return nil
	}
}

// withPool creates a pool for Services of type LoadBalancer, with addresses that no host has.
func withPool(install installer) installer {
	return func(ctx context.Context, release components.Release, control, worker *lab.Host, dir string) error {
		if err := install(ctx, release, control, worker, dir); err != nil {
			return err
		}
		b := control.Addr.As4()
		pool := fmt.Sprintf("default=%d.%d.%d.200-%[1]d.%[2]d.%[3]d.219", b[0], b[1], b[2])
		_, err := control.Output(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "create", "configmap", "pools", "--namespace", addons.LoadBalancer, "--from-literal", pool)
		return err
	}
}

// byKubeadm imports the images with ctr and makes the cluster with real kubeadm.
func byKubeadm(ctx context.Context, release components.Release, control, worker *lab.Host, dir string) error {
	log, err := os.Create(filepath.Join(dir, "install.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cache, err := components.CacheDir()
	if err != nil {
		return err
	}
	images, _, err := (&image.Builder{Cache: cache, Log: log}).ListTestImages(ctx, release)
	if err != nil {
		return err
	}
	kit, err := kubeadm.Gather(ctx, release.Kubernetes, log, images...)
	if err != nil {
		return err
	}
	for _, h := range []*lab.Host{control, worker} {
		if _, err := kit.Copy(ctx, h); err != nil {
			return err
		}
		if _, err := kit.Prepare(ctx, h); err != nil {
			return err
		}
		// A test runs etcd as a pod, so the worker also needs the images of a control plane.
		if _, err := kit.ImportImages(ctx, h, true); err != nil {
			return err
		}
		if _, err := h.Output(ctx, "rm", "-r", "/root/images"); err != nil { // gigabytes
			return err
		}
	}
	config := kubeadm.Config(control, kubeadm.ConfigOptions{Version: release.Kubernetes})
	done, err := kit.Init(ctx, control, config)
	if err != nil {
		return err
	}
	if _, err := kit.ApplyNetwork(ctx, control); err != nil {
		return err
	}
	join, err := kubeadm.JoinArgs(done.Output)
	if err != nil {
		return err
	}
	_, err = kit.Join(ctx, worker, join...)
	return err
}

// logged runs a command on this machine with its output in a file.
func logged(ctx context.Context, path string, argv ...string) error {
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = log, log
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Minute
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w, see %s", err, path)
	}
	return nil
}
