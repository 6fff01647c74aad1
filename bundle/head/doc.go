// Package head reads the outer structure of a bundle file: the launcher at its
// beginning, the frames around the payload, and the installer at the beginning of the
// payload. The launcher needs only this to start the installer. It is separate from
// package bundle to keep the launcher small, because every file begins with an
// uncompressed copy of the launcher.
package head
