package sitefile

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/builder/local"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// Read returns the options in the file at path, checked. What is not written is empty. Paths are relative
// to the working directory, or absolute. given reports whether a field, "cni" or
// "componentVersions.etcd", has a value that replaces the file's: it is left out and not checked. The
// error, a problems.Wrong, lists all problems, each with its line; then the options are without the manifests, files and packages that
// have some.
func Read(path string, given func(field string) bool) (o builder.Options, err error) {
	r := &reader{given: given, written: map[string]string{}}
	if err := r.read(path); err != nil {
		return o, err
	}
	for _, path := range []*string{&r.Output, &r.TrustedRoot, &r.Base} {
		if *path != "" {
			*path = r.resolve(*path)
		}
	}
	r.checkOnly()
	r.checkVersion()
	r.checkChoices()
	r.checkAddOns()
	o = builder.Options{Target: r.Target, Selection: r.Selection, Network: r.Network, Trust: r.Trust, Destination: r.Destination}
	o.Images, o.Mirrors, o.CAs, o.Pins = r.images(), r.mirrors(), r.registryCAs(), r.pins()
	o.Level, _ = bundle.ParseLevel(r.Compression) // checked
	r.readManifests(&o.Site)
	r.readFiles(&o.Site)
	r.readPackages(&o.Site)
	o.Site.Written = r.written
	r.dropWrong(&o)
	return o, r.Err()
}

// ofFile replaces what the catalog's errors name by the fields of the file.
var ofFile = strings.NewReplacer("--etcd-version", "componentVersions.etcd", "--coredns-version", "componentVersions.coredns",
	"--pause-version", "componentVersions.pause", "--crictl-version", "componentVersions.crictl", "--version", "kubernetesVersion")

// checkVersion checks the Kubernetes version with the versions of the components, unless
// some of them are given: then the builder checks the combination.
func (r *reader) checkVersion() {
	if r.Version == "" && r.Versions == (release.Versions{}) || slices.ContainsFunc([]string{"kubernetesVersion", "componentVersions.etcd", "componentVersions.coredns", "componentVersions.pause", "componentVersions.crictl"}, r.given) {
		return
	}
	version := cmp.Or(r.Version, release.Newest())
	full, _, err := release.Channel(version, r.Versions)
	if r.additional() {
		_, _, err = release.AnyChannel(version)
	} else if err == nil && full != "" {
		_, err = release.For(full, release.Arches()[0], release.NoCNI, r.Versions)
	}
	path := "kubernetesVersion"
	for _, name := range []string{"etcd", "coredns", "pause", "crictl"} {
		if component := "componentVersions." + name; r.Version == "" && r.Lines[component] > 0 && (r.Lines[path] == 0 || r.Lines[component] < r.Lines[path]) {
			path = component
		}
	}
	if err != nil {
		r.refuse(path, ofFile.Replace(fault.Hint(err)), "%s", ofFile.Replace(err.Error()))
	}
}

// checkChoices checks the fields that have a fixed set of values.
func (r *reader) checkChoices() {
	r.choose("cni", "cni", r.CNI, release.CNIs())
	r.choose("compression", "compression", r.Compression, bundle.Levels())
	r.choose("verifySignatures", "verifySignatures", r.VerifySignatures, builder.SignatureModes())
	for i, arch := range r.Arches {
		r.choose(item("architectures", i), "architecture", arch, release.Arches())
	}
	r.refuseTwice("architectures", "architecture", r.Arches)
	for i, name := range r.Require {
		r.choose(item("require", i), "require", name, release.Optional())
		if slices.Contains(r.Without, name) {
			r.refuse(item("require", i), "remove it from require or from without", "require and without both name %q", name)
		}
	}
	for i, name := range r.Without {
		r.choose(item("without", i), "without", name, release.Optional())
	}
}

// checkAddOns checks the add-ons. Whether the command line adds others is for the builder.
func (r *reader) checkAddOns() {
	cni := r.CNI
	if !slices.Contains(release.CNIs(), cni) {
		cni = release.Flannel
	}
	for i, name := range r.AddOns {
		if err := release.CheckAddOns([]string{name}, cni); err != nil {
			r.refuse(item("addons", i), fault.Hint(err), "%v", err)
		}
	}
	r.refuseTwice("addons", "add-on", r.AddOns)
}

// parsed returns the values of a list of texts. A hint of "" is the error's own.
func parsed[T any](r *reader, path, hint string, list []string, parse func(string) (T, error)) (all []T) {
	for i, text := range list {
		value, err := parse(text)
		if err != nil {
			r.refuse(item(path, i), cmp.Or(hint, fault.Hint(err)), "%v", err)
			continue
		}
		all = append(all, value)
	}
	return all
}

// images checks the images, and resolves the paths of sources such as oci-archive:app.tar.
func (r *reader) images() []string {
	return parsed(r, "images", "", r.Images, func(s string) (string, error) {
		spec, isLocal, err := local.Parse(s)
		switch {
		case err != nil:
			return "", err
		case !isLocal:
			return release.Normalize(strings.TrimPrefix(s, "docker://"))
		case spec.Path == "":
			return s, nil
		}
		selection := strings.TrimPrefix(s, spec.Kind+":"+spec.Path)
		return spec.Kind + ":" + r.resolve(spec.Path) + selection, nil
	})
}

func (r *reader) mirrors() []fetch.Mirror {
	seen := map[string]bool{}
	return parsed(r, "mirrors", "write one mirror for each host as HOST=URL, for example registry.k8s.io=https://mirror.example.com", r.MirrorURLs, func(s string) (m fetch.Mirror, err error) {
		if m, err = fetch.ParseMirror(s); err == nil && seen[m.Host] {
			err = fmt.Errorf("host %q has two mirrors", m.Host)
		}
		seen[m.Host] = true
		return m, err
	})
}

func (r *reader) registryCAs() []string {
	return parsed(r, "registryCAs", "", r.CAs, func(s string) (string, error) {
		// The name of a host contains no slash.
		host, path, ok := strings.Cut(s, "=")
		if !ok || strings.Contains(host, "/") {
			host, path = "", s
		} else {
			host += "="
		}
		ca := host + r.resolve(path)
		_, err := fetch.NewTrust([]string{ca})
		return ca, err
	})
}

func (r *reader) pins() []builder.Pin {
	own := parsed(r, "checksums", "write NAME=sha256:HEX with 64 hexadecimal digits, for example kubelet=sha256:0123…", r.Checksums, builder.ParsePin)
	ofFiles := parsed(r, "checksumFiles", "write the path of a file in the format of sha256sum; it is relative to the directory of "+r.List.File, r.ChecksumFiles,
		func(s string) ([]builder.Pin, error) { return builder.ReadPins(r.resolve(s)) })
	return slices.Concat(append([][]builder.Pin{own}, ofFiles...)...)
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// dropWrong leaves out the fields, manifests, files and packages with problems.
func (r *reader) dropWrong(o *builder.Options) {
	wrong, fields := map[string]bool{}, strict.Fields(reflect.TypeFor[builder.Options]())
	for _, p := range r.Problems {
		item, _, _ := strings.Cut(p.Field, "]")
		wrong[r.At(r.Lines[item+"]"])] = true
		name, _, _ := strings.Cut(strings.ReplaceAll(p.Field, "[", "."), ".")
		if f, ok := fields[name]; ok {
			reflect.ValueOf(o).Elem().FieldByIndex(f.Index).SetZero()
		}
	}
	o.Site.Manifests = slices.DeleteFunc(o.Site.Manifests, func(m builder.Manifest) bool { return wrong[m.At] })
	o.Site.Files = slices.DeleteFunc(o.Site.Files, func(f builder.File) bool { return wrong[f.At] })
	o.Site.Packages = slices.DeleteFunc(o.Site.Packages, func(p builder.PackageSource) bool { return wrong[p.At] })
}
