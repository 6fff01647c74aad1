package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"airlift/bundle"
	"airlift/internal/progress"
)

// A branch is one line of a tree of sizes, with lines of details and smaller branches.
type branch struct {
	name     string
	size     int64 // in bytes
	note     string
	details  []string
	branches []branch
}

// line is one printed line; without a size it is a detail.
type line struct {
	text string
	*branch
}

// treeText prints a tree with the size of each branch and its share of the whole.
func treeText(root branch, details bool) string {
	list := root.lines("", "")
	width := 0
	for _, l := range list {
		if l.branch != nil {
			width = max(width, utf8.RuneCountInString(l.text))
		}
	}
	var b strings.Builder
	for _, l := range list {
		if l.branch == nil {
			if details {
				fmt.Fprintf(&b, "%s\n", l.text)
			}
			continue
		}
		share := float64(0)
		if root.size > 0 {
			share = 100 * float64(l.size) / float64(root.size)
		}
		text := fmt.Sprintf("%-*s  %9s  %3.0f %%  %s", width, l.text, progress.Bytes(l.size), share, l.note)
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(text, " "))
	}
	return b.String()
}

// lines returns the branch and everything below it. first is the prefix of its own line, others the
// prefix of the lines below.
func (b *branch) lines(first, others string) []line {
	list := []line{{first + b.name, b}}
	down := "│  "
	if len(b.branches) == 0 {
		down = "   "
	}
	for _, d := range b.details {
		list = append(list, line{others + down + d, nil})
	}
	for n := range b.branches {
		own, below := "├─ ", "│  "
		if n == len(b.branches)-1 {
			own, below = "└─ ", "   "
		}
		list = append(list, b.branches[n].lines(others+own, others+below)...)
	}
	return list
}

// A content is what a tree is made from: a bundle's manifest.
type content struct{ *bundle.Manifest }

// size is the size of entries in bytes. An entry that the bundle does not have counts nothing.
func (c content) size(entries ...string) (n int64) {
	for _, name := range entries {
		e, _ := c.Entry(name)
		n += e.Size
	}
	return n
}

// below is a branch with the size of all entries whose names begin with one of the prefixes.
func (c content) below(name string, branches []branch, prefixes ...string) branch {
	b := branch{name: name, branches: branches}
	for _, e := range c.Entries {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name, prefix) }) {
			b.size += e.Size
		}
	}
	return b
}

// contents returns the unpacked contents of a bundle with an installer of this size, without the
// branches that have nothing.
func contents(m *bundle.Manifest, installer int64) branch {
	c := content{m}
	root := branch{name: "unpacked", size: m.UnpackedSize() + installer}
	root.branches = slices.DeleteFunc([]branch{
		{name: "installer", size: installer},
		c.below("binaries", c.components(), bundle.BinDir, bundle.CNIDir),
		c.below("images", c.images(), bundle.BlobDir),
		c.below("manifests", c.manifests(), bundle.ManifestDir),
		c.below("files", c.files(), bundle.FileDir),
		c.below("packages", c.packages(), bundle.PackageDir),
		c.below("SBOM", c.sboms(), bundle.SBOMDir),
	}, func(b branch) bool { return len(b.branches) == 0 && b.size == 0 })
	return root
}

func (c content) components() (list []branch) {
	for _, i := range c.Components {
		list = append(list, branch{name: i.Name + " " + i.Version, size: c.size(i.Entries...), details: signed([]string{i.URL, i.Checksum}, i.SignedBy)})
	}
	return list
}

// signed adds a line about the signature that was verified, if there is one.
func signed(details []string, by string) []string {
	if by != "" {
		details = append(details, "signed by "+by)
	}
	return details
}

// images counts a layer that several images have in each of them.
func (c content) images() (list []branch) {
	users := map[string]int{}
	for _, i := range c.Images {
		for _, l := range i.Layers {
			users[l.DiffID]++
		}
	}
	for _, i := range c.Images {
		b := branch{name: i.Reference, details: signed([]string{i.Target.Digest}, i.SignedBy)}
		shared, inBase := int64(0), int64(0)
		for _, l := range i.Layers {
			if _, ok := c.Entry(bundle.BlobName(l.DiffID)); !ok {
				inBase += l.Size
				continue
			}
			b.size += l.Size
			if users[l.DiffID] > 1 {
				shared += l.Size
			}
		}
		b.note = fmt.Sprintf("%d layers", len(i.Layers))
		if len(i.Layers) == 1 {
			b.note = "1 layer"
		}
		if shared > 0 {
			b.note += fmt.Sprintf(", %s in other images too", progress.Bytes(shared))
		}
		if inBase > 0 {
			b.note += fmt.Sprintf(", %s more in the base", progress.Bytes(inBase))
		}
		list = append(list, b)
	}
	return list
}

func (c content) manifests() (list []branch) {
	for _, s := range c.Manifests {
		b := branch{name: s.Name, size: c.size(s.Entry()), note: "namespace " + cmp.Or(s.Namespace, "default")}
		if s.Chart != "" {
			b.note += ", chart " + s.Chart
		}
		if s.AddOn != "" {
			b.note = "add-on " + s.AddOn
		}
		list = append(list, b)
	}
	return list
}

func (c content) files() (list []branch) {
	for _, f := range c.Files {
		b := branch{name: f.Path, size: c.size(f.Entry), note: "mode " + f.Mode}
		if f.Nodes != "" {
			b.note += ", only on each " + f.Nodes
		}
		for _, u := range c.Units {
			if bundle.UnitDir+u.Name == f.Path {
				b.note += ", a unit that is started"
				if u.Nodes != f.Nodes {
					b.note += " only on each " + u.Nodes
				}
			}
		}
		list = append(list, b)
	}
	return list
}

func (c content) packages() (list []branch) {
	for _, p := range c.Packages {
		b := branch{name: p.Name + " " + p.Version, size: c.size(p.Entry), note: p.Arch + " for " + p.Release}
		if p.Nodes != "" {
			b.note += ", only on each " + p.Nodes
		}
		b.details = []string{"sha256:" + strings.TrimSuffix(strings.TrimPrefix(p.Entry, bundle.PackageDir), "."+p.Format()), "no signature in the package"}
		if p.Signature != "" {
			b.details[1] = "signature of " + p.Signature + ", not verified"
		}
		list = append(list, b)
	}
	return list
}

func (c content) sboms() (list []branch) {
	for _, s := range c.SBOMs {
		list = append(list, branch{name: s.Format, size: c.size(s.Entry), note: s.Entry})
	}
	return list
}
