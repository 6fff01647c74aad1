package status

import "context"

// Images are the images in the containerd of this node.
type Images struct {
	// Imported is the number of those that Airlift imported, and Bytes their size, as crictl
	// prints it.
	Imported int   `json:"imported"`
	Bytes    int64 `json:"bytes"`
	Other    int   `json:"other"` // all others
	// Missing are those of this file that a node of this role needs, and that are not
	// complete in containerd.
	Missing []string `json:"missing"`
}

func (r *Reader) readImages(ctx context.Context) (found result, err error) {
	if r.node.role == NoNode {
		return found, notHere{"this host is not a node of a cluster"}
	}
	runtime, err := r.runtime(ctx)
	if err != nil {
		return found, err
	}
	defer runtime.Close()
	runtime.LeaveUnpinned() // an image that the user has unpinned is not missing
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
		missing, err := runtime.Missing(ctx, r.Contents.Images(r.node.role))
		if err != nil {
			return found, err
		}
		for _, img := range missing {
			i.Missing = append(i.Missing, img.Reference)
		}
	}
	found.set = func(s *Status) { s.Images = i }
	same := r.Contents.Kubernetes == "" || r.Contents.Kubernetes == r.binaryVersion(ctx, "kubelet")
	for _, name := range i.Missing {
		if same {
			found.problem("./install import", "image %s is not complete in containerd", name)
		}
	}
	return found, nil
}
