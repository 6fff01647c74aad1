// Package push copies the images of a bundle to a registry, with upstream's digests.
//
// The bundle has layers uncompressed, in one stream. So push reads the documents first, asks the
// registry what is missing, and refuses what it cannot push before it sends anything. Then it reads
// the layers once, in their order, and compresses each missing layer as upstream did.
package push
