package doctor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"airlift/installer/host/podnetwork"
	"airlift/installer/node"
	"airlift/installer/redact"
	"airlift/installer/status"
	"airlift/internal/childprocess"
)

// shownLines is how many lines of a log a suspicion has.
const shownLines = 5

// nodeFacts are facts that only suspicions need.
type nodeFacts struct {
	kubeletDriver, runtimeDriver string // cgroup drivers
	runtimeMajor                 int    // since containerd 2 the kubelet asks it for the driver
	leftovers                    []string
	memoryFree                   uint64 // bytes; 0 if it is unknown
	oomKills                     string // the last one
}

func (d *Doctor) readNodeFacts(ctx context.Context, s *status.Status) (n nodeFacts) {
	if written, err := node.KubeletConfiguration(d.Host); err == nil {
		n.kubeletDriver = written.CgroupDriver
	}
	if s.Node.Role != node.NoNode {
		if runtime, err := node.OpenRuntime(ctx, d.Host); err == nil {
			if info, err := runtime.Info(ctx); err == nil && info.CRI {
				n.runtimeDriver = map[bool]string{true: "systemd", false: "cgroupfs"}[info.SystemdCgroup]
				major, _, _ := strings.Cut(info.Version, ".")
				n.runtimeMajor, _ = strconv.Atoi(major)
			}
			_ = runtime.Close()
		}
	} else {
		n.leftovers, _ = podnetwork.Leftovers() // without root, it is not known
	}
	n.memoryFree = d.memoryAvailable()
	n.oomKills = d.lastOOMKill(ctx)
	return n
}

func (d *Doctor) memoryAvailable() uint64 {
	data, err := os.ReadFile(d.Host.Path("/proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemAvailable:" {
			kb, _ := strconv.ParseUint(fields[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

var oomKill = regexp.MustCompile(`(?i)(?:out of memory|oom-kill).*`)

// lastOOMKill returns the kernel's last message about killing a process of a unit for memory. Such
// messages about pods with a memory limit are normal.
func (d *Doctor) lastOOMKill(ctx context.Context) string {
	out, err := childprocess.Command(ctx, "journalctl", "--no-pager", "--quiet", "--dmesg", "--output=short-iso", "--lines=2000", d.since()).Output()
	if err != nil {
		return ""
	}
	last := ""
	for line := range bytes.Lines(out) {
		if found := oomKill.Find(line); found != nil && !bytes.Contains(found, []byte("kubepods")) && regexp.MustCompile(`kubelet|containerd|etcd|kube-apiserver`).Match(found) {
			last = strings.TrimSpace(string(line))
		}
	}
	return last
}

// readLogs reads the last lines of the logs of components that are not healthy: the kubelet's
// and containerd's from the journal, the others' from the newest file of their containers. The
// files can be read while containerd hangs.
func (d *Doctor) readLogs(ctx context.Context, s *status.Status) map[string][]string {
	logs := map[string][]string{}
	for _, c := range s.Components {
		switch {
		case c.Healthy:
		case c.Kind == "unit":
			logs[c.Name] = d.unitLog(ctx, c.Name)
		default:
			logs[c.Name] = redact.RedactedLogTail(d.newestLog(c.Name), shownLines)
		}
	}
	return logs
}

// chatter matches lines of a unit's log that are not errors.
var chatter = regexp.MustCompile(`^(?:I[0-9]{4} |Flag --)|level=(?:info|debug|warning)|See https://kubernetes.io/docs`)

// unitLog returns the last lines of a unit's log that look like errors, or else the last lines.
func (d *Doctor) unitLog(ctx context.Context, name string) (lines []string) {
	const examined = 200
	all := d.Host.Systemd().LogTail(ctx, name+".service", "", examined)
	all = strings.Split(string(redact.End([]byte(strings.Join(all, "\n")))), "\n")
	for _, line := range all {
		if !chatter.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		lines = all
	}
	return lines[max(0, len(lines)-shownLines):]
}

// newestLog returns the log of the newest container of a component on this node.
func (d *Doctor) newestLog(component string) (newest string) {
	var at int64
	for _, namespace := range componentNamespaces {
		files, _ := filepath.Glob(d.Host.Path(filepath.Join(logsDir, namespace+"_*", component, "*.log"))) // the names are names of components
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Size() > 0 && info.ModTime().UnixNano() > at {
				newest, at = file, info.ModTime().UnixNano()
			}
		}
	}
	return newest
}
