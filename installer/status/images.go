package status

import (
	"context"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/node"
)

// Images are the images in the containerd of this node.
type Images struct {
	// Imported is the number of images that Airlift imported, and Bytes their size, as crictl
	// prints it.
	Imported int   `json:"imported"`
	Bytes    int64 `json:"bytes"`
	Other    int   `json:"other"` // all others
	// Missing are the images of this file that a node of this role needs and that the kubelet
	// cannot use. Absent images do not count as missing on a node that Airlift did not install,
	// and on an adopted one before its first upgrade.
	Missing []string `json:"missing"`
}

func (r *Reader) readImages(ctx context.Context) (found result, err error) {
	runtime, err := node.OpenRuntime(ctx, r.Host)
	if err != nil {
		return found, err
	}
	defer runtime.Close()
	list, err := runtime.Images(ctx)
	if err != nil {
		return found, err
	}
	i := &Images{Missing: []string{}}
	for _, img := range list {
		if img.Kind == "" {
			i.Other++
			continue
		}
		i.Imported++
		i.Bytes += img.Size
	}
	if r.Contents.Images != nil {
		if i.Missing, err = r.missing(ctx, runtime, r.Contents.Images(r.node.Role)); err != nil {
			return found, err
		}
	}
	found.set = func(s *Status) { s.Images = i }
	if r.Contents.Kubernetes != "" && r.Contents.Kubernetes != node.BinaryVersion(ctx, r.Host, "kubelet") {
		return found, nil
	}
	for _, name := range i.Missing {
		fix := "./install import"
		if !r.Host.Records().Manages() { // import writes to the ledger
			fix = "./install images export - " + name + " | ctr --namespace k8s.io images import -"
		}
		found.problem(fix, "image %s is not complete in containerd", name)
	}
	return found, nil
}

// missing returns the names of images that the kubelet cannot use.
func (r *Reader) missing(ctx context.Context, runtime *store.Store, images []bundle.Image) ([]string, error) {
	names := []string{}
	for _, img := range images {
		state, err := runtime.StateOf(ctx, img)
		if err != nil {
			return nil, err
		}
		if state == store.Incomplete || state == store.Absent && r.Host.Records().Manages() && node.AdoptedKubelet(r.Host) == nil {
			names = append(names, img.Reference)
		}
	}
	return names, nil
}
