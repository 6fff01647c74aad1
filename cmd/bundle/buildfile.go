package main

import (
	"slices"

	"airlift/bundle/builder"
	"airlift/bundle/fetch"
	"airlift/bundle/sitefile"
)

// useFile takes the values of the bundle.yaml at path into the options. changed reports
// whether a flag is set: such a flag replaces the value of the file, and lists are added. It returns
// the file.
func useFile(path string, changed func(flag string) bool, o *builder.Options, compression *string, arches *[]string) (*sitefile.File, error) {
	f, err := sitefile.Read(path, changed)
	if err != nil {
		return nil, err
	}
	for _, v := range []struct {
		flag, value string
		to          *string
	}{
		{"version", f.Version, &o.Version},
		{"cni", f.CNI, &o.CNI},
		{"compression", f.Compression, compression},
		{"output", f.Output, &o.Output},
		{"base", f.Base, &o.Base},
		{"verify-signatures", f.VerifySignatures, &o.VerifySignatures},
		{"trusted-root", f.TrustedRoot, &o.TrustedRoot},
		{"etcd-version", f.Versions.Etcd, &o.Versions.Etcd},
		{"coredns-version", f.Versions.CoreDNS, &o.Versions.CoreDNS},
		{"pause-version", f.Versions.Pause, &o.Versions.Pause},
		{"crictl-version", f.Versions.Crictl, &o.Versions.Crictl},
	} {
		if v.value != "" && !changed(v.flag) {
			*v.to = v.value
		}
	}
	if !changed("only") {
		o.Only = f.Only
	}
	if !changed("arch") && len(f.Arches) > 0 {
		*arches = f.Arches
	}
	if !changed(keepCompressedFlag) {
		o.KeepCompressed = f.KeepCompressed
	}
	of := func(host string) func(fetch.Mirror) bool { return func(m fetch.Mirror) bool { return m.Host == host } }
	for _, m := range f.Mirrors {
		if !slices.ContainsFunc(o.Mirrors, of(m.Host)) {
			o.Mirrors = append(o.Mirrors, m)
		}
	}
	o.Images = append(f.Images, o.Images...)
	o.AddOns = append(f.AddOns, o.AddOns...)
	o.Pins = append(f.Pins, o.Pins...)
	o.CAs = append(f.CAs, o.CAs...)
	o.Require = append(f.Require, o.Require...)
	o.Without = append(f.Without, o.Without...)
	f.Site.ImagesFrom = o.Site.ImagesFrom
	o.Site = f.Site
	return f, nil
}
