//go:build race

package bundle

// raceDetector reports whether the tests run with the race detector, which makes the encoder
// of the default level twenty times slower.
const raceDetector = true
