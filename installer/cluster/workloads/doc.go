// Package workloads waits for pods, restarts and drains them, and checks what serves them.
package workloads
