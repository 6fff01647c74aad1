// Package lease has Leases: the turn in which control planes restart one after the other, and that of a component that has ended.
package lease
