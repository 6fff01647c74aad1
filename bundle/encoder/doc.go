// Package encoder finds out how a layer was compressed, and compresses it again to the same
// bytes.
//
// A bundle has layers uncompressed, because they then compress better together. A registry
// needs upstream's compressed blob, whose digest is in the image's manifest. The output of an
// encoder depends only on its algorithm, its level and the header that it wrote. So Find
// tries the encoders that builders of images use and compares their output with the blob.
// Most encoders differ in the first kilobytes, so only one of them usually reads the whole
// layer.
package encoder
