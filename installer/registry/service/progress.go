package service

import (
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// progressTimeout is for progressSize bytes: a client that reads less is closed. A transfer may take any time.
	progressTimeout, progressSize = time.Minute, 32 << 10
)

// A progressWriter closes the connection of a client that does not read.
type progressWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    *atomic.Int64 // bytes of bodies
}

func newProgressWriter(w http.ResponseWriter, sent *atomic.Int64) *progressWriter {
	p := &progressWriter{w, http.NewResponseController(w), sent}
	p.extend()
	return p
}

// extend gives the next bytes their time. A connection that is closed reports that when it is written to.
func (p *progressWriter) extend() { _ = p.control.SetWriteDeadline(time.Now().Add(progressTimeout)) }

func (p *progressWriter) Write(b []byte) (n int, err error) {
	for {
		p.extend()
		m, err := p.ResponseWriter.Write(b[n:min(n+progressSize, len(b))])
		n += m
		p.sent.Add(int64(m))
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Flush implements http.Flusher.
func (p *progressWriter) Flush() {
	p.extend()
	_ = p.control.Flush()
}

// Unwrap is for http.ResponseController.
func (p *progressWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
