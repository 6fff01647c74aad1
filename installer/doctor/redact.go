package doctor

import "airlift/installer/redact"

// Redact takes secrets out of a text that is not a file of a known form: a message, with lines
// of a log.
func Redact(text []byte) []byte { return redact.Text(text) }
