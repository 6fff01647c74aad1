// Package ociarchive writes images of a bundle as an OCI image layout in a tar archive, which
// ctr and skopeo read. All blobs have upstream's digests. It also has the manifest.json of docker
// save, for tools that do not read docker's media types in a layout.
package ociarchive
