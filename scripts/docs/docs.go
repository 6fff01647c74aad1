// Package docs reads the pages of the documentation, so that tests can run the
// commands in them: cmd/bundle those of a connected machine, e2e those of hosts.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Pages are the pages whose commands are run, in the order in which e2e takes them.
var Pages = []string{
	"README.md", "docs/certificates.md", "docs/preflight.md", "docs/troubleshooting.md", "docs/status.md", "docs/offline-sites.md", "docs/images.md", "docs/build.md", "docs/drives.md", "docs/sbom.md", "docs/site.md", "docs/lock.md",
	"docs/install.md", "docs/upgrade.md", "docs/upgrade-plan.md", "docs/upgrade-notes.md", "docs/configuration.md", "docs/site-host.md", "docs/high-availability.md", "docs/backup.md",
	"docs/benchmarks.md", "docs/versions.md", "docs/hosts.md", "docs/real-machines.md", "docs/conformance.md",
	"docs/images-found.md",
	"docs/architecture.md", "CONTRIBUTING.md",
}

// Machine is where blocks of a connected machine run.
const Machine = "machine"

// A Page is one document.
type Page struct {
	Path   string // from the repository's root
	Bare   bool   // its hosts have no cluster at first
	Blocks []Block
	Spans  []string // code spans outside of blocks
}

// A Block is a fenced block with a comment before it that defines its use.
type Block struct {
	Line  int
	Lang  string
	Text  string
	On    []string // the machine, or the hosts that it runs on
	File  string   // write the text to this file, and run nothing
	NotBy string   // the reason why it is not run
}

var (
	hostsComment = regexp.MustCompile(`^<!-- hosts: (bare|cluster) -->$`)
	runComment   = regexp.MustCompile(`^<!-- run: ((?:machine|host[0-9])(?: host[0-9])*) -->$`)
	fileComment  = regexp.MustCompile(`^<!-- file: (machine|host[0-9]) (\S+) -->$`)
	notComment   = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	span         = regexp.MustCompile("`([^`]+)`")
)

// Read reads all pages below the repository's root.
func Read(root string) ([]Page, error) {
	var pages []Page
	for _, path := range Pages {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		p, err := parse(path, string(text))
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}

func parse(path, text string) (Page, error) {
	p := Page{Path: path}
	var prose strings.Builder
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if m := hostsComment.FindStringSubmatch(line); m != nil {
			p.Bare = m[1] == "bare"
		}
		if !strings.HasPrefix(line, "```") {
			if strings.HasPrefix(line, "    ") && command.MatchString(line) {
				return p, fmt.Errorf("%s:%d: a command outside of a fenced block: %s", path, i+1, strings.TrimSpace(line))
			}
			prose.WriteString(line + "\n")
			continue
		}
		b := Block{Line: i + 1, Lang: line[3:]}
		end := slices.Index(lines[i+1:], "```")
		if end < 0 {
			return p, fmt.Errorf("%s:%d: the block has no end", path, i+1)
		}
		b.Text = strings.Join(lines[i+1:i+1+end], "\n") + "\n"
		if i > 0 {
			b.describe(lines[i-1])
		}
		if err := b.check(); err != nil {
			return p, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		p.Blocks = append(p.Blocks, b)
		i += 1 + end
	}
	for _, m := range span.FindAllStringSubmatch(prose.String(), -1) {
		p.Spans = append(p.Spans, strings.Join(strings.Fields(m[1]), " "))
	}
	return p, nil
}

// Script returns the shell script that runs the block, or writes its file.
func (b *Block) Script() string {
	if b.File == "" {
		return b.Text
	}
	return fmt.Sprintf("mkdir -p %s\ncat > %s <<'END OF FILE'\n%sEND OF FILE\n", filepath.Dir(b.File), b.File, b.Text)
}

func (b *Block) describe(comment string) {
	if m := runComment.FindStringSubmatch(comment); m != nil {
		b.On = strings.Fields(m[1])
	} else if m := fileComment.FindStringSubmatch(comment); m != nil {
		b.On, b.File = []string{m[1]}, m[2]
	} else if m := notComment.FindStringSubmatch(comment); m != nil {
		b.NotBy = m[1]
	}
}

// check refuses commands that no test would see.
func (b *Block) check() error {
	switch {
	case b.Lang == "sh" && b.File == "" && len(b.On) == 0 && b.NotBy == "":
		return fmt.Errorf("a comment before the block must tell where it runs: <!-- run: host1 -->")
	case b.Lang == "yaml" && b.File == "":
		return fmt.Errorf("a comment before the block must name its file: <!-- file: host1 NAME -->")
	case !slices.Contains([]string{"sh", "yaml", "text"}, b.Lang):
		return fmt.Errorf("the block is in %q, which is none of sh, yaml and text", b.Lang)
	}
	return nil
}

// command matches a line that calls bundle or install, up to the end of the call.
var command = regexp.MustCompile(`^\s*(?:\./|bin/|)(bundle|install)((?: [^|;>&#]+)?)`)

// A Call is one call of bundle or install that a page names.
type Call struct {
	Page string
	Name string // "bundle" or "install"
	Args []string
}

// Calls lists the calls of bundle and install in all blocks of shell commands and
// code spans, and the flags that spans name without a command.
func Calls(pages []Page) (calls []Call, flags map[string][]string) {
	flags = map[string][]string{} // flag => pages
	for _, p := range pages {
		texts := slices.Clone(p.Spans)
		for _, b := range p.Blocks {
			if b.Lang == "sh" {
				texts = append(texts, strings.Split(b.Text, "\n")...)
			}
		}
		for _, t := range texts {
			if m := command.FindStringSubmatch(t); m != nil {
				calls = append(calls, Call{p.Path, m[1], strings.Fields(m[2])})
			}
		}
		for _, s := range p.Spans {
			if name, ok := strings.CutPrefix(strings.Fields(s)[0], "--"); ok {
				name, _, _ = strings.Cut(name, "=")
				flags[name] = append(flags[name], p.Path)
			}
		}
	}
	return calls, flags
}

// BundleFlags are flags of bundle that pages name without the command, and
// OtherFlags those of Kubernetes' own binaries and of Helm. All others are install's.
var (
	BundleFlags = []string{"addon", "arch", "check", "checksum", "checksums", "compression", "containerd-namespace", "coredns-version", "crictl-version", "etcd-version", "file", "from", "image", "images-from", "keep-compressed-layers", "key", "lock", "locked", "mirror", "no-password", "only", "password-file", "pause-version", "progress", "refresh", "registry-auth", "registry-ca", "require", "sbom", "sign-key", "size", "trusted-root", "verify-signatures", "version", "without"}
	OtherFlags  = []string{"audit-policy-file", "bootstrap-kubeconfig", "encryption-provider-config", "hostname-override", "kubelet-insecure-tls", "max-wals", "pod-manifest-path", "quota-backend-bytes", "root-dir", "etcd-servers", "set", "shutdown-delay-duration", "vmodule"}
)
