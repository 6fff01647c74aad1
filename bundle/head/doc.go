// Package head knows a bundle file from the outside: the launcher it begins
// with, the two frames around the payload, and the installer that stands near
// the payload's beginning. It is what the launcher needs to start the
// installer, and is kept apart from package bundle because the launcher stands
// uncompressed in every file.
package head
