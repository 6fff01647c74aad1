// Package squeeze writes zstd frames (RFC 8878) that are smaller than those of
// the encoder in github.com/klauspost/compress, for what a bundle is made of:
// large programs that resemble each other from far away. It looks for matches in
// the whole window and chooses among them by what each way costs in bits, where
// a quick encoder takes the first good one. Any zstd decoder reads the result.
package squeeze
