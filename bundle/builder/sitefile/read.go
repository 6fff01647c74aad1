package sitefile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/images/fetch"
	"airlift/images/local"
	"airlift/images/release"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// Read returns the options in the file at path, checked. What is not written is empty. Paths are relative
// to the working directory, or absolute. given reports whether a field, "cni" or
// "componentVersions.etcd", has a value that replaces the file's: it is left out and not checked. The
// error lists all problems, each with its line.
func Read(path string, given func(field string) bool) (o builder.Options, err error) {
	r := &reader{problems: problems.List{File: path}, given: given, written: map[string]string{}}
	data, err := r.load()
	if err != nil {
		return o, err
	}
	r.decode(data)
	if r.problems.Len() == 0 {
		r.checkKind()
	}
	if r.problems.Len() > 0 {
		return o, r.problems.Err() // further problems may follow from these
	}
	r.leaveOut()
	var doc document
	if err := r.root.Decode(&doc); err != nil {
		return o, err
	}
	o = builder.Options{Target: doc.Target, Selection: doc.Selection, Network: doc.Network, Trust: doc.Trust, Destination: doc.Destination}
	for _, path := range []*string{&o.Output, &o.TrustedRoot, &o.Base} {
		if *path != "" {
			*path = r.resolve(*path)
		}
	}
	r.checkOnly(doc, o)
	r.checkVersion(o)
	r.checkChoices()
	r.checkAddOns()
	o.Images, o.Mirrors, o.CAs, o.Pins = r.images(), r.mirrors(), r.registryCAs(), r.pins()
	o.Level, _ = bundle.ParseLevel(doc.Compression) // checked
	r.readManifests(doc, &o.Site)
	r.readFiles(doc, &o.Site)
	o.Site.Written = r.written
	return o, r.problems.Err()
}

func (r *reader) checkKind() {
	for _, f := range [][2]string{{"apiVersion", APIVersion}, {"kind", Kind}} {
		name, want := f[0], f[1]
		switch t := r.text(name); t.Value {
		case want:
		case "":
			r.problems.Add(1, fmt.Sprintf("add the line %s: %s", name, want), "the file has no %s", name)
		default:
			r.problems.Add(t.Line, fmt.Sprintf("write %s: %s", name, want), "%s %q is not supported", name, t.Value)
		}
	}
}

// ofFile replaces what the catalog's errors name by the fields of the file.
var ofFile = strings.NewReplacer("--etcd-version", "componentVersions.etcd", "--coredns-version", "componentVersions.coredns",
	"--pause-version", "componentVersions.pause", "--crictl-version", "componentVersions.crictl", "--version", "kubernetesVersion")

// checkVersion checks the Kubernetes version with the versions of the components, unless
// some of them are given: then the builder checks the combination.
func (r *reader) checkVersion(o builder.Options) {
	lines := append(r.texts("kubernetesVersion"), r.texts("componentVersions")...)
	if len(lines) == 0 || slices.ContainsFunc([]string{"kubernetesVersion", "componentVersions.etcd", "componentVersions.coredns", "componentVersions.pause", "componentVersions.crictl"}, r.given) {
		return
	}
	version := cmp.Or(o.Version, release.Newest())
	full, _, err := release.Channel(version, o.Versions)
	if r.additional(o) {
		_, _, err = release.AnyChannel(version)
	} else if err == nil && full != "" {
		_, err = release.For(full, release.Arches()[0], release.NoCNI, o.Versions)
	}
	if err != nil {
		r.problems.Add(lines[0].Line, ofFile.Replace(fault.Hint(err)), "%s", ofFile.Replace(err.Error()))
	}
}

// checkChoices checks the fields that have a fixed set of values.
func (r *reader) checkChoices() {
	choice := func(name string, t text, allowed []string) {
		if t.Value != "" && !slices.Contains(allowed, t.Value) {
			r.problems.Add(t.Line, "write one of "+strings.Join(allowed, ", "), "%s %q is not supported", name, t.Value)
		}
	}
	for name, allowed := range map[string][]string{"cni": release.CNIs(), "compression": bundle.Levels(), "verifySignatures": builder.SignatureModes()} {
		choice(name, r.text(name), allowed)
	}
	arches := r.texts("architectures")
	for _, t := range arches {
		choice("architecture", t, release.Arches())
	}
	r.refuseTwice("architecture", arches)
	without := r.texts("without")
	for _, t := range r.texts("require") {
		choice("require", t, release.Optional())
		if slices.ContainsFunc(without, func(w text) bool { return w.Value == t.Value }) {
			r.problems.Add(t.Line, "remove it from require or from without", "require and without both name %q", t.Value)
		}
	}
	for _, t := range without {
		choice("without", t, release.Optional())
	}
}

// checkAddOns checks the add-ons. Whether the command line adds others is for the builder.
func (r *reader) checkAddOns() {
	cni := r.text("cni").Value
	if !slices.Contains(release.CNIs(), cni) {
		cni = release.Flannel
	}
	addOns := r.texts("addons")
	for _, t := range addOns {
		if err := release.CheckAddOns([]string{t.Value}, cni); err != nil {
			r.problems.Add(t.Line, fault.Hint(err), "%v", err)
		}
	}
	r.refuseTwice("add-on", addOns)
}

// refuseTwice refuses a value that is in a list twice.
func (r *reader) refuseTwice(what string, list []text) {
	first := map[string]int{} // lines by value
	for _, t := range list {
		if line, twice := first[t.Value]; twice {
			r.problems.Add(t.Line, "remove one of them", "the %s %q is written twice, first at line %d", what, t.Value, line)
		}
		first[t.Value] = t.Line
	}
}

func (r *reader) images() (all []string) {
	for _, t := range r.texts("images") {
		image, err := r.image(t.Value)
		if err != nil {
			r.problems.Add(t.Line, fault.Hint(err), "%v", err)
			continue
		}
		all = append(all, image)
	}
	return all
}

// image checks an image, and resolves the path of a source such as oci-archive:app.tar.
func (r *reader) image(s string) (string, error) {
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
}

func (r *reader) mirrors() (all []fetch.Mirror) {
	for _, t := range r.texts("mirrors") {
		m, err := fetch.ParseMirror(t.Value)
		if err != nil {
			r.problems.Add(t.Line, "write HOST=URL, for example registry.k8s.io=https://mirror.example.com", "%v", err)
			continue
		}
		if slices.ContainsFunc(all, func(o fetch.Mirror) bool { return o.Host == m.Host }) {
			r.problems.Add(t.Line, "write one mirror for each host", "host %q has two mirrors", m.Host)
		}
		all = append(all, m)
	}
	return all
}

func (r *reader) registryCAs() (all []string) {
	for _, t := range r.texts("registryCAs") {
		// The name of a host contains no slash.
		host, path, ok := strings.Cut(t.Value, "=")
		if !ok || strings.Contains(host, "/") {
			host, path = "", t.Value
		} else {
			host += "="
		}
		ca := host + r.resolve(path)
		if _, err := fetch.NewTrust([]string{ca}); err != nil {
			r.problems.Add(t.Line, fault.Hint(err), "%v", err)
			continue
		}
		all = append(all, ca)
	}
	return all
}

func (r *reader) pins() (all []builder.Pin) {
	for _, t := range r.texts("checksums") {
		p, err := builder.ParsePin(t.Value)
		if err != nil {
			r.problems.Add(t.Line, "write NAME=sha256:HEX with 64 hexadecimal digits, for example kubelet=sha256:0123…", "%v", err)
			continue
		}
		all = append(all, p)
	}
	for _, t := range r.texts("checksumFiles") {
		list, err := builder.ReadPins(r.resolve(t.Value))
		if err != nil {
			r.problems.Add(t.Line, "write the path of a file in the format of sha256sum; it is relative to the directory of "+r.problems.File, "%v", err)
			continue
		}
		all = append(all, list...)
	}
	return all
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func values(list []text) (all []string) {
	for _, t := range list {
		all = append(all, t.Value)
	}
	return all
}
