package doctor

import "airlift/installer/redact"

// Redact removes secrets from a text without a known format, such as a message with lines of a log.
func Redact(text []byte) []byte { return redact.Text(text) }
