package doctor

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/images/store"
	"airlift/installer/node"
	"airlift/installer/redact"
	"airlift/internal/fault"
)

// logsDir has the logs of all containers of this node, also of earlier ones that the kubelet
// has kept. It can be read while containerd hangs.
const logsDir = "/var/log/pods"

// componentNamespaces are the namespaces whose logs are gathered. Logs of other namespaces belong
// to the site's applications, and are gathered only if the user names them.
var componentNamespaces = []string{"kube-system", "kube-flannel", "load-balancer"}

// siteLogs is the directory in the archive for the logs of the site's applications. Its name is a warning for those who
// list the archive.
const siteLogs = "logs-not-redacted"

// SiteLogsWarning tells what is hidden in them.
const SiteLogsWarning = "They are not redacted: only PEM blocks, private keys, tokens and users in URLs are hidden"

func isComponents(namespace string) bool { return slices.Contains(componentNamespaces, namespace) }

// CheckNamespaces refuses what is not the name of a namespace.
func CheckNamespaces(names []string) error {
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fault.New(fault.Usage, "--logs-of %q is not the name of a namespace", name).Hint("for example: --logs-of default --logs-of monitoring")
		}
	}
	return nil
}

// containers describes the containers and images of this node.
func (d *Doctor) containers(examined) []source {
	return []source{
		{"containers/list.txt", redact.Log, d.listContainers},
		{"containers/images.txt", redact.Log, d.listImages},
		commands("containers/ctr.txt", "ctr version", "ctr plugins ls", "ctr -n k8s.io tasks ls", "crictl info"),
	}
}

func (d *Doctor) listContainers(ctx context.Context) ([]byte, error) {
	runtime, err := node.OpenRuntime(ctx, d.Host)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	list, err := runtime.Containers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b store.Container) int { return b.Created.Compare(a.Created) })
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CREATED\tNAMESPACE\tPOD\tCONTAINER\tATTEMPT\tSTATE\tEXIT\tREASON\tENDED\tID")
	for _, c := range list {
		state, code, reason, ended := "running", "-", "-", "-"
		if c.Exited {
			state = "exited"
			if exit, err := runtime.Exit(ctx, c.ID); err == nil {
				code, reason, ended = fmt.Sprint(exit.Code), exit.Reason, exit.Finished.UTC().Format(time.RFC3339)
				if isComponents(c.Namespace) || slices.Contains(d.Options.LogsOf, c.Namespace) { // other messages are the site's own
					reason += " " + redact.Line(exit.Message)
				}
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%.13s\n", c.Created.UTC().Format(time.RFC3339), c.Namespace, c.Pod, c.Name, c.Attempt, state, code,
			strings.Join(strings.Fields(reason), " "), ended, c.ID)
	}
	_ = table.Flush() // a buffer takes everything
	info, err := runtime.Info(ctx)
	fmt.Fprintf(&out, "\n%+v\n", info)
	return out.Bytes(), err
}

func (d *Doctor) listImages(ctx context.Context) ([]byte, error) {
	runtime, err := node.OpenRuntime(ctx, d.Host)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	list, err := runtime.Images(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tID\tBYTES\tPINNED\tCONTAINERS\tIMPORTED")
	for _, i := range list {
		fmt.Fprintf(table, "%s\t%.19s\t%d\t%t\t%d\t%s\n", i.Name(), i.ID, i.Size, i.Pinned, i.Containers, i.Kind)
	}
	_ = table.Flush() // a buffer takes everything
	return out.Bytes(), nil
}

// containerLogs are the logs of the components' containers, including logs of earlier attempts.
func (d *Doctor) containerLogs() (list []source) {
	for _, namespace := range append(slices.Clone(componentNamespaces), d.Options.LogsOf...) {
		directory := "logs"
		if !isComponents(namespace) {
			directory = siteLogs
		}
		for _, file := range d.logFiles(namespace) {
			path := strings.TrimPrefix(file, strings.TrimSuffix(d.Host.Path("/"), "/"))
			list = append(list, source{directory + strings.TrimPrefix(path, logsDir), redacted, func(context.Context) ([]byte, error) {
				text, cut, err := d.readEnd(path)
				form := redact.Log
				if cut || redact.Rotated(file) {
					form = redact.End
				}
				return after(form(text), d.began.Add(-d.Options.Since)), err // redacted first: a record may begin before
			}})
		}
	}
	return list
}

// logFiles returns the logs of the containers of a namespace.
func (d *Doctor) logFiles(namespace string) []string {
	files, _ := filepath.Glob(d.Host.Path(filepath.Join(logsDir, namespace+"_*", "*", "*.log"))) // the pattern is valid
	slices.Sort(files)
	return files
}

// after returns the lines of a container's log since a time. Each line begins with its time.
func after(log []byte, since time.Time) []byte {
	for len(log) > 0 {
		line, rest, _ := bytes.Cut(log, []byte("\n"))
		stamp, _, _ := bytes.Cut(line, []byte(" "))
		if at, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && !at.Before(since) {
			return log
		}
		log = rest
	}
	return nil
}
