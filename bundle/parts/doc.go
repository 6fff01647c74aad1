// Package parts splits a file into parts for drives that cannot hold it as one file, and
// reads parts as one file again.
//
// The parts of FILE are FILE.001, FILE.002 and so on; all but the last have the same size.
// FILE.sha256 lists the sha256 of each part and of FILE, in the format of sha256sum. So cat and
// sha256sum are all that is needed to join and check them.
package parts
