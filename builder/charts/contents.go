package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	archivefiles "helm.sh/helm/v4/pkg/chart/loader/archive"

	"airlift/internal/fault"
)

// maxLinks is the maximum number of symbolic links that are followed in a chart. Links to
// directories with links multiply.
const maxLinks = 1000

// A walker checks the directory of a chart before Helm reads it. Helm follows each link.
type walker struct {
	root  string // without links
	links int
	left  int64 // bytes that archives may unpack to
}

func checkDirectory(dir string) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	return (&walker{root: root, left: archivefiles.MaxDecompressedChartSize}).directory(root, nil)
}

// directory checks a directory. above are the directories that contain it, without links.
func (w *walker) directory(dir string, above []string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if slices.Contains(above, real) {
		return refuseLink("%q: the link is a loop: it leads to the directory %q, which contains it", dir, real)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.entry(filepath.Join(dir, e.Name()), e, append(slices.Clone(above), real)); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(name string, entry fs.DirEntry, above []string) error {
	isDir := entry.IsDir()
	if entry.Type()&fs.ModeSymlink != 0 {
		info, err := w.follow(name)
		if err != nil {
			return err
		}
		isDir = info.IsDir()
	}
	switch {
	case isDir:
		return w.directory(name, above)
	case filepath.Ext(name) == ".tgz" && filepath.Base(filepath.Dir(name)) == "charts":
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return checkArchive(content, &w.left, 0)
	}
	return nil
}

// follow returns the target of a link, which must be in the chart.
func (w *walker) follow(name string) (fs.FileInfo, error) {
	if w.links++; w.links > maxLinks {
		return nil, refuseLink("%q has more than %d links", w.root, maxLinks)
	}
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, refuseLink("%q: the link cannot be followed: %w", name, err)
	}
	if relative, err := filepath.Rel(w.root, target); err != nil || !filepath.IsLocal(relative) {
		return nil, refuseLink("%q: the link leads out of the chart, to %q", name, target)
	}
	return os.Stat(target)
}

func refuseLink(format string, args ...any) error {
	return fault.New(fault.Usage, "chart "+format, args...).Hint(`replace the link by a copy, or package the chart: "helm package CHART" copies what links lead to; name the archive`)
}

// checkArchive checks the archive of a chart and the archives of subcharts in it before Helm reads
// them: Helm reads a link as an empty file. left is how many bytes they may unpack to.
func checkArchive(content []byte, left *int64, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.Usage, "archives of subcharts are nested more than %d deep", maxDepth).Hint("create the archive again: helm package CHART")
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil // Helm reports it
	}
	limited := &io.LimitedReader{R: unzipped, N: *left}
	entries := tar.NewReader(limited)
	for {
		h, err := entries.Next()
		*left = limited.N
		switch {
		case *left <= 0:
			return fault.New(fault.Usage, "it unpacks to more than the maximum of %d MiB", archivefiles.MaxDecompressedChartSize>>20).
				Hint("remove large files from the chart, and create the archive again: helm package CHART")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return nil //nolint:nilerr // Helm reports it
		}
		if err := checkEntry(h, entries, limited, left, depth); err != nil {
			return err
		}
	}
}

func checkEntry(h *tar.Header, entries io.Reader, limited *io.LimitedReader, left *int64, depth int) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
	default:
		return fault.New(fault.Usage, "%q is a link or a special file, which Helm would read as an empty file", h.Name).
			Hint(`create the archive from the chart's directory again: "helm package CHART" copies what links lead to`)
	}
	if path.Ext(h.Name) != ".tgz" || path.Base(path.Dir(h.Name)) != "charts" {
		return nil
	}
	content, err := io.ReadAll(entries)
	if err != nil {
		return nil //nolint:nilerr // Helm reports it
	}
	*left = limited.N
	if err := checkArchive(content, left, depth+1); err != nil {
		return fmt.Errorf("%q: %w", h.Name, err)
	}
	limited.N = *left
	return nil
}
