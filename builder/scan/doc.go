// Package scan finds known vulnerabilities of the software in a bundle, without a network: in databases
// of OSV's format that were carried in.
package scan
