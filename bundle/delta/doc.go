// Package delta makes a bundle from an older one and a small file, the delta. FORMAT.md, section
// Deltas, specifies that file. The result has the same bytes as the newer bundle, so its checksum
// and signature apply.
//
// A delta contains only the contents that the older bundle does not have. It describes a changed
// binary or layer as copies from the old one, with a number to add to each byte. This is small,
// because an insertion in a binary moves everything after it, and changes only the addresses in
// between. (This is the idea of Colin Percival's bsdiff; the search here is by hashes and needs
// less memory.) Everything else comes from the older bundle and is compressed again.
package delta
