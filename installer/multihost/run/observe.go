package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// basicsScript prints what a host must have before anything is copied to it. It changes nothing.
const basicsScript = `echo "machine $(uname -m)"
if [ -x ` + installed + ` ]; then echo has-installer; sha256sum <` + installed + ` 2>/dev/null | sed "s/^/sum /; s/ *-$//"; fi
dir=` + stateDir + `; if [ ! -d $dir ]; then dir=/var/lib; fi
df -Pk $dir | tail -n 1 | sed 's/^/df /'
sed 's/^/mount /' /proc/self/mounts`

// basics are the answers of basicsScript.
type basics struct {
	machine      string // x86_64
	hasInstaller bool
	sum          string // the sha256 of the installed file; "" if it is not known
	free         int64  // bytes in the file system of stateDir
	mountPoint   string
	noExec       bool
}

// prepare checks the host and brings the thin file to it.
func (h *Host) prepare(ctx context.Context, present bool) error {
	out, err := h.Output(ctx, "/bin/sh", "-c", basicsScript)
	if err != nil {
		return err
	}
	b, err := parseBasics(string(out))
	if err != nil {
		return err
	}
	if err := b.check(h.site.File); err != nil {
		return err
	}
	h.bare, h.same = !b.hasInstaller, b.sum == h.site.File.thin.SHA256
	if present && b.hasInstaller {
		h.installer = installed
		return nil
	}
	return h.bring(ctx)
}

func parseBasics(out string) (b basics, err error) {
	for _, line := range strings.Split(out, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		fields := strings.Fields(rest)
		switch {
		case word == "machine":
			b.machine = rest
		case word == "has-installer":
			b.hasInstaller = true
		case word == "sum":
			b.sum = rest
		case word == "df" && len(fields) >= 6:
			kib, err := strconv.ParseInt(fields[3], 10, 64)
			if err != nil {
				return b, fmt.Errorf("df printed %q", rest)
			}
			b.free, b.mountPoint = kib<<10, fields[5]
		case word == "mount" && len(fields) >= 4 && fields[1] == b.mountPoint: // the last mount hides others
			b.noExec = slices.Contains(strings.Split(fields[3], ","), "noexec")
		}
	}
	if b.machine == "" || b.mountPoint == "" {
		return b, fault.New(fault.Failure, "the shell of the host did not print its machine and the space in /var/lib").
			Hint("run on the host: uname -m; df -Pk /var/lib")
	}
	return b, nil
}

// architectures are Go's names of the machines that uname prints.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// spare is the free space in bytes that facts and locks of a host may need.
const spare = 16 << 20

func (b basics) check(f *File) error {
	m, err := f.Bundle.Manifest()
	if err != nil {
		return err
	}
	need := f.thin.Size + spare
	switch here := "linux/" + architectures[b.machine]; {
	case here != m.Platform:
		return fault.New(fault.Preflight, "this file is for %s, and the host is a %s", m.Platform, b.machine).
			Hint("build a file for the host: bundle build --arch ARCH")
	case b.noExec:
		return fault.New(fault.Preflight, "%s, the file system of %s, is mounted with noexec", b.mountPoint, stateDir).
			Hint("run on the host: mount -o remount,exec " + b.mountPoint)
	case !b.hasInstaller && b.free < need:
		return fault.New(fault.Preflight, "%s has %s free, and %s are needed there", b.mountPoint, progress.Bytes(b.free), progress.Bytes(need)).
			Hint("free some space on the host: df " + b.mountPoint)
	}
	return nil
}

// bring brings the thin file to the host, unless it is in place.
func (h *Host) bring(ctx context.Context) error {
	// A run that was killed may have left the whole file, which is not needed once the embedded registry has it.
	kept := bundlesDir + "/" + h.site.File.Bundle.ID()
	file := h.site.File.thin
	h.installer = file.Path
	if err := h.shell(ctx, "umask 077 && mkdir -p "+driverDir+" || exit; if test -e "+kept+"; then rm -f "+whole+"; fi"); err != nil {
		return err
	}
	if h.same {
		h.installer = installed
		return nil
	}
	return h.send(ctx, file, "installer")
}

// adopt makes the staged file the installed one, and removes staged files of other drivers that were killed.
func (h *Host) adopt(ctx context.Context) error {
	if h.installer == installed {
		return nil
	}
	if _, err := h.Output(ctx, "mv", "-f", h.installer, installed); err != nil {
		return err
	}
	h.installer = installed
	return h.shell(ctx, "rm -f "+driverDir+"/next-* "+driverDir+"/.next-*")
}

// observe reads the facts of the host, and keeps them.
func (h *Host) observe(ctx context.Context) error {
	f, err := h.readFacts(ctx)
	if err == nil {
		h.Facts, h.at = f, time.Now()
	}
	return err
}

func (h *Host) readFacts(ctx context.Context) (*facts.Facts, error) {
	out, err := h.Output(ctx, h.installer, "cluster", "host", "facts")
	if err != nil {
		return nil, err
	}
	f := &facts.Facts{}
	if err := json.Unmarshal(out, f); err != nil {
		return nil, fault.New(fault.Failure, "reading the facts of the host: %w", err).Hint("see what it prints: ./install cluster host facts")
	}
	return f, nil
}

// Discard removes what this driver brought, after a command that changed nothing: all of it on hosts that are no nodes, and
// the staged file on nodes. What another driver uses on a bare host stays: it may have begun meanwhile. An error is no more
// than what stays there.
func (s *Site) Discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	isBare := func(h *Host) bool {
		return h.connection() != nil && h.bare && (h.Facts == nil || h.Facts.Node == nil && h.Facts.Unfinished == "")
	}
	bare := s.filter(isBare)
	_ = quietly(ctx, s.filter(func(h *Host) bool { return h.connection() != nil && !isBare(h) && h.installer == s.File.staged() }), func(ctx context.Context, h *Host) error {
		return h.dropStaged(ctx)
	})
	if len(bare) == 0 {
		return
	}
	err := s.Each(ctx, "remove the installer", bare, func(ctx context.Context, h *Host) error {
		if h.Facts != nil {
			if err := h.lock(ctx, false); err != nil {
				return err
			}
			defer h.unlock()
		}
		return h.clear(ctx)
	})
	if err != nil {
		s.Display.Printf("warning: the installer stays in %s: %v\n", stateDir, err)
	}
}
