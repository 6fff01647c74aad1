package builder

import (
	"context"
	"fmt"
	"slices"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

// PerArch returns the names of the files of a build for these architectures: path for one
// architecture, path-amd64 and path-arm64 for several.
func PerArch(path string, arches []string) (list []string) {
	if len(arches) < 2 || path == "" {
		return slices.Repeat([]string{path}, max(len(arches), 1))
	}
	for _, arch := range arches {
		list = append(list, path+"-"+arch)
	}
	return list
}

// Run builds a bundle for each of the options, which differ in Arch and in the names of files.
// Everything is resolved, checked and downloaded for all of them before the first bundle is
// written, and all are written and verified before the first gets its name: a build that fails
// changes no file. The results are in the order of the options. With an error, Run returns only the
// results of bundles that already have their final names.
func Run(ctx context.Context, list []Options) (results []*Result, err error) {
	var all []*build
	for _, o := range list {
		o.Report = o.Report.On("linux/" + o.Arch)
		b, err := prepare(o)
		if err != nil {
			return nil, err
		}
		if err := b.options.Destination.check(b.options.Arch); err != nil {
			return nil, err
		}
		b.options.Executables.Launcher = head.HeadersLast(b.options.Executables.Launcher)
		defer o.Report.Close()
		defer b.out.discard()
		all = append(all, b)
	}
	for _, b := range all {
		if err := b.collect(ctx); err != nil {
			return nil, err
		}
		if err := all[0].sameRelease(b); err != nil {
			return nil, err
		}
	}
	for _, b := range all {
		r, err := b.write(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, b := range all {
		if b.options.Resolved == nil {
			continue
		}
		if err := b.options.Resolved(b.resolved); err != nil {
			return nil, err
		}
	}
	for n, b := range all {
		if err := b.out.place(); err != nil {
			return results[:n], alsoWritten(err, results[:n])
		}
	}
	return results, nil
}

// alsoWritten adds the bundles that already have their names to an error.
func alsoWritten(err error, results []*Result) error {
	for _, r := range results {
		err = fmt.Errorf("%w; %s is already written", err, r.Path)
	}
	return err
}

// sameRelease refuses a channel that was moved between two architectures.
func (b *build) sameRelease(other *build) error {
	own, others := b.found.release.Version, other.found.release.Version
	if own == others {
		return nil
	}
	return fault.New(fault.Failure, "%s is %s for linux/%s, and %s for linux/%s", b.options.Version, own, b.options.Arch, others, other.options.Arch).
		Hint("run the same command again")
}
