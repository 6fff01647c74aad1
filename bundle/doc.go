// Package bundle is Airlift's file format: one executable with a zstd-compressed
// tar behind it. FORMAT.md specifies it. The package knows neither networks nor
// containerd.
package bundle
