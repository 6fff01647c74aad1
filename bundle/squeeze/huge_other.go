//go:build !linux

package squeeze

func huge[T any]([]T) {}
