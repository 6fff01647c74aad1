//go:build compare

package zstdenc

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var (
	compareFlag  = flag.String("compare", "", "TestCompare: the file to compress")
	encodersFlag = flag.String("encoders", "", "TestCompare: only encoders that match this regular expression")
)

// goEncoders are the encoders in Go. A process of its own runs each.
var goEncoders = map[string]func(io.Writer) (io.WriteCloser, error){
	"zstdenc, 8 MiB":             func(w io.Writer) (io.WriteCloser, error) { return NewWriter(w, 8<<20) },
	"zstdenc, 128 MiB":           func(w io.Writer) (io.WriteCloser, error) { return NewWriter(w, 128<<20) },
	"klauspost fastest, 128 MiB": klauspost(zstd.SpeedFastest),
	"klauspost default, 128 MiB": klauspost(zstd.SpeedDefault),
	"klauspost better, 128 MiB":  klauspost(zstd.SpeedBetterCompression),
	"klauspost best, 128 MiB":    klauspost(zstd.SpeedBestCompression),
}

func klauspost(level zstd.EncoderLevel) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) {
		return zstd.NewWriter(w, zstd.WithEncoderLevel(level), zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
	}
}

// encoders lists the rows of the table.
var encoders = []string{
	"zstdenc, 8 MiB", "zstdenc, 128 MiB",
	"klauspost fastest, 128 MiB", "klauspost default, 128 MiB", "klauspost better, 128 MiB", "klauspost best, 128 MiB",
	"zstd -3", "zstd -6", "zstd -9", "zstd -12", "zstd -15", "zstd -17", "zstd -19",
	"zstd -3 --long=27", "zstd -9 --long=27", "zstd -12 --long=27", "zstd -15 --long=27", "zstd -17 --long=27", "zstd -19 --long=27",
	"zstd --ultra -22 --long=27",
}

// childVariable has the name of the Go encoder that a child process runs, or decodeChild.
const (
	childVariable = "ZSTDENC_CHILD"
	decodeChild   = "decode"
)

// TestCompare compresses a file with each encoder and decompresses the results. It prints a
// table. Times are the processor's, user and system together.
func TestCompare(t *testing.T) {
	if name := os.Getenv(childVariable); name != "" {
		runChild(t, name)
		return
	}
	if *compareFlag == "" {
		t.Fatal("give a file with -compare")
	}
	only, err := regexp.Compile(*encodersFlag)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(*compareFlag)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s: %d bytes\n", *compareFlag, info.Size())
	fmt.Println("| encoder | size | ratio | time | memory | zstd -d | memory | klauspost's decoder | memory |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, name := range encoders {
		if !only.MatchString(name) {
			continue
		}
		packed := filepath.Join(t.TempDir(), "packed.zst")
		var encode usage
		if args, ok := strings.CutPrefix(name, "zstd "); ok {
			encode = run(t, *compareFlag, packed, "", "zstd", append(strings.Fields(args), "-T1", "-q", "-c")...)
		} else {
			encode = run(t, *compareFlag, packed, name, os.Args[0], "-test.run=^TestCompare$")
		}
		out, err := os.Stat(packed)
		if err != nil {
			t.Fatal(err)
		}
		plain := filepath.Join(t.TempDir(), "plain")
		decode := run(t, packed, os.DevNull, "", "zstd", "-d", "--long=27", "-q", "-c")
		decodeGo := run(t, packed, plain, decodeChild, os.Args[0], "-test.run=^TestCompare$")
		if b, err := exec.Command("cmp", plain, *compareFlag).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, b)
		}
		fmt.Printf("| %s | %d | %.3f | %.1f s | %d MB | %.2f s | %d MB | %.2f s | %d MB |\n", name, out.Size(),
			float64(out.Size())/float64(info.Size()), encode.seconds, encode.megabytes,
			decode.seconds, decode.megabytes, decodeGo.seconds, decodeGo.megabytes)
	}
}

// A usage is what a process needed: processor time and the most memory.
type usage struct {
	seconds   float64
	megabytes int64
}

// run runs a command. If child is not empty, the command is this test.
func run(t *testing.T, in, out, child, command string, args ...string) usage {
	t.Helper()
	stdin, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	// The tests of a package print to standard output, so the result has file descriptor 3.
	stdout, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	cmd := exec.Command(command, args...)
	cmd.Stdin = stdin
	var messages strings.Builder
	cmd.Stderr = &messages
	if child == "" {
		cmd.Stdout = stdout
	} else {
		cmd.Stdout = &messages
		cmd.Env = append(os.Environ(), childVariable+"="+child)
		cmd.ExtraFiles = []*os.File{stdout}
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, messages.String())
	}
	r := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage{(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), r.Maxrss * 1024 / 1e6}
}

// runChild compresses standard input with a Go encoder, or decompresses it.
func runChild(t *testing.T, name string) {
	out := os.NewFile(3, "result")
	if name == decodeChild {
		// As the installer decodes a bundle.
		d, err := zstd.NewReader(os.Stdin, zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if _, err := io.Copy(out, d); err != nil {
			t.Fatal(err)
		}
		return
	}
	e, err := goEncoders[name](out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{e}, struct{ io.Reader }{os.Stdin}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
