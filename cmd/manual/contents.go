package manual

import (
	"fmt"
	"path"
	"strings"
)

// A Book is for one kind of reader.
type Book struct {
	Title  string
	Groups []Group
}

// A Group is a part of a book.
type Group struct {
	Title string
	Pages []Entry
}

// An Entry is a page in the table of contents.
type Entry struct {
	Path  string // in the repository
	Short string // the title in lists, where the page's own is too long
}

// Books is the table of contents, in the order of reading: README, the command docs and the HTML page have this order.
var Books = []Book{
	{"For operators", []Group{
		{"Start", []Entry{
			{"README.md", "Overview"},
			{"docs/multi-host.md", "Several hosts"},
			{"docs/seed.md", "Hosts that boot alone"},
			{"docs/install.md", "One host at a time"},
			{"docs/recipes.md", "Recipes"},
			{"docs/configuration.md", "Configuration"},
			{"docs/hardening.md", "A hardened cluster"},
			{"docs/adopt.md", "Adopt a cluster"},
		}},
		{"Bring software to the site", []Entry{
			{"docs/build.md", "Build"},
			{"docs/site.md", "Your own software"},
			{"docs/site-host.md", "Your software on a host"},
			{"docs/applications.md", "Applications"},
			{"docs/packages.md", "Packages of the distribution"},
			{"docs/gpu.md", "GPUs"},
			{"docs/images.md", "Images"},
			{"docs/offline-sites.md", "Offline sites"},
			{"docs/drives.md", "Transport, check and repair"},
		}},
		{"Several control planes", []Entry{
			{"docs/high-availability.md", "High availability"},
			{"docs/embedded-registry.md", "Embedded registry, thin files"},
			{"docs/load-balancer.md", "A load balancer for Services"},
		}},
		{"Second day", []Entry{
			{"docs/status.md", "Status"},
			{"docs/test.md", "Test"},
			{"docs/audit.md", "Audit"},
			{"docs/reconfigure.md", "Change the configuration"},
			{"docs/certificates.md", "Certificates"},
			{"docs/secrets.md", "Encrypt Secrets"},
			{"docs/upgrade.md", "Upgrade"},
			{"docs/upgrade-plan.md", "Upgrade: plan"},
			{"docs/upgrade-notes.md", "Upgrade: release notes"},
		}},
		{"Recovery", []Entry{
			{"docs/troubleshooting.md", "Troubleshooting"},
			{"docs/backup.md", "Backup and restore"},
		}},
		{"Reference", []Entry{
			{"docs/preflight.md", "Preflight checks"},
			{"docs/lock.md", "Reproducible builds: bundle.lock"},
			{"docs/sbom.md", "SBOM"},
			{"docs/scan.md", "Known vulnerabilities"},
			{"docs/threat-model.md", "Threat model"},
			{"docs/fips.md", "FIPS 140-3"},
			{"docs/glossary.md", "Glossary"},
		}},
	}},
	{"For developers", []Group{
		{"Structure", []Entry{
			{"docs/architecture.md", "Architecture"},
			{"bundle/FORMAT.md", "File format"},
			{"docs/defects.md", "Known defects"},
			{"CHANGELOG.md", "Changelog"},
		}},
		{"Results", []Entry{
			{"docs/benchmarks.md", "Benchmarks"},
			{"docs/versions.md", "Versions"},
			{"docs/hosts.md", "Hosts"},
			{"docs/real-machines.md", "Real machines"},
			{"docs/conformance.md", "Conformance tests"},
			{"docs/images-found.md", "Charts"},
		}},
	}},
}

// Name returns the name of the page: "backup".
func (e Entry) Name() string {
	return strings.ToLower(strings.TrimSuffix(path.Base(e.Path), ".md"))
}

// Contents returns the list of README, which names all other pages.
func Contents() string {
	var out strings.Builder
	for _, book := range Books {
		fmt.Fprintf(&out, "- %s.", book.Title)
		for _, group := range book.Groups {
			var links []string
			for _, e := range group.Pages {
				if e.Path != "README.md" {
					links = append(links, fmt.Sprintf("[%s](%s)", e.Short, e.Path))
				}
			}
			fmt.Fprintf(&out, " **%s**: %s.", group.Title, strings.Join(links, ", "))
		}
		out.WriteString("\n")
	}
	return out.String()
}
