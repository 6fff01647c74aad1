// Package blobs makes upstream's blobs from a bundle: it reads the documents of the images,
// and compresses the layers as upstream did.
package blobs
