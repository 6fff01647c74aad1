package local

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A Reader puts images of local sources into a cache.
type Reader struct {
	Cache *fetch.Cache
	// Arch is the architecture of the images, "amd64". The operating system is linux.
	Arch string
	// Namespace is containerd's namespace.
	Namespace string
	// Keep stores the compressed layers that no encoder gives.
	Keep bool
}

// An Image is an image whose contents are in the cache.
type Image struct {
	bundle.Image // Name is empty
	// Kind is the kind of its source: "oci-archive".
	Kind string
}

// As returns the image under a name with a digest, if the name has the image's repository and the
// digest belongs to the image: to its target, or to a document between the target and the config.
func (i *Image) As(name string) (*Image, bool) {
	repository, digest, ok := strings.Cut(name, "@")
	if !ok || repository != release.Repository(i.Reference) {
		return nil, false
	}
	documents := i.Documents()
	documents = documents[:len(documents)-1]
	n := slices.IndexFunc(documents, func(d bundle.Descriptor) bool { return d.Digest == digest })
	if n < 0 {
		return nil, false
	}
	as := *i
	as.Reference, as.Target, as.Indexes = name, documents[n], nil
	if last := len(documents) - 1; n < last && as.Target != as.Manifest {
		as.Indexes = documents[n+1 : last]
	}
	return &as, true
}

func (i *Image) checkDigest() error {
	if !strings.Contains(i.Reference, "@") {
		return nil
	}
	as, ok := i.As(i.Reference)
	if !ok {
		return fault.New(fault.Failure, "the image has the digest %s, which is not the one in its name %q", i.Target.Digest, i.Reference).
			Hint("use the image with this digest, from its registry or from an oci-archive: that keeps it, or give the image a name with a tag: =NAME")
	}
	*i = *as
	return nil
}

// Read puts the images that spec names into the cache, layers included. Every blob is
// compared with its digest, every layer with its diffID.
func (r *Reader) Read(ctx context.Context, spec Spec) ([]*Image, error) {
	list, err := r.read(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", spec, err)
	}
	return list, nil
}

func (r *Reader) read(ctx context.Context, spec Spec) ([]*Image, error) {
	f, err := r.open(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if spec.Kind == DockerDaemon || spec.Kind == Containerd {
		spec.Select = "" // the archive has only this image
	}
	found, err := find(f, spec)
	if err != nil {
		return nil, err
	}
	var list []*Image
	for _, c := range found {
		img := &Image{Kind: spec.Kind}
		img.Reference = c.reference
		if err := c.read(ctx, r, f, &img.Image); err != nil {
			return nil, oci.Explain(img.Reference, err)
		}
		if err := img.checkDigest(); err != nil {
			return nil, err
		}
		list = append(list, img)
	}
	return list, nil
}

func (r *Reader) open(ctx context.Context, spec Spec) (files, error) {
	switch spec.Kind {
	case DockerDaemon:
		return r.save(ctx, spec.Select)
	case Containerd:
		return r.export(ctx, spec.Select)
	case OCIArchive, DockerArchive:
		if i, err := os.Stat(spec.Path); err == nil && i.IsDir() {
			return nil, fault.New(fault.Usage, "%q is a directory, not an archive", spec.Path).Hint("use oci:" + spec.Path + " for a directory")
		}
		return openArchive(ctx, r.Cache, spec.Path)
	}
	if i, err := os.Stat(spec.Path); err == nil && !i.IsDir() {
		return nil, fault.New(fault.Usage, "%q is not a directory", spec.Path).Hint("use oci-archive: or docker-archive: for a file")
	}
	return directory(spec.Path), nil
}

// Check finds a source that does not exist, before anything is read.
func (s Spec) Check() error {
	if s.Path == "" {
		return nil
	}
	if _, err := os.Stat(s.Path); err != nil {
		return fault.Wrap(fmt.Errorf("reading %s: %w", s, err), fault.Usage, "check the path; the text after the first colon of the path is a tag: "+form[s.Kind])
	}
	return nil
}

func find(f files, spec Spec) ([]candidate, error) {
	if has(f, indexFile) { // also in archives of a recent docker
		return findInLayout(f, spec)
	}
	docker := has(f, dockerFile)
	switch {
	case docker && spec.Kind == OCIArchive:
		return nil, fault.New(fault.Usage, "%s has no %s; it is an archive of docker save", spec.Path, indexFile).Hint("use docker-archive:" + spec.Path)
	case docker:
		return findInDocker(f, spec)
	case has(f, oldDockerFile):
		return nil, fault.New(fault.Failure, "%s is missing: the archive is of docker save before version 1.10", f.path(dockerFile)).
			Hint("write it again: docker load --input " + spec.Path + ", and docker save with the image's name")
	case isChart(f):
		return nil, fault.New(fault.Usage, "%s is a Helm chart, not a container image", spec.Path).Hint("list it as a chart in bundle.yaml, or use --images-from " + spec.Path)
	case has(f, "etc/passwd"), has(f, "bin/sh"), has(f, "usr/bin/env"):
		return nil, fault.New(fault.Usage, "%s has the files of a container, not an image", spec.Path).Hint(saveHint + ": docker export writes no image")
	case spec.Kind == DockerArchive:
		return nil, fault.New(fault.Usage, "%s is missing, so it is not an archive of docker save", f.path(dockerFile)).Hint(saveHint)
	}
	return nil, fmt.Errorf("%s is missing, so it is not an OCI image layout", f.path(indexFile))
}

func isChart(f files) bool {
	a, ok := f.(*archive)
	return has(f, "Chart.yaml") || ok && a.isChart()
}

type candidate struct {
	reference string
	// read puts the image into the cache and describes it.
	read func(ctx context.Context, r *Reader, f files, img *bundle.Image) error
}
