// Package remote runs commands on other hosts over SSH and copies files to them. Hosts need sshd, a POSIX shell and the
// ordinary commands (dd, wc, sha256sum). A command runs as root: by a login of root, or by sudo.
package remote

import (
	"context"
	"io"
)

// A Conn is a connection to one host. Its methods may be called at once; each opens a session in the same connection.
type Conn interface {
	// Run runs a command as root and waits for its end. Args are given to the host's shell quoted, so each arrives as it
	// is. The environment is root's login environment with LC_ALL=C, and the directory is /.
	//
	// The error is an *ExitError for an exit code other than 0, a *LostError if the connection ended first, and the cause
	// of ctx if it ended. Then the processes of the command have got SIGINT, and SIGTERM 10 s later.
	Run(ctx context.Context, c Command) error
	// Send copies a file to a path on the host, by a temporary file next to it, and compares its sha256 there. It sends
	// only what the host does not have: nothing if the file is in place, and the rest of a copy that was cut. sent is the
	// number of bytes that went over the connection, and progress, if not nil, gets the bytes that are in place.
	Send(ctx context.Context, f File, progress func(inPlace int64)) (sent int64, err error)
	// Close ends all commands.
	Close() error
}

// A Command is a command for the host's root.
type Command struct {
	Args []string
	// Stdin may be nil. Secrets go here, and nowhere else. If it has a method Len, as bytes.Reader and strings.Reader do,
	// it is sent whole, and the end of ctx or of the connection ends the command. Other readers are streams: the end of ctx
	// or of the connection is the end of the stream, and the command must end by itself then.
	Stdin  io.Reader
	Stdout io.Writer // nil: thrown away
	Stderr io.Writer // nil: its last lines are in the error
}

// A File is a file to copy.
type File struct {
	Content io.ReaderAt
	Size    int64
	SHA256  string // hex
	Path    string // absolute
	Mode    uint32 // 0o700
}
