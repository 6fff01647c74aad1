//go:build !linux

package zstdenc

// useHugePages does nothing: only Linux has this request.
func useHugePages[T any]([]T) {}
