package sbom

import (
	"maps"
	"slices"
	"strings"
)

// A rootfs has the findings in an image's layers, by path. It leaves out files that upper layers
// remove or replace.
type rootfs struct {
	files map[string]located
	dirs  map[string]int // the directories of files, with the number of files in each
}

// located is a finding with the diff ID of its layer.
type located struct {
	*found
	layer string
}

func newRootfs() *rootfs { return &rootfs{map[string]located{}, map[string]int{}} }

// apply puts a layer on top. Its whiteouts apply only to the layers below, in any order of
// its tar.
func (r *rootfs) apply(diffID string, files []layerFile) {
	for _, f := range files {
		switch f.kind {
		case whiteout:
			r.remove(f.path)
			r.removeIn(f.path)
		case opaque:
			r.removeIn(f.path)
		}
	}
	for _, f := range files {
		switch f.kind {
		case directory:
			r.remove(f.path)
		case otherFile, hardLink:
			at := located{f.found, diffID}
			if f.kind == hardLink {
				at = r.files[f.link]
			}
			r.remove(f.path)
			r.removeIn(f.path)
			if at.found != nil {
				r.put(f.path, at)
			}
		}
	}
}

func (r *rootfs) put(path string, at located) {
	r.files[path] = at
	for dir := range parents(path) {
		r.dirs[dir]++
	}
}

func (r *rootfs) remove(path string) {
	if _, ok := r.files[path]; !ok {
		return
	}
	delete(r.files, path)
	for dir := range parents(path) {
		if r.dirs[dir]--; r.dirs[dir] == 0 {
			delete(r.dirs, dir)
		}
	}
}

// removeIn removes everything below a directory. The root directory is "".
func (r *rootfs) removeIn(dir string) {
	if r.dirs[dir] == 0 {
		return
	}
	for _, path := range slices.Collect(maps.Keys(r.files)) {
		if dir == "" || strings.HasPrefix(path, dir+"/") {
			r.remove(path)
		}
	}
}

// parents yields the directories above a path, with the root "".
func parents(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for n := strings.LastIndexByte(path, '/'); n >= 0; n = strings.LastIndexByte(path[:n], '/') {
			if !yield(path[:n]) {
				return
			}
		}
		yield("")
	}
}

// release returns os-release of the image, or nil.
func (r *rootfs) release() *release {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		if at, ok := r.files[path]; ok && at.release != nil && at.release.id != "" {
			return at.release
		}
	}
	return nil
}
