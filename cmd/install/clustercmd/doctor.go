package clustercmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/doctor"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/run"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newDoctor(in *site) *cobra.Command {
	since, logsOf := 24*time.Hour, []string(nil)
	cmd := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Write one archive with the doctor's archive of every host",
		Long: `Write one archive for a remote engineer, with a directory for each host. It has what 'doctor'
writes there, redacted: ./install docs status lists what is kept. A host that does not
answer has the reason in its place. Look at the archive before you send it.

Logs of pods in other namespaces than kube-system and kube-flannel are gathered only
with --logs-of. They are not redacted: only
PEM blocks, private keys, tokens and users in URLs are hidden, and no passwords. They are in
the directory logs-not-redacted of each host.

FILE ends with .tar.gz; the default is doctor-CLUSTER-TIME.tar.gz in the current directory.

Exit codes: 0 the archive has every host; 1 a host is missing, or it could not be written.`,
		Example: "  ./install cluster doctor\n  ./install cluster doctor site.tar.gz --since 2h\n  ./install cluster doctor --logs-of monitoring",
		Args:    output.AtMostOneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := doctor.CheckNamespaces(logsOf); err != nil {
				return err
			}
			name := ""
			return in.gathered(cmd, cmd.ErrOrStderr(), func(s *opened) error {
				name = s.fileName(args, "doctor", ".tar.gz")
				if !strings.HasSuffix(name, ".tar.gz") {
					return fault.New(fault.Usage, "the archive's name %q must end with .tar.gz", name).Hint("for example: ./install cluster doctor site.tar.gz")
				}
				return checkOutput(name)
			}, func(ctx context.Context, s *opened) error {
				archives, err := s.doctor(ctx, since, logsOf)
				if s.Site.Display.Clear(); ctx.Err() != nil {
					return context.Cause(ctx)
				}
				size, written := s.writeArchive(name, archives)
				if written == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "The archive is %s, %s. Look at it before you send it: tar -tf %s\n", name, progress.Bytes(size), fault.Word(name))
				}
				return errors.Join(written, err)
			})
		},
	}
	cmd.Flags().DurationVar(&since, "since", since, "how far back logs go")
	cmd.Flags().StringArrayVar(&logsOf, "logs-of", nil, "also gather the logs of the site's own pods in this `NAMESPACE`, which are not redacted, but for PEM blocks, private keys, tokens and users in URLs; it can be repeated")
	return cmd
}

// fileName returns the file that the user named, or else one with the names of the cluster and of the time.
func (s *opened) fileName(args []string, what, suffix string) string {
	if len(args) == 1 {
		return args[0]
	}
	return fmt.Sprintf("%s-%s-%s%s", what, s.Site.Cluster.Name, time.Now().UTC().Format("20060102T150405Z"), suffix)
}

// doctor returns the archive of each host that answered, and the errors of the others.
func (s *opened) doctor(ctx context.Context, since time.Duration, logsOf []string) (map[string][]byte, error) {
	return run.Ask(ctx, s.Site, "doctor", s.Site.Hosts(), func(ctx context.Context, h *run.Host) ([]byte, error) {
		args := []string{"doctor", "-", "--since", since.String()}
		for _, namespace := range logsOf {
			args = append(args, "--logs-of", namespace)
		}
		out, err := h.Installer(ctx, args...)
		if err == nil {
			err = copyArchive(tar.NewWriter(io.Discard), h.Name, out) // a damaged one must not spoil the others
		}
		h.Err = err
		return out, err
	})
}

// writeArchive writes the archives of the hosts to one file.
func (s *opened) writeArchive(name string, archives map[string][]byte) (size int64, err error) {
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	w := tar.NewWriter(compressed)
	for _, h := range s.Site.Hosts() {
		if h.Err != nil {
			text := []byte(h.Err.Error() + "\n")
			err = writeEntry(w, h.Name+"/no-archive.txt", text)
		} else {
			err = copyArchive(w, h.Name, archives[h.Name])
		}
		if err != nil {
			return 0, fmt.Errorf("the archive of %s: %w", h.Name, err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return 0, err
	}
	return int64(b.Len()), filesystem.WriteOutput(name, b.Bytes(), 0o600)
}

func writeEntry(w *tar.Writer, name string, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// maxArchive is how much an archive may have: twice the doctor's limit for all files.
const maxArchive = 128 << 20

// copyArchive copies the files of an archive to a directory, in the place of its own one. A small file may become a large one.
func copyArchive(w *tar.Writer, dir string, archive []byte) error {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("reading the archive of the host: %w", err)
	}
	r := tar.NewReader(io.LimitReader(compressed, maxArchive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive of the host: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		_, rest, found := strings.Cut(path.Clean("/" + h.Name)[1:], "/")
		if !found {
			rest = path.Base(h.Name)
		}
		own := &tar.Header{Name: dir + "/" + rest, Mode: 0o600, Size: h.Size, ModTime: h.ModTime, Typeflag: tar.TypeReg}
		if err := w.WriteHeader(own); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("reading the archive of the host: %w", err)
		}
	}
}

// textOf prints the output of each host below its name.
func textOf(out io.Writer, hosts []*run.Host, texts map[string][]byte) {
	for i, h := range hosts {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s\n%s\n", h.Name, strings.TrimRight(string(texts[h.Name]), "\n"))
	}
}
