// Package bundle reads and writes Airlift's file format: an executable followed by a
// zstd-compressed tar. FORMAT.md specifies it. The package uses neither the network
// nor containerd.
package bundle
