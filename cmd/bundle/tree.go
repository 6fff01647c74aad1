package main

import (
	"cmp"
	"fmt"
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
func treeText(root branch) string {
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
			fmt.Fprintf(&b, "%s\n", l.text)
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

// add adds a branch, if it has something.
func (b *branch) add(c branch) {
	if len(c.branches) > 0 || c.size > 0 {
		b.branches = append(b.branches, c)
	}
}

// contents returns the unpacked contents of a bundle.
func contents(f *bundle.File, m *bundle.Manifest) branch {
	root := branch{name: "unpacked", size: m.UnpackedSize() + f.Installer().Size}
	root.add(branch{name: "installer", size: f.Installer().Size})
	root.add(binaries(m))
	root.add(imageTree(m))
	root.add(manifestTree(m))
	root.add(fileTree(m))
	root.add(sbomTree(m))
	return root
}

func binaries(m *bundle.Manifest) branch {
	all := branch{name: "binaries"}
	for _, c := range m.Components {
		b := branch{name: c.Name + " " + c.Version, details: signed([]string{c.URL, c.Checksum}, c.SignedBy)}
		for _, name := range c.Entries {
			e, _ := m.Entry(name)
			b.size += e.Size
		}
		all.size += b.size
		all.add(b)
	}
	return all
}

// signed adds a line about the signature that was verified, if there is one.
func signed(details []string, by string) []string {
	if by != "" {
		details = append(details, "signed by "+by)
	}
	return details
}

// imageTree counts a layer that several images have once in the sum, and in each image.
func imageTree(m *bundle.Manifest) branch {
	all := branch{name: "images"}
	for _, e := range m.Entries {
		if strings.HasPrefix(e.Name, bundle.BlobDir) {
			all.size += e.Size
		}
	}
	users := map[string]int{}
	for _, i := range m.Images {
		for _, l := range i.Layers {
			users[l.DiffID]++
		}
	}
	for _, i := range m.Images {
		b := branch{name: i.Reference, details: signed([]string{i.Target.Digest}, i.SignedBy)}
		shared, inBase := int64(0), int64(0)
		for _, l := range i.Layers {
			if _, ok := m.Entry(bundle.BlobName(l.DiffID)); !ok {
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
		all.branches = append(all.branches, b)
	}
	return all
}

func manifestTree(m *bundle.Manifest) branch {
	all := branch{name: "manifests"}
	for _, s := range m.Manifests {
		e, _ := m.Entry(s.Entry())
		b := branch{name: s.Name, size: e.Size, note: "namespace " + cmp.Or(s.Namespace, "default")}
		if s.Chart != "" {
			b.note += ", chart " + s.Chart
		}
		if s.AddOn != "" {
			b.note = "add-on " + s.AddOn
		}
		all.size += b.size
		all.branches = append(all.branches, b)
	}
	return all
}

func fileTree(m *bundle.Manifest) branch {
	all := branch{name: "files"}
	units := map[string]bool{}
	for _, u := range m.Units {
		units[bundle.UnitDir+u.Name] = true
	}
	for _, e := range m.Entries {
		if strings.HasPrefix(e.Name, bundle.FileDir) {
			all.size += e.Size
		}
	}
	for _, f := range m.Files {
		e, _ := m.Entry(f.Entry)
		b := branch{name: f.Path, size: e.Size, note: "mode " + f.Mode}
		if f.Nodes != "" {
			b.note += ", only on each " + f.Nodes
		}
		if units[f.Path] {
			b.note += ", a unit that is started"
		}
		all.branches = append(all.branches, b)
	}
	return all
}

func sbomTree(m *bundle.Manifest) branch {
	all := branch{name: "SBOM"}
	for _, s := range m.SBOMs {
		e, _ := m.Entry(s.Entry)
		all.size += e.Size
		all.branches = append(all.branches, branch{name: s.Format, size: e.Size, note: s.Entry})
	}
	return all
}
