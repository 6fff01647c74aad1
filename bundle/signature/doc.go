// Package signature signs bundle files and checks their signatures. The signature is a
// file next to the bundle in minisign's format, so that a stock minisign command can check
// a bundle before anything in the bundle runs: https://jedisct1.github.io/minisign/.
//
// All signatures are prehashed (BLAKE2b-512), so a file of any size is read as a stream.
package signature

// Extension is appended to a file's path for the path of its signature, as by minisign.
const Extension = ".minisig"

// Path returns the path of the signature of the file at path.
func Path(path string) string { return path + Extension }
