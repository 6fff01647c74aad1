// Package flate is the encoder of Go 1.26's compress/flate. A layer that was compressed with it can only be
// compressed again to the same bytes with the same encoder.
package flate
