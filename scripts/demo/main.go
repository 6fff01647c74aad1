// Demo makes a cluster of three isolated hosts from one file with one command, and checks that no packet
// tried to leave their network. It removes everything it created, also after Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"airlift/internal/fault"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// name is the demo's lab. It is fixed, so that the next demo finds the remains of a killed
// one.
const name = "demo"

func main() {
	path := flag.String("bundle", "out/install", "the bundle file")
	keep := flag.Bool("keep", false, "leave the hosts running (labctl down --name demo removes them)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *path, *keep)
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

// A part is one step of the demo.
type part struct {
	title string
	show  func(context.Context) error
}

type demonstration struct {
	path    string
	keep    bool
	version string
	site    *site.Site
}

func demo(ctx context.Context, path string, keep bool) (err error) {
	d := &demonstration{path: path, keep: keep}
	if d.version, err = site.KubernetesVersion(path); err != nil {
		return err
	}
	if old, err := lab.Open(name); err == nil {
		if err := old.Down(ctx); err != nil {
			return err
		}
	}
	defer func() {
		if d.site == nil || keep {
			return
		}
		// Remove the hosts even if ctx was cancelled.
		if downErr := d.site.Down(context.Background()); err == nil {
			err = downErr
		}
		fmt.Println("\nthe hosts are removed")
	}()
	started := time.Now()
	for i, p := range []part{
		{"three hosts: Debian with systemd and sshd, no default route, no DNS, nothing installed", d.hosts},
		{"copy the file to host1, and describe the cluster", d.describe},
		{"host1: ./install cluster apply", d.apply},
		{"kubectl get nodes,pods -A -o wide", d.show},
		{"a Deployment with a pod on each host, and requests to its Service by DNS name", d.workload},
		{"packets that tried to leave the hosts' network", d.escapes},
	} {
		fmt.Printf("\n== %d. %s\n\n", i+1, p.title)
		partStarted := time.Now()
		if err := p.show(ctx); err != nil {
			return err
		}
		fmt.Printf("\n   took %.1f s\n", time.Since(partStarted).Seconds())
	}
	fmt.Printf("\nKubernetes %s on three isolated hosts in %.0f s\n", d.version, time.Since(started).Seconds())
	return nil
}

func (d *demonstration) hosts(ctx context.Context) (err error) {
	d.site, err = site.Up(ctx, lab.Options{Name: name, Hosts: 3, SSH: true, Kept: d.keep, Log: func(format string, args ...any) {
		fmt.Printf("   "+format+"\n", args...)
	}})
	return err
}

// describe writes cluster.yaml next to the bundle. The host keys are known, so nobody has to be asked.
func (d *demonstration) describe(ctx context.Context) error {
	first := d.site.Hosts[0]
	size, err := first.CopyIn(ctx, d.path, site.Installer, 0o755)
	if err != nil {
		return err
	}
	fmt.Printf("   %s: %.1f MB\n\n", d.path, float64(size)/1e6)
	text, keys := "apiVersion: airlift/v1\nkind: Cluster\nname: demo\nhosts:\n", "ssh-keyscan"
	for i, h := range d.site.Hosts {
		role := "worker"
		if i == 0 {
			role = "control-plane"
		}
		text += fmt.Sprintf("- {name: %s, role: %s, address: %s}\n", h.Name, role, h.Addr)
		keys += " " + h.Addr.String()
	}
	fmt.Print(text)
	if err := first.Exec(ctx, strings.NewReader(text), io.Discard, os.Stderr, "sh", "-c", "cat >cluster.yaml"); err != nil {
		return err
	}
	_, err = first.Output(ctx, "sh", "-c", keys+" >.ssh/known_hosts")
	return err
}

func (d *demonstration) apply(ctx context.Context) error {
	_, err := site.Install(ctx, d.site.Hosts[0], os.Stdout, "cluster", "apply", "--yes")
	return err
}

// show waits for the system pods before it lists nodes and pods.
func (d *demonstration) show(ctx context.Context) error {
	for _, what := range []string{"kube-system daemonset/kube-proxy", "kube-system deployment/coredns"} {
		ns, name, _ := strings.Cut(what, " ")
		if _, err := d.site.Kubectl(ctx, "-n", ns, "rollout", "status", name, "--timeout", "2m"); err != nil {
			return err
		}
	}
	stop := d.reportUnready(ctx)
	_, err := d.site.Kubectl(ctx, "wait", "pods", "--all", "-A", "--for", "condition=Ready", "--timeout", "2m")
	stop()
	if err != nil {
		return err
	}
	out, err := d.site.Kubectl(ctx, "get", "nodes,pods", "-A", "-o", "wide")
	fmt.Print(out)
	return err
}

// reportUnready prints, every ten seconds until stop is called, which pods are not Ready and
// since when, so that a long wait explains itself.
func (d *demonstration) reportUnready(ctx context.Context) (stop func()) {
	const conditions = `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} on {.spec.nodeName}:{range .status.conditions[*]} {.type}={.status} since {.lastTransitionTime}{end}{"\n"}{end}`
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
			out, err := d.site.Kubectl(ctx, "get", "pods", "-A", "-o", conditions)
			if err != nil {
				continue
			}
			for line := range strings.Lines(out) {
				if !strings.Contains(line, " Ready=True") {
					fmt.Printf("   %s not Ready yet: %s", time.Now().UTC().Format(time.TimeOnly), line)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (d *demonstration) workload(ctx context.Context) error {
	pods, err := d.site.Deploy(ctx, d.version)
	if err != nil {
		return err
	}
	answered, err := d.site.AskEach(ctx, pods, d.site.ServiceURL())
	if err != nil {
		return err
	}
	for _, p := range pods {
		fmt.Printf("   %s on %s (%s) requested %s\n", p.Name, p.Node, p.IP, d.site.ServiceURL())
		for _, from := range answered[p.Name] {
			fmt.Printf("      answered by %s\n", from)
		}
		if len(answered[p.Name]) != len(pods) {
			return fmt.Errorf("%s got answers from %d of %d pods", p.Name, len(answered[p.Name]), len(pods))
		}
	}
	return nil
}

func (d *demonstration) escapes(ctx context.Context) error {
	counts, err := d.site.Escapes(ctx)
	if err != nil {
		return err
	}
	fmt.Println(counts)
	if counts.Escaped != 0 {
		return fmt.Errorf("%d packets tried to leave", counts.Escaped)
	}
	return nil
}
