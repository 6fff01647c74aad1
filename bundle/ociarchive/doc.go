// Package ociarchive writes images of a bundle as an OCI image layout in a tar archive, which
// ctr, skopeo, podman and docker read. All blobs have upstream's digests.
package ociarchive
