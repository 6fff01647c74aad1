package atomicfile

// SyncDir does nothing: Windows cannot sync a directory.
func SyncDir(string) error { return nil }
