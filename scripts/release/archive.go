package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"os"
	"path"
	"slices"
	"time"
)

// A file of an archive.
type file struct {
	name    string
	content []byte
	mode    int64
}

func sortFiles(files []file) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
}

// tarGz returns sorted files as a .tar.gz, with owner root and one time for all.
func tarGz(files []file, at time.Time) ([]byte, error) {
	b, err := tarball(files, "", at)
	if err != nil {
		return nil, err
	}
	return compressed(b)
}

// tarball returns sorted files as a tar archive. If prefix is "./", as in a Debian package,
// it also has their directories.
func tarball(files []file, prefix string, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	var directory func(name string) error
	directory = func(name string) error {
		if prefix == "" || made[name] {
			return nil
		}
		made[name] = true
		header := tar.Header{Typeflag: tar.TypeDir, Name: prefix, Mode: 0o755, ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatGNU}
		if name != "." {
			if err := directory(path.Dir(name)); err != nil {
				return err
			}
			header.Name += name + "/"
		}
		return w.WriteHeader(&header)
	}
	for _, f := range files {
		if err := directory(path.Dir(f.name)); err != nil {
			return nil, err
		}
		header := tar.Header{Typeflag: tar.TypeReg, Name: prefix + f.name, Size: int64(len(f.content)), Mode: f.mode, ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatGNU}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// compressed returns content as a gzip file without name and time.
func compressed(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// zipArchive returns sorted files as a .zip.
func zipArchive(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		header := zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		header.SetMode(os.FileMode(f.mode))
		out, err := w.CreateHeader(&header)
		if err != nil {
			return nil, err
		}
		if _, err := out.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// gzipFiles replaces each file by NAME.gz.
func gzipFiles(names []string) error {
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		b, err := compressed(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name+".gz", b, 0o644); err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
