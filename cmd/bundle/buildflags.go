package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/builder/lock"
	"airlift/builder/sitefile"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// buildFlags are the flags that choose the contents of a bundle. bundle build and bundle update
// share them.
type buildFlags struct {
	o                         builder.Options
	mirrors, checksums, lists []string
	compression, file         string
	lock                      string
	lockLine                  string // what the build did with the lock, for the result
	reporter                  events.Reporter
	onlyValidate              bool
	wrong                     *problems.Wrong // what the file of --file has, if the options are only validated
}

func (b *buildFlags) bind(cmd *cobra.Command) {
	optional := strings.Join(release.Optional(), ", ")
	f := cmd.Flags()
	f.StringVarP(&b.file, "file", "f", "", "bundle.yaml that describes the bundle (see above)")
	f.StringVar(&b.o.Version, "version", release.Newest(), "Kubernetes version: v1.29.15, v1.29 or stable")
	componentFlags(f, &b.o.Versions)
	f.StringSliceVar(&b.o.Arches, "arch", []string{runtime.GOARCH}, "CPU architectures of the hosts: amd64, arm64 or both (see above)")
	f.StringVar(&b.o.CNI, "cni", release.Flannel, "pod network: flannel, or none to install your own")
	f.StringSliceVar(&b.o.Only, "only", nil, "build an additional bundle, without Kubernetes: images, manifests or both (see above)")
	f.StringVar(&b.o.Base, "base", "", "with --only: bundle `FILE` whose image layers are left out")
	f.StringArrayVar(&b.o.Images, "image", nil, "add this image, or the images of a source such as oci-archive:FILE, to the bundle (see above; repeatable)")
	f.StringSliceVar(&b.o.AddOns, "addon", nil, "add this add-on, which init applies: "+strings.Join(release.AddOnNames(), ", ")+" (repeatable)")
	f.StringArrayVar(&b.o.Site.ImagesFrom, "images-from", nil, "add the images of these manifests or of this chart: a file or a directory (repeatable)")
	f.StringVar(&b.o.Namespace, "containerd-namespace", cmp.Or(os.Getenv("CONTAINERD_NAMESPACE"), "default"), "containerd's namespace, for --image containerd:NAME; Kubernetes uses k8s.io")
	f.StringArrayVar(&b.mirrors, "mirror", nil, "HOST=URL: send requests for HOST to URL (repeatable)")
	f.StringArrayVar(&b.o.CAs, "registry-ca", nil, "FILE, HOST=FILE or DIR: trust these CA certificates too, for all sites or for HOST (repeatable)")
	f.StringVar(&b.o.AuthFile, "registry-auth", "", "a `FILE` with the credentials for registries, in the format of docker's config.json")
	f.StringArrayVar(&b.checksums, "checksum", nil, "NAME=sha256:HEX: checksum that a file or image must have (repeatable)")
	f.StringArrayVar(&b.lists, "checksums", nil, "file with checksums in the format of sha256sum (repeatable)")
	f.StringVar(&b.o.VerifySignatures, "verify-signatures", builder.VerifyOff, "verify upstream's signatures: "+strings.Join(builder.SignatureModes(), ", "))
	f.StringVar(&b.o.TrustedRoot, "trusted-root", "", "sigstore's trusted_root.json, instead of downloading the public one (`FILE`)")
	f.StringArrayVar(&b.o.Require, "require", nil, "fail if this optional component is not available: "+optional+" (repeatable)")
	f.StringArrayVar(&b.o.Without, "without", nil, "leave out this optional component: "+optional+" (repeatable)")
	f.StringVar(&b.o.CacheDir, "cache-dir", "", "directory for downloads (default airlift/bundle in the user's cache directory)")
	f.StringVar(&b.lock, "lock", "", "`FILE` with the lock (default bundle.lock next to the bundle.yaml of --file)")
	cobra.CheckErr(cmd.MarkFlagFilename("file", "yaml", "yml"))
	cobra.CheckErr(cmd.MarkFlagFilename("lock", "lock"))
	cobra.CheckErr(cmd.MarkFlagFilename("trusted-root", "json"))
	complete(cmd, "addon", release.AddOnNames())
	complete(cmd, "arch", release.Arches())
	complete(cmd, "cni", release.CNIs())
	complete(cmd, "only", bundle.ContentKinds())
	complete(cmd, "verify-signatures", builder.SignatureModes())
	complete(cmd, "version", release.Known())
	complete(cmd, "require", release.Optional())
	complete(cmd, "without", release.Optional())
}

// additionalOutput is the default of --out for an additional bundle.
const additionalOutput = "more"

// complete registers the values for shell completion of a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// options returns the options of a build for each architecture, with the values of --file.
func (b *buildFlags) options(cmd *cobra.Command) ([]builder.Options, error) {
	o := &b.o
	var err error
	if o.Mirrors, err = parseMirrors(b.mirrors); err != nil {
		return nil, err
	}
	if o.Pins, err = pins(b.checksums, b.lists); err != nil {
		return nil, err
	}
	if o.Level, err = bundle.ParseLevel(cmp.Or(b.compression, "default")); err != nil {
		return nil, err
	}
	changed := cmd.Flags().Changed
	if changed("only") && len(o.Only) == 0 {
		return nil, fault.New(fault.Usage, "--only is empty").Hint("write --only " + strings.Join(bundle.ContentKinds(), ",") + ", or remove the flag")
	}
	versionGiven, outputGiven := changed("version"), changed("out")
	if b.file != "" {
		f, err := sitefile.Read(b.file, given(changed))
		if err != nil && !(b.onlyValidate && errors.As(err, &b.wrong)) {
			return nil, err
		}
		useFile(f, o)
		versionGiven, outputGiven = versionGiven || f.Version != "", outputGiven || f.Output != ""
	}
	if len(o.Only) > 0 {
		if changed("cni") {
			return nil, fault.New(fault.Usage, "an additional bundle has no pod network").Hint("remove --cni or --only")
		}
		if !outputGiven {
			o.Output = additionalOutput // and never replace the bundle that installs nodes
		}
	}
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("finding the user's cache directory: %w", err), fault.Usage, "choose a directory with --cache-dir")
		}
		o.CacheDir = filepath.Join(dir, "airlift", "bundle")
	}
	o.LockPath = b.lock
	if b.lock == "" && b.file != "" {
		o.LockPath = lock.Path(b.file)
	}
	if !versionGiven && b.wrong == nil { // a version that is wrong is left out
		what := "the newest known minor version is built"
		if len(o.Only) > 0 {
			what = "the bundle is for clusters of the newest known minor version"
		}
		b.reporter.Note(fmt.Sprintf("without --version, %s: %s", what, o.Version))
	}
	return b.perArch()
}

// perArch returns the options for each architecture.
func (b *buildFlags) perArch() (list []builder.Options, err error) {
	arches := b.o.Arches
	if len(arches) == 0 {
		return nil, fault.New(fault.Usage, "--arch is empty").Hint("write --arch " + strings.Join(release.Arches(), ",") + ", or remove the flag")
	}
	outputs, bases := builder.PerArch(b.o.Output, arches), builder.PerArch(b.o.Base, arches)
	for n, arch := range arches {
		if slices.Contains(arches[:n], arch) {
			return nil, fault.New(fault.Usage, "--arch names %s twice", arch).Hint("name each architecture once")
		}
		if err := release.Supported(arch, release.NoCNI); err != nil {
			return nil, err
		}
		o := b.o
		o.Arch, o.Output, o.Base = arch, outputs[n], bases[n]
		list = append(list, o)
	}
	return list, nil
}

// useLock makes a build use the lock, or write it if it does not exist. A build without
// --file and --lock has none.
func (b *buildFlags) useLock(list []builder.Options, must bool) error {
	path := list[0].LockPath
	if path == "" {
		if must {
			return fault.New(fault.Usage, "--locked needs a lock").Hint("add --file bundle.yaml or --lock FILE")
		}
		return nil
	}
	locks, err := lock.Read(path)
	if err == nil {
		b.lockLine = path + " (used)"
		for n := range list {
			platform := "linux/" + list[n].Arch
			if list[n].Lock = locks.Of(platform); list[n].Lock == nil {
				return fault.New(fault.Failure, "%s does not fit this build: it has no %s, only %s", path, platform, strings.Join(locks.Names(), ", ")).
					Hint("add it with \"bundle update\" with the same flags, or use another lock with --lock FILE")
			}
		}
		return nil
	}
	if !lock.Missing(err) || must {
		return err
	}
	b.lockLine = path + " (written)"
	var resolved []*lock.Lock
	for n := range list {
		list[n].Resolved = func(l *lock.Lock) error {
			if resolved = append(resolved, l); len(resolved) < len(list) {
				return nil
			}
			return lock.Write(path, resolved...)
		}
	}
	return nil
}

// componentFlags adds the flags that give versions of components.
func componentFlags(f *pflag.FlagSet, v *release.Versions) {
	for _, c := range []struct {
		name    string
		version *string
		form    string
	}{{"etcd", &v.Etcd, "3.7.0-0"}, {"coredns", &v.CoreDNS, "v1.14.6"}, {"pause", &v.Pause, "3.10.2"}, {"crictl", &v.Crictl, "v1.36.0"}} {
		f.StringVar(c.version, c.name+"-version", "", "version of "+c.name+", such as "+c.form+", for a Kubernetes version that is newer than the known ones")
	}
}

// pins parses the values of --checksum and --checksums.
func pins(checksums, lists []string) (all []builder.Pin, err error) {
	for _, s := range checksums {
		p, err := builder.ParsePin(s)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, path := range lists {
		list, err := builder.ReadPins(path)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// parseMirrors parses the values of --mirror.
func parseMirrors(values []string) (list []fetch.Mirror, err error) {
	for _, s := range values {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
