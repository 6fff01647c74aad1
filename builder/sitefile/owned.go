package sitefile

import (
	"path"
	"slices"
	"sync"

	"airlift/images/release"
	"airlift/internal/hostpath"
)

// binaryNames are the names of the binaries in every bundle. The CNI plugins are compared when
// they were downloaded.
var binaryNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	c, err := release.For(release.NewestOf("stable"), release.Arches()[0], release.NoCNI, release.Versions{})
	if err != nil {
		panic(err) // the catalog has its own newest release
	}
	for _, b := range c.Binaries {
		names[path.Base(b.Contents.Entry)] = b.Contents.Entry != ""
		for _, m := range b.Contents.Members {
			names[path.Base(m.Entry)] = true
		}
	}
	return names
})

// ownerOf returns who owns a path on the hosts, or "" if it is free.
func ownerOf(p string) string {
	if slices.Contains(hostpath.BinaryDirs, path.Dir(p)) && binaryNames()[path.Base(p)] {
		return "this binary belongs to Airlift"
	}
	return hostpath.Owner(p)
}
