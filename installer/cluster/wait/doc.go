// Package wait waits for conditions with a limit, and repeats requests while the API server is away.
package wait
