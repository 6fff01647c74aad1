// Package zstdenc writes zstd frames (RFC 8878). For the contents of a bundle
// they are smaller than those of the encoder in github.com/klauspost/compress:
// large binaries, with similar parts that are far apart. It searches the whole
// window for matches and chooses the combination with the fewest bits. A fast
// encoder takes the first good match. Any zstd decoder reads the result.
package zstdenc
