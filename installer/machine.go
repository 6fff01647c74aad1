package installer

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// A machine is the host that a run changes, and the number of changes so far.
type machine struct {
	host *host.Host
	// existing is the host itself. In a dry run, host is a directory that
	// receives the files. Otherwise both are the same.
	existing *host.Host
	console  *Console
	changes  int // changes on the host and in the cluster
}

func newMachine(h *host.Host, c *Console) *machine {
	if h != nil {
		h.Warn = c.Warn
	}
	return &machine{host: h, existing: h, console: c}
}

// changed counts a change if yes is true.
func (m *machine) changed(yes bool) {
	if yes {
		m.changes++
	}
}

// write writes files to the host and counts those that changed.
func (m *machine) write(files ...pki.File) error {
	for _, f := range files {
		var changed bool
		var err error
		if f.Link != "" {
			changed, err = m.host.WriteSymlink(f.Path, f.Link)
		} else {
			changed, err = m.host.WriteFile(f.Path, f.Data, f.Mode)
		}
		if err != nil {
			return err
		}
		if changed {
			m.console.Debug(1, "wrote %s", f.Path)
		}
		m.changed(changed)
	}
	return nil
}

// applied counts the changed objects in the cluster.
func (m *machine) applied(changed []string, err error) error {
	for _, c := range changed {
		m.console.Debug(1, "applied %s", c)
	}
	m.changes += len(changed)
	return err
}

// files returns the host's files. In a dry run, the files that it wrote hide
// those of the host.
func (m *machine) files() fs.FS {
	files := layered{os.DirFS(m.host.Path("/"))}
	if m.existing != m.host {
		files = append(files, os.DirFS(m.existing.Path("/")))
	}
	return files
}

// exists reports whether the host has a file.
func (m *machine) exists(path string) bool { return fileExists(m.host, path) }

func fileExists(h *host.Host, path string) bool {
	_, err := os.Stat(h.Path(path))
	return err == nil
}

// report prints the state of a wait with -v 1.
func (m *machine) report(state string) { m.console.Debug(1, "%s", state) }

// reportKept prints how many files were created and how many were kept.
func (m *machine) reportKept(r pki.Result) {
	if len(r.Kept) > 0 && len(r.Files)+len(r.Kept) > 1 {
		m.console.Note("%d created, %d valid ones kept", len(r.Files), len(r.Kept))
	}
	for _, f := range r.Kept {
		m.console.Debug(1, "kept %s", f)
	}
}

// reportPatched prints which patches were applied to a target.
func (m *machine) reportPatched(target string, files []string) {
	if len(files) > 0 {
		m.console.Note("%s is patched with %s", target, strings.Join(files, ", "))
	}
}

// loadClient returns a client for a kubeconfig on the host. server, if not
// empty, replaces the kubeconfig's.
func loadClient(h *host.Host, kubeconfig, server string, timeout time.Duration) (*cluster.Client, error) {
	c, err := cluster.Load(h.Path(kubeconfig), server)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	c.SetTimeout(timeout)
	return c, nil
}
