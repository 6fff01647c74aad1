// Demo makes a cluster of three isolated hosts from one file with one command, and checks that no packet
// tried to leave their network. It removes everything it created, also after Ctrl-C.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
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
	record := flag.String("record", "", "write what was typed and printed to the block of this page that follows "+recorded)
	keep := flag.Bool("keep", false, "leave the hosts running (labctl down --name demo removes them)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *path, *record, *keep)
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
	typed   bytes.Buffer // the commands of the recording, and what they printed
}

// recorded is the line before the block of a page that holds the recording.
const recorded = "<!-- not run: make demo RECORD=PAGE writes this block -->"

func demo(ctx context.Context, path, record string, keep bool) (err error) {
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
		{"host1: one command makes the cluster", d.apply},
		{"host1: nodes and pods", d.show},
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
	if record != "" {
		return d.write(record)
	}
	return nil
}

// run runs a command on the first host, as an operator types it there, and records it.
func (d *demonstration) run(ctx context.Context, command string) error {
	out := io.MultiWriter(os.Stdout, &d.typed)
	fmt.Fprintf(out, "$ %s\n", command)
	err := d.site.Hosts[0].Exec(ctx, nil, out, out, "sh", "-c", "export KUBECONFIG=/etc/kubernetes/admin.conf; "+command)
	fmt.Fprintln(out)
	return err
}

// write puts the recording into the page.
func (d *demonstration) write(name string) error {
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(recorded+"\n```text\n"))
	_, after, ends := bytes.Cut(append([]byte("\n"), rest...), []byte("\n```\n")) // the block may be empty
	if !found || !ends {
		return fmt.Errorf("recording the demo: %s has no block ```text after a line %s", name, recorded)
	}
	return os.WriteFile(name, slices.Concat(before, []byte(recorded+"\n```text\n"), bytes.TrimSpace(d.typed.Bytes()), []byte("\n```\n"), after), 0o644)
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
	if err := first.Exec(ctx, strings.NewReader(text), io.Discard, os.Stderr, "sh", "-c", "cat >cluster.yaml"); err != nil {
		return err
	}
	if _, err = first.Output(ctx, "sh", "-c", keys+" >.ssh/known_hosts"); err != nil {
		return err
	}
	return d.run(ctx, "cat cluster.yaml")
}

func (d *demonstration) apply(ctx context.Context) error {
	if err := d.run(ctx, "./install cluster apply --yes"); err != nil {
		return err
	}
	return d.run(ctx, "./install cluster apply") // nothing is left to do
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
	if err := d.run(ctx, "kubectl get nodes"); err != nil {
		return err
	}
	return d.run(ctx, "kubectl get pods -A")
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
