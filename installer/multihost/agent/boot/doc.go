// Package boot makes this host a node from a seed: what `cluster apply` would do over SSH, the host does itself. It runs the commands of
// package seed one after the other, and records after each how far it is, so that a power cut at any moment only repeats a command.
package boot
