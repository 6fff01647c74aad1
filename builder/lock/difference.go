package lock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Difference is a field that two locks have in different forms. A value is empty if the
// field's component, image or file is not in that lock.
type Difference struct {
	Field    string // "component kubelet version"
	Old, New string
}

// String is the line of bundle update.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s → %s", d.Field, cmp.Or(d.Old, "none"), cmp.Or(d.New, "none"))
}

// An entry is a part of a lock, with its fields in the order in which they are compared.
type entry struct {
	name   string // "component kubelet", unique
	sum    string // "sha256:<hex>", or empty if the entry pins nothing
	fields []field
}

type field struct{ name, value string }

// entries describes the lock, in the order of the file.
func (l *Lock) entries() (list []entry) {
	add := func(name, sum string, fields ...field) {
		list = append(list, entry{strings.Join(strings.Fields(name), " "), sum, fields})
	}
	add("", "", field{"platform", l.Platform}, field{"kubernetesVersion", l.KubernetesVersion}, field{"cni", l.CNI}, field{"only", strings.Join(l.Only, ", ")})
	if l.Base != "" {
		add("base", "sha256:"+l.Base, field{"", l.Base})
	}
	for _, c := range l.Components {
		add("component "+c.Name, "sha256:"+c.SHA256, field{"version", c.Version}, field{"url", c.URL}, field{"sha256", c.SHA256}, field{"signedBy", c.SignedBy})
	}
	for _, a := range l.LeftOut {
		add("left out "+a.Name, "", field{"", a.Version})
	}
	for _, i := range l.Images {
		add("image "+i.Reference, i.Digest, field{"", i.Digest}, field{"signedBy", i.SignedBy})
	}
	for _, c := range l.Charts {
		add("chart "+c.Source+" "+c.Name+" "+c.Wanted, c.Digest, field{"version", c.Version}, field{"url", c.URL}, field{"digest", c.Digest})
	}
	for _, m := range l.Manifests {
		add("manifest "+m.Name, "sha256:"+m.SHA256, field{"sha256", m.SHA256})
	}
	for _, s := range l.Sources {
		add("source "+s.Path, "sha256:"+s.SHA256, field{"sha256", s.SHA256})
	}
	return list
}

// Differences lists what is different, in the order of the fields in the file. What only the second
// lock has is at the end.
func Differences(before, after *Lock) (list []Difference) {
	b, a := before.normal(), after.normal()
	x, y := b.entries(), a.entries()
	find := func(in []entry, name string) entry {
		if n := slices.IndexFunc(in, func(e entry) bool { return e.name == name }); n >= 0 {
			return in[n]
		}
		return entry{name: name}
	}
	for _, e := range x {
		list = append(list, compare(e, find(y, e.name))...)
	}
	for _, e := range y {
		if old := find(x, e.name); old.fields == nil {
			list = append(list, compare(old, e)...)
		}
	}
	return list
}

// compare compares the fields of one entry, which one of the locks may not have. All other fields of
// something that is new, or has another version, follow from its first field.
func compare(x, y entry) (list []Difference) {
	for n := range max(len(x.fields), len(y.fields)) {
		var d Difference
		if n < len(x.fields) {
			d.Field, d.Old = x.fields[n].name, x.fields[n].value
		}
		if n < len(y.fields) {
			d.Field, d.New = y.fields[n].name, y.fields[n].value
		}
		if d.Old == d.New {
			continue
		}
		first := d.Field == "version" || len(x.fields) != len(y.fields)
		d.Field = strings.TrimSpace(x.name + " " + d.Field)
		if list = append(list, d); first {
			break
		}
	}
	return list
}
