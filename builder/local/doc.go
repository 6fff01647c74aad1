// Package local reads images that are not in a registry: OCI image layouts, archives, and
// the images of a local Docker or containerd. It puts them into the cache of package fetch
// in the form of a bundle, as package registry does: indexes, manifests and configs with
// their exact bytes, layers uncompressed.
package local
