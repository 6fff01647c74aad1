package interrupt

// A Meter is a writer that counts bytes, for an io.TeeReader or an io.MultiWriter. It may be nil.
type Meter func(n int64)

func (m Meter) Write(p []byte) (int, error) {
	if m != nil {
		m(int64(len(p)))
	}
	return len(p), nil
}
