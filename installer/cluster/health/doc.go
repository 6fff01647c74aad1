// Package health checks components of this host, and waits for them.
package health
