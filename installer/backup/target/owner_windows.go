package target

import "io/fs"

// checkOwner accepts all files: files of Windows have access control lists instead of an owner and a mode.
func checkOwner(string, fs.FileInfo) error { return nil }
