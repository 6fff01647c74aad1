package main

import (
	"reflect"
	"slices"

	"airlift/builder"
	"airlift/builder/fetch"
)

// flagOf has the flags that replace a field of bundle.yaml. Other flags add to lists.
var flagOf = map[string]string{
	"kubernetesVersion":         "version",
	"architectures":             "arch",
	"cni":                       "cni",
	"only":                      "only",
	"base":                      "base",
	"componentVersions.etcd":    "etcd-version",
	"componentVersions.coredns": "coredns-version",
	"componentVersions.pause":   "pause-version",
	"componentVersions.crictl":  "crictl-version",
	"verifySignatures":          "verify-signatures",
	"trustedRoot":               "trusted-root",
	"keepCompressedLayers":      keepCompressedFlag,
	"compression":               "compression",
	"output":                    "out",
}

// given reports whether a flag replaces a field. changed reports whether a flag is set.
func given(changed func(flag string) bool) func(field string) bool {
	return func(field string) bool { return changed(flagOf[field]) }
}

// useFile takes the values of a bundle.yaml into the options of the flags.
func useFile(file builder.Options, flags *builder.Options) {
	if len(file.Arches) > 0 {
		flags.Arches = nil // the default, which is not added
	}
	file.Mirrors = slices.DeleteFunc(file.Mirrors, func(m fetch.Mirror) bool {
		return slices.ContainsFunc(flags.Mirrors, func(f fetch.Mirror) bool { return f.Host == m.Host })
	})
	merge(reflect.ValueOf(file), reflect.ValueOf(flags).Elem())
}

// merge takes the values that are written in a file into a group of options; its lists precede the
// options' lists.
func merge(file, into reflect.Value) {
	for n := range into.NumField() {
		switch f, i := file.Field(n), into.Field(n); {
		case f.IsZero():
		case f.Kind() == reflect.Struct:
			merge(f, i)
		case f.Kind() == reflect.Slice:
			i.Set(reflect.AppendSlice(f, i))
		default:
			i.Set(f)
		}
	}
}
