package sitefile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images"
	"airlift/images/local"
)

// A File has the values of a bundle.yaml, checked. What is not written is empty. Paths are
// relative to the working directory, or absolute.
type File struct {
	Version, CNI        string
	Arches              []string
	Only                []string
	Base                string
	Versions            images.Versions
	AddOns              []string
	Images              []string
	Mirrors             []fetch.Mirror
	CAs                 []string
	Pins                []builder.Pin
	Require, Without    []string
	Compression, Output string
	KeepCompressed      bool
	VerifySignatures    string
	TrustedRoot         string
	Site                builder.Site
}

// Read reads the file at path. overridden reports whether a flag of bundle build replaces the
// value of the file; such values are not checked. The error lists all problems, each with its
// line.
func Read(path string, overridden func(flag string) bool) (*File, error) {
	r := &reader{path: path, written: map[string]string{}}
	data, err := r.load()
	if err != nil {
		return nil, err
	}
	doc := r.decode(data)
	if len(r.problems) == 0 {
		r.checkKind(doc)
	}
	if len(r.problems) > 0 {
		return nil, r.err() // further problems may follow from these
	}
	f := &File{
		Version: doc.KubernetesVersion.Value, Arches: values(doc.Architectures), CNI: doc.CNI.Value,
		Versions: images.Versions{Etcd: doc.ComponentVersions.Etcd.Value, CoreDNS: doc.ComponentVersions.CoreDNS.Value,
			Pause: doc.ComponentVersions.Pause.Value, Crictl: doc.ComponentVersions.Crictl.Value},
		AddOns: values(doc.AddOns), Require: values(doc.Require), Without: values(doc.Without),
		Compression: doc.Compression.Value, VerifySignatures: doc.VerifySignatures.Value, KeepCompressed: bool(doc.KeepCompressedLayers),
	}
	if doc.Output.Value != "" {
		f.Output = r.resolve(doc.Output.Value)
	}
	if doc.TrustedRoot.Value != "" {
		f.TrustedRoot = r.resolve(doc.TrustedRoot.Value)
	}
	r.readOnly(doc, f, overridden)
	r.checkVersion(doc, f, overridden)
	r.checkChoices(doc, overridden)
	r.checkAddOns(doc, overridden)
	r.readImages(doc, f)
	r.readMirrors(doc, f)
	r.readCAs(doc, f)
	r.readPins(doc, f)
	r.readManifests(doc, &f.Site)
	r.readFiles(doc, &f.Site)
	f.Site.Written = r.written
	return f, r.err()
}

func (r *reader) checkKind(doc document) {
	for _, f := range []struct {
		name, want string
		text
	}{{"apiVersion", APIVersion, doc.APIVersion}, {"kind", Kind, doc.Kind}} {
		switch {
		case f.Value == "":
			r.problem(1, fmt.Sprintf("add the line %s: %s", f.name, f.want), "the file has no %s", f.name)
		case f.Value != f.want:
			r.problem(f.Line, fmt.Sprintf("write %s: %s", f.name, f.want), "%s %q is not supported", f.name, f.Value)
		}
	}
}

// ofFile replaces flags in messages by the fields of the file.
var ofFile = strings.NewReplacer("--etcd-version", "componentVersions.etcd", "--coredns-version", "componentVersions.coredns",
	"--pause-version", "componentVersions.pause", "--crictl-version", "componentVersions.crictl", "--version", "kubernetesVersion")

// checkVersion checks the Kubernetes version with the versions of the components, unless
// flags replace some of them: then the builder checks the combination.
func (r *reader) checkVersion(doc document, f *File, overridden func(flag string) bool) {
	line := cmp.Or(doc.KubernetesVersion.Line, doc.ComponentVersions.line())
	if line == 0 || slices.ContainsFunc([]string{"version", "etcd-version", "coredns-version", "pause-version", "crictl-version"}, overridden) {
		return
	}
	version := doc.KubernetesVersion.or(images.Newest())
	full, _, err := images.Channel(version, f.Versions)
	if additional(doc, overridden) {
		_, _, err = images.Release(version)
	} else if err == nil && full != "" {
		_, err = images.For(full, images.Arches()[0], images.NoCNI, f.Versions)
	}
	if err != nil {
		r.problem(line, ofFile.Replace(fault.Hint(err)), "%s", ofFile.Replace(err.Error()))
	}
}

// checkChoices checks the fields that have a fixed set of values.
func (r *reader) checkChoices(doc document, overridden func(flag string) bool) {
	choice := func(name string, t text, allowed []string) {
		if t.Value != "" && !slices.Contains(allowed, t.Value) {
			r.problem(t.Line, "write one of "+strings.Join(allowed, ", "), "%s %q is not supported", name, t.Value)
		}
	}
	for _, c := range []struct {
		flag, name string
		text
		allowed []string
	}{
		{"cni", "cni", doc.CNI, images.CNIs()},
		{"compression", "compression", doc.Compression, bundle.Levels()},
		{"verify-signatures", "verifySignatures", doc.VerifySignatures, builder.SignatureModes()},
	} {
		if !overridden(c.flag) {
			choice(c.name, c.text, c.allowed)
		}
	}
	if !overridden("arch") {
		for _, t := range doc.Architectures {
			choice("architecture", t, images.Arches())
		}
		r.refuseTwice("architecture", doc.Architectures)
	}
	for _, t := range doc.Require {
		choice("require", t, images.Optional())
		if slices.ContainsFunc(doc.Without, func(w text) bool { return w.Value == t.Value }) {
			r.problem(t.Line, "remove it from require or from without", "require and without both name %q", t.Value)
		}
	}
	for _, t := range doc.Without {
		choice("without", t, images.Optional())
	}
}

// checkAddOns checks the add-ons. Whether flags add others is for the builder.
func (r *reader) checkAddOns(doc document, overridden func(flag string) bool) {
	cni := doc.CNI.or(images.Flannel)
	if overridden("cni") || !slices.Contains(images.CNIs(), cni) {
		cni = images.Flannel
	}
	for _, t := range doc.AddOns {
		if err := images.CheckAddOns([]string{t.Value}, cni); err != nil {
			r.problem(t.Line, fault.Hint(err), "%v", err)
		}
	}
	r.refuseTwice("add-on", doc.AddOns)
}

// refuseTwice refuses a value that is in a list twice.
func (r *reader) refuseTwice(what string, list []text) {
	first := map[string]int{} // lines by value
	for _, t := range list {
		if line, twice := first[t.Value]; twice {
			r.problem(t.Line, "remove one of them", "the %s %q is written twice, first at line %d", what, t.Value, line)
		}
		first[t.Value] = t.Line
	}
}

func (r *reader) readImages(doc document, f *File) {
	for _, t := range doc.Images {
		image, err := r.image(t.Value)
		if err != nil {
			r.problem(t.Line, fault.Hint(err), "%v", err)
			continue
		}
		f.Images = append(f.Images, image)
	}
}

// image checks an image, and resolves the path of a source such as oci-archive:app.tar.
func (r *reader) image(s string) (string, error) {
	spec, isLocal, err := local.Parse(s)
	switch {
	case err != nil:
		return "", err
	case !isLocal:
		return images.Normalize(strings.TrimPrefix(s, "docker://"))
	case spec.Path == "":
		return s, nil
	}
	selection := strings.TrimPrefix(s, spec.Kind+":"+spec.Path)
	return spec.Kind + ":" + r.resolve(spec.Path) + selection, nil
}

func (r *reader) readMirrors(doc document, f *File) {
	for _, t := range doc.Mirrors {
		m, err := fetch.ParseMirror(t.Value)
		if err != nil {
			r.problem(t.Line, "write HOST=URL, for example registry.k8s.io=https://mirror.example.com", "%v", err)
			continue
		}
		if slices.ContainsFunc(f.Mirrors, func(o fetch.Mirror) bool { return o.Host == m.Host }) {
			r.problem(t.Line, "write one mirror for each host", "host %q has two mirrors", m.Host)
		}
		f.Mirrors = append(f.Mirrors, m)
	}
}

func (r *reader) readCAs(doc document, f *File) {
	for _, t := range doc.RegistryCAs {
		// The name of a host contains no slash.
		host, path, ok := strings.Cut(t.Value, "=")
		if !ok || strings.Contains(host, "/") {
			host, path = "", t.Value
		} else {
			host += "="
		}
		ca := host + r.resolve(path)
		if _, err := fetch.NewTrust([]string{ca}); err != nil {
			r.problem(t.Line, fault.Hint(err), "%v", err)
			continue
		}
		f.CAs = append(f.CAs, ca)
	}
}

func (r *reader) readPins(doc document, f *File) {
	for _, t := range doc.Checksums {
		p, err := builder.ParsePin(t.Value)
		if err != nil {
			r.problem(t.Line, "write NAME=sha256:HEX with 64 hexadecimal digits, for example kubelet=sha256:0123…", "%v", err)
			continue
		}
		f.Pins = append(f.Pins, p)
	}
	for _, t := range doc.ChecksumFiles {
		list, err := builder.ReadPins(r.resolve(t.Value))
		if err != nil {
			r.problem(t.Line, "write the path of a file in the format of sha256sum; it is relative to the directory of "+r.path, "%v", err)
			continue
		}
		f.Pins = append(f.Pins, list...)
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func values(list []text) (all []string) {
	for _, t := range list {
		all = append(all, t.Value)
	}
	return all
}
