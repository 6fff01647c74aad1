// Package delta makes a bundle from an older one and a small file, the delta. FORMAT.md, section
// Deltas, specifies that file. The result has the same bytes as the bundle of which the delta was
// made, so that its checksum and its signature apply.
//
// A delta has what the older bundle does not have. A changed binary or layer is described as
// copies of the old one, with what to add to each byte: an insertion in a binary moves everything
// after it, and changes only the addresses in between. (This is the idea of Colin Percival's
// bsdiff; the search here is by hashes and needs less memory.) Everything else comes from the
// older bundle and is compressed again.
package delta
