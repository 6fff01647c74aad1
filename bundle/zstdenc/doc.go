// Package zstdenc compresses to the Zstandard format (RFC 8878), slowly and well. Any
// zstd decoder reads the result.
//
// It is for data that is compressed once and copied often, such as binaries and container
// images: large, with similar parts that are far apart. It searches a window of up to
// 128 MiB for matches and then chooses the matches that take the fewest bits ("optimal
// parsing", as in levels 16 to 22 of the zstd command). The encoder in
// github.com/klauspost/compress/zstd is several times faster and its output is larger.
// There is one level; the only option is the window.
//
// # How it works
//
// The input passes in blocks of 128 KiB through three stages, in three goroutines:
//
//  1. Writer.Write copies it to a ring buffer of two windows (ring.go).
//  2. A finder looks up matches for every byte in two hash tables (find.go).
//  3. A parser chooses literals and matches: the path through the block whose price, the
//     estimated number of bits, is the lowest (parse.go, price.go). A blockWriter encodes
//     them (block.go, codes.go, fse.go; Huffman codes are from klauspost/compress/huff0).
//
// The result depends only on the input and the window, not on timing, on the number of
// processors or on the sizes of the writes.
//
// # Which part of the format it writes
//
// One frame per Writer. All numbers are sections of RFC 8878.
//
//   - Frame header (3.1.1.1): a window descriptor (3.1.1.1.2) with a power of two. No
//     content size, because the Writer does not know it in advance. No single segment, no
//     dictionary.
//   - Content checksum (3.1.1): always.
//   - Blocks (3.1.1.2): compressed blocks, and raw blocks where a compressed block would
//     be larger. No RLE blocks: a compressed block with one sequence replaces them.
//   - Literals (3.1.1.3.1): raw, RLE, compressed with one or four streams, and treeless,
//     which use the previous Huffman tree again. Huffman trees as huff0 writes them (4.2.1).
//   - Sequences (3.1.1.3.2): each of the three codes in FSE_Compressed_Mode with a table
//     of its own (4.1.1), or in RLE_Mode. Never Predefined_Mode or Repeat_Mode.
//   - Repeat offsets (3.1.1.5): all three, also their other meaning after no literals.
//
// No skippable frames (3.1.2) and no dictionaries (5).
//
// # Tests
//
// The normal tests compare inputs of every kind with what two decoders return: the zstd
// command and klauspost/compress. TestDifferential does so for as many bytes as wanted,
// half of them from files:
//
//	go test -tags compare ./bundle/zstdenc -run TestDifferential -v -timeout 0 -bytes 10000000000 -seed 1 -data /usr,/var/lib
//
// FuzzWriter varies the input, the window and the sizes of the writes:
//
//	go test ./bundle/zstdenc -run '^$' -fuzz FuzzWriter -fuzztime 1h -fuzzminimizetime 5x
package zstdenc
