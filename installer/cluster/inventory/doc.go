// Package inventory reads what an upgrade must know of a cluster before it changes anything.
package inventory
