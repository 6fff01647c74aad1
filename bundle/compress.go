package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"airlift/bundle/squeeze"
	"airlift/fault"
)

// newEncoder is the one place that knows how size bytes of a payload are
// compressed. The encoder ends when ctx does.
//
// Measured on the payload of Kubernetes 1.29.15 with one image more, 987 MB, in one
// frame with a window of 128 MiB: Best 158 MB in 701 s of processor time and 2.5 GB of
// memory, Default 171 MB in 224 s and 0.6 GB,
// klauspost/compress at SpeedBestCompression 206 MB in about 40 s.
func newEncoder(ctx context.Context, w io.Writer, size int64, window int, l Level) (io.WriteCloser, error) {
	switch l {
	case Best:
		return startZstd(ctx, w, size, window)
	case Fastest:
		return zstd.NewWriter(w,
			zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(window),
			// Fixed, so that no machine's number of cores is a reason
			// for other bytes.
			zstd.WithEncoderConcurrency(2),
		)
	}
	return squeeze.NewWriter(w, window)
}

// zstdProgram is the reference implementation, which knows slower and better
// ways than the encoder of our own.
const zstdProgram = "zstd"

// bestArguments ask for the most with that window. The number of threads does not
// change the bytes.
func bestArguments(window int) []string {
	return []string{"--ultra", "-22", "--long=" + strconv.Itoa(bits.Len(uint(window))-1), "-T0"}
}

// A zstdProcess is a zstd program that compresses what is written to it.
type zstdProcess struct {
	command  *exec.Cmd
	input    io.WriteCloser
	output   failing
	messages strings.Builder
	wait     func() error // for its end; the same result every time
}

// startZstd starts a zstd program that writes to w. It is told how much it will
// be given, so that it can fit its tables to it.
func startZstd(ctx context.Context, w io.Writer, size int64, window int) (*zstdProcess, error) {
	args := append(bestArguments(window), "--quiet", "--stdout", "--stream-size="+strconv.FormatInt(size, 10))
	p := &zstdProcess{command: exec.CommandContext(ctx, zstdProgram, args...)}
	p.command.Stdout, p.command.Stderr = w, &p.messages
	if _, ok := w.(*os.File); !ok { // else it writes to the file itself
		p.output.Writer = w
		p.command.Stdout = &p.output
	}
	p.wait = sync.OnceValue(p.command.Wait)
	var err error
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	return p, fault.Wrap(p.command.Start(), fault.Failure, "install zstd, or choose the default compression")
}

// failing is a writer that keeps its first error.
type failing struct {
	io.Writer
	err error
}

func (f *failing) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

// Write fails with what the program said, if it ended before its input did.
func (p *zstdProcess) Write(b []byte) (int, error) {
	n, err := p.input.Write(b)
	if err != nil {
		err = errors.Join(p.Close(), err)
	}
	return n, err
}

// Close waits for the program to have written everything.
func (p *zstdProcess) Close() error {
	_ = p.input.Close() // where it fails the program has ended, and that says why
	if err := p.wait(); err != nil {
		if strings.Contains(p.messages.String(), "No space left on device") {
			err = errors.Join(err, unix.ENOSPC)
		}
		if p.output.err != nil { // the program only sees a closed pipe
			err = errors.Join(err, p.output.err)
		}
		return fmt.Errorf("running %s: %w: %s", p.command, err, strings.TrimSpace(p.messages.String()))
	}
	return nil
}
