package interrupt

import "io"

// An Input is a reader that keeps its error. A parser or an encoder that reads from it may return
// another error, or a result as if the input had ended.
type Input struct {
	io.Reader
	Err error // the last one; not io.EOF
}

func (i *Input) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil && err != io.EOF {
		i.Err = err
	}
	return n, err
}
