package lock

import (
	"cmp"
	"fmt"
	"maps"
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

// Differences lists what is different, in the order of the fields in the file.
func Differences(before, after *Lock) (list []Difference) {
	add := func(field, x, y string) {
		if x != y {
			list = append(list, Difference{field, x, y})
		}
	}
	add("platform", before.Platform, after.Platform)
	add("kubernetesVersion", before.KubernetesVersion, after.KubernetesVersion)
	add("cni", before.CNI, after.CNI)
	add("only", strings.Join(before.Only, ", "), strings.Join(after.Only, ", "))
	add("base", before.Base, after.Base)
	compare(before.Components, after.Components, Component.key, func(name string, x, y Component) {
		name = "component " + name
		if x.Version != y.Version {
			add(name+" version", x.Version, y.Version) // the URL and the sha256 follow from it
			return
		}
		add(name+" url", x.URL, y.URL)
		add(name+" sha256", x.SHA256, y.SHA256)
		add(name+" signedBy", x.SignedBy, y.SignedBy)
	})
	compare(before.LeftOut, after.LeftOut, Absent.key, func(name string, x, y Absent) {
		add("left out "+name, x.Version, y.Version)
	})
	compare(before.Images, after.Images, Image.key, func(name string, x, y Image) {
		add("image "+name, x.Digest, y.Digest)
		if x.Digest != "" && y.Digest != "" {
			add("image "+name+" signedBy", x.SignedBy, y.SignedBy)
		}
	})
	compare(before.Charts, after.Charts, Chart.key, func(name string, x, y Chart) {
		name = "chart " + name
		if x.Version != y.Version {
			add(name+" version", x.Version, y.Version)
			return
		}
		add(name+" url", x.URL, y.URL)
		add(name+" digest", x.Digest, y.Digest)
	})
	compare(before.Manifests, after.Manifests, Manifest.key, func(name string, x, y Manifest) {
		add("manifest "+name+" sha256", x.SHA256, y.SHA256)
	})
	compare(before.Sources, after.Sources, Source.key, func(name string, x, y Source) {
		add("source "+name+" sha256", x.SHA256, y.SHA256)
	})
	return list
}

// compare calls differ for each key that not both lists have with the same value.
func compare[T comparable](before, after []T, key func(T) string, differ func(name string, before, after T)) {
	byKey := func(list []T) map[string]T {
		m := map[string]T{}
		for _, t := range list {
			m[key(t)] = t
		}
		return m
	}
	x, y := byKey(before), byKey(after)
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if x[k] != y[k] {
			differ(strings.Join(strings.FieldsFunc(k, func(r rune) bool { return r == 0 }), " "), x[k], y[k])
		}
	}
}
