package ledger

import "slices"

// An ImageTarget is the target of an image name in containerd.
type ImageTarget struct {
	MediaType string            `json:"mediaType"`
	Digest    string            `json:"digest"`
	Size      int64             `json:"size"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// An ImageName is an image name in an existing containerd that Airlift creates or
// changes.
type ImageName struct {
	Socket string // containerd's
	Name   string
	Before *ImageTarget // nil if there was no such name
	Set    []string     // the digests that Airlift made it point to
}

// imageName is an ImageName in the ledger.
type imageName struct {
	Socket string       `json:"socket"`
	Before *ImageTarget `json:"before,omitempty"`
	Set    []string     `json:"set"`
}

// RecordImageNames records image names before their targets change. A name that
// is in the ledger already, and still has a target that Airlift set, keeps its
// recorded Before.
func (r *Records) RecordImageNames(names ...ImageName) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := slices.Clone(r.document.Entries)
	for _, n := range names {
		e := Entry{Kind: Image, Name: n.Name, Image: &imageName{n.Socket, n.Before, n.Set}}
		i := slices.IndexFunc(entries, func(o Entry) bool { return o.is(n) })
		if i < 0 {
			entries = append(entries, e)
			continue
		}
		known := entries[i].Image
		if n.Before != nil && slices.Contains(known.Set, n.Before.Digest) {
			e.Image.Before = known.Before
		}
		for _, s := range known.Set {
			if !slices.Contains(e.Image.Set, s) {
				e.Image.Set = append(slices.Clone(e.Image.Set), s)
			}
		}
		entries[i] = e
	}
	return r.writeLedger(Path, entries)
}

// is reports whether an entry describes an image name.
func (e Entry) is(n ImageName) bool {
	return e.Kind == Image && e.Name == n.Name && e.Image != nil && e.Image.Socket == n.Socket
}

// ImageNames lists the recorded names, newest first.
func (r *Records) ImageNames() []ImageName {
	var names []ImageName
	for _, e := range r.Entries(Image) {
		if e.Image != nil {
			names = append(names, ImageName{e.Image.Socket, e.Name, e.Image.Before, e.Image.Set})
		}
	}
	slices.Reverse(names)
	return names
}

// ForgetImageNames removes names from the ledger, after they were restored.
func (r *Records) ForgetImageNames(names ...ImageName) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := slices.DeleteFunc(slices.Clone(r.document.Entries), func(e Entry) bool { return slices.ContainsFunc(names, e.is) })
	if len(entries) == len(r.document.Entries) {
		return nil
	}
	return r.writeLedger(Path, entries)
}
