package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// export reads an image of a local containerd: the OCI image layout that ctr exports. It
// runs ctr, which every containerd comes with, because containerd's client library would
// add 9 MB to the command.
func (r *Reader) export(ctx context.Context, image string) (files, error) {
	ctr, err := exec.LookPath("ctr")
	if err != nil {
		return nil, fault.New(fault.Failure, "containerd's command ctr is not in PATH").Hint("add the directory of ctr to PATH; or export the image where containerd runs: " + r.exportHint(image))
	}
	// Through containerd's transfer service, which is the default since 2.0, ctr may end before
	// it has written everything, without an error. An older ctr does not know --local.
	f, err := r.runExport(ctx, ctr, image, "--local")
	if errors.Is(err, errUnknownFlag) {
		f, err = r.runExport(ctx, ctr, image)
	}
	if err != nil {
		return nil, err
	}
	return readArchive(ctx, r.Cache, "containerd's "+image, f)
}

var errUnknownFlag = errors.New("this version of ctr does not know a flag")

func (r *Reader) runExport(ctx context.Context, ctr, image string, flags ...string) (*os.File, error) {
	args := append([]string{"images", "export"}, flags...)
	args = append(args, "--platform", "linux/"+r.Arch, "-", image)
	if r.Namespace != "" {
		args = append([]string{"--namespace", r.Namespace}, args...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := childprocess.Command(ctx, ctr, args...)
	childprocess.Inherit(c, "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE")
	var message strings.Builder
	c.Stderr = &message
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting ctr: %w", err)
	}
	f, err := r.Cache.Temporary(ctx, out)
	if err != nil {
		cancel()
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait()
		return nil, err
	}
	if err := c.Wait(); err != nil {
		f.Close()
		if strings.Contains(message.String(), "flag provided but not defined") {
			return nil, errUnknownFlag
		}
		return nil, fault.Wrap(fmt.Errorf("ctr images export: %w", ctrError(err, message.String())), fault.Failure, r.hint(message.String(), image))
	}
	return f, nil
}

func ctrError(err error, message string) error {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return errors.New(strings.TrimPrefix(last, "ctr: "))
	}
	return err
}

func (r *Reader) hint(message, image string) string {
	switch {
	case strings.Contains(message, "permission denied"):
		return "run as root, or export the image as root: " + r.exportHint(image)
	case strings.Contains(message, "content digest"):
		return "containerd does not have all layers of the image for linux/" + r.Arch + "; pull it again with ctr images pull --platform linux/" + r.Arch + " " + image
	}
	return "ctr --namespace NAME images list lists the images of a namespace; images of Kubernetes are in k8s.io: --containerd-namespace k8s.io. CONTAINERD_ADDRESS is the socket's path"
}

func (r *Reader) exportHint(image string) string {
	ns := ""
	if r.Namespace != "" {
		ns = "--namespace " + r.Namespace + " "
	}
	return "ctr " + ns + "images export --local --platform linux/" + r.Arch + " app.tar " + image + ", and use --image oci-archive:app.tar"
}
