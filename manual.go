// Package airlift has the manual, which both commands carry: a host at an isolated site has no other copy.
package airlift

import "embed"

// Manual has the pages by their paths in the repository: README.md, CHANGELOG.md, docs/NAME.md and
// bundle/FORMAT.md.
//
//go:embed README.md CHANGELOG.md docs/*.md bundle/FORMAT.md
var Manual embed.FS
