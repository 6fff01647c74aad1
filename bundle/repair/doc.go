// Package repair finds the damage in bundle files, and repairs a file with other copies of
// it. It reads files that package bundle refuses.
//
// Everything is compared with a *reference*: an intact trailer, and the digests of the
// payload that match the sha256 in this trailer. Together they determine every byte of the
// file: the launcher by its sha256, the header by the file's size, and the payload by the
// digests of its pieces. So it does not matter which copy a byte comes from.
package repair
