// Package lease has Leases: the Lease by which control planes restart one after the other, and the
// Lease of a component that has ended.
package lease
