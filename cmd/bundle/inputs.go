package main

import (
	"path/filepath"
	"strings"

	"airlift/builder"
	"airlift/builder/local"
	"airlift/bundle"
	"airlift/internal/fault"
)

// An input is a file that a command reads.
type input struct{ what, path string }

// keepInputs refuses to write a result over one of the inputs. flag is the flag that sets the path.
func keepInputs(result, path, flag string, inputs ...input) error {
	for _, i := range inputs {
		if path == "" || i.path == "" || !sameFile(path, i.path) && filepath.Clean(path) != filepath.Clean(i.path) {
			continue
		}
		return fault.New(fault.Usage, "%s would replace %s %q", result, i.what, i.path).Hint("choose another path with " + flag)
	}
	return nil
}

// inputs lists the files that a build and an update read, except the base: the builder compares it
// with the output when it knows that there may be a base.
func (b *buildFlags) inputs(o builder.Options) []input {
	list := []input{{"the file of --file", b.file}, {"the trusted root", o.TrustedRoot}, {"the file of --registry-auth", o.AuthFile}}
	for _, p := range o.Pins {
		list = append(list, input{"the checksums", p.File})
	}
	for _, value := range o.CAs {
		if host, path, ok := strings.Cut(value, "="); ok && !strings.Contains(host, "/") {
			value = path
		}
		list = append(list, input{"the CA certificate", value})
	}
	for _, image := range o.Images {
		if spec, _, err := local.Parse(image); err == nil { // others are an error of the build
			list = append(list, input{"the image", spec.Path})
		}
	}
	for _, m := range o.Site.Manifests {
		list = append(list, input{"the manifest", m.Path})
		if m.Chart == nil {
			continue
		}
		list = append(list, input{"the chart", m.Chart.Source})
		for _, path := range m.Chart.Values {
			list = append(list, input{"the values", path})
		}
	}
	for _, path := range o.Site.ImagesFrom {
		list = append(list, input{"the manifests", path})
	}
	for _, f := range o.Site.Files {
		list = append(list, input{"the file", f.Source})
	}
	for _, p := range o.Site.Packages {
		list = append(list, input{"the packages", p.Source}, input{"the list of installed packages", p.Installed})
	}
	return list
}

// checkLock refuses a lock that would replace an input or the bundle.
func (b *buildFlags) checkLock(list []builder.Options) error {
	for _, o := range list {
		if err := keepInputs("the lock", o.LockPath, "--lock", append(b.inputs(o), input{"the base", o.Base}, input{"the bundle", o.Output})...); err != nil {
			return err
		}
		if err := bundle.KeepBundle(o.LockPath); err != nil {
			return err
		}
	}
	return nil
}

// checkOutput refuses an output that would replace an input. A build also replaces or removes the
// files next to the bundle. more are further inputs.
func (b *buildFlags) checkOutput(o builder.Options, more ...input) error {
	results := []input{{"the bundle", o.Output}}
	for _, f := range builder.SideFiles(o.Output) {
		results = append(results, input{"its " + f.What, f.Path})
	}
	inputs := append(b.inputs(o), append(more, input{"the lock", o.LockPath})...)
	for _, r := range results {
		if err := keepInputs(r.what, r.path, "--out", inputs...); err != nil {
			return err
		}
	}
	return nil
}
