//go:build !linux || race

package charts

// limitMemory does nothing: only Linux limits the memory that a process allocates.
func limitMemory() error { return nil }
