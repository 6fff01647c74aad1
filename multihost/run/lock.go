package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"airlift/fault"
	"airlift/multihost/remote"
)

// A host's lock ends beatLimit after the last byte of the driver, which writes one each beatInterval: so a driver's machine
// without power does not lock the hosts.
const (
	beatInterval = 15 * time.Second
	beatLimit    = time.Minute
)

var errNoAnswer = errors.New("it did not answer")

// held is what "cluster host hold" prints.
type held struct {
	Held  bool      `json:"held"`
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

// lock takes the lock of a host for this driver, until unlock is called or the connection ends.
func (h *Host) lock(ctx context.Context) error {
	in, beats := io.Pipe()
	out, answers := io.Pipe()
	ended := make(chan error, 1)
	conn := h.connection()
	// The lock must outlive ctx: commands end later than it.
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		err := conn.Run(holding, remote.Command{
			Args:  []string{h.installer, "cluster", "host", "hold", "--who", h.site.Who, "--beat", beatLimit.String()},
			Stdin: in, Stdout: answers,
		})
		_ = answers.CloseWithError(errors.Join(err, io.EOF))
		_ = in.Close()
		ended <- err
	}()
	release := func() {
		_ = beats.Close()
		select {
		case <-ended:
		case <-time.After(cleanUpTimeout):
		}
		stop()
	}
	err := h.taken(out, ended)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err != nil {
		_ = beats.Close()
		stop()
		return err
	}
	go beat(holding, beats)
	h.release = release
	return nil
}

// taken waits for the answer of hold.
func (h *Host) taken(out io.Reader, ended <-chan error) error {
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var answer held
	if err != nil || json.Unmarshal(line, &answer) != nil {
		return fault.New(fault.Failure, "locking the host: %w", errors.Join(described(<-ended), errNoAnswer)).Hint("run the same command again")
	}
	if !answer.Held {
		return fault.New(fault.Failure, "another driver changes this host: %s, since %s (%s ago)",
			answer.Who, answer.Since.Format(time.DateTime), time.Since(answer.Since).Round(time.Second)).
			Hint("wait until it has finished, or end it there; a driver that was killed loses the lock at once, and one without power after " + beatLimit.String())
	}
	return nil
}

func beat(ctx context.Context, w io.Writer) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := w.Write([]byte(".")); err != nil {
				return
			}
		}
	}
}

// unlock ends the lock.
func (h *Host) unlock() {
	if h.release != nil {
		h.release()
		h.release = nil
	}
}
