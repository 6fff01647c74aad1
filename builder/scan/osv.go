package scan

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"airlift/internal/fault"
)

// A record is what one file of a database states about a vulnerability: https://ossf.github.io/osv-schema/
type record struct {
	SchemaVersion string         `json:"schema_version"`
	ID            string         `json:"id"`
	Modified      time.Time      `json:"modified"`
	Withdrawn     string         `json:"withdrawn"`
	Aliases       []string       `json:"aliases"`
	Upstream      []string       `json:"upstream"`
	Summary       string         `json:"summary"`
	Severity      []rating       `json:"severity"`
	Affected      []affected     `json:"affected"`
	Database      map[string]any `json:"database_specific"`
}

type rating struct{ Type, Score string }

type affected struct {
	Package   struct{ Ecosystem, Name string } `json:"package"`
	Severity  []rating                         `json:"severity"`
	Ranges    []affectedRange                  `json:"ranges"`
	Versions  []string                         `json:"versions"`
	Ecosystem specific                         `json:"ecosystem_specific"`
}

// A specific is what databases add for their own ecosystem: Debian's urgency, and of Go the vulnerable packages and the versions of releases.
type specific struct {
	Urgency string
	Imports []struct{ GOOS, GOARCH []string }
	// Custom are ranges of releases whose versions are no versions of the module.
	Custom []affectedRange
}

// UnmarshalJSON reads what has the known form: each database fills in this part as it likes.
func (s *specific) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	for name, into := range map[string]any{"urgency": &s.Urgency, "imports": &s.Imports, "custom_ranges": &s.Custom} {
		if json.Unmarshal(fields[name], into) != nil {
			reflect.ValueOf(into).Elem().SetZero()
		}
	}
	return nil
}

// elsewhere reports whether the vulnerable packages are only built for other platforms than this one, "linux/amd64"; "" is any.
func (s *specific) elsewhere(platform string) bool {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok || len(s.Imports) == 0 {
		return false
	}
	for _, i := range s.Imports {
		if (len(i.GOOS) == 0 || slices.Contains(i.GOOS, system)) && (len(i.GOARCH) == 0 || slices.Contains(i.GOARCH, arch)) {
			return false
		}
	}
	return true
}

type affectedRange struct {
	Type   string  `json:"type"`
	Events []event `json:"events"`
}

type event struct {
	Introduced   string `json:"introduced"`
	Fixed        string `json:"fixed"`
	LastAffected string `json:"last_affected"`
	Limit        string `json:"limit"`
}

// at returns the version and the kind of an event.
func (e event) at() (version, kind string) {
	switch {
	case e.Introduced != "":
		return e.Introduced, "introduced"
	case e.Fixed != "":
		return e.Fixed, "fixed"
	case e.LastAffected != "":
		return e.LastAffected, "last_affected"
	case e.Limit != "":
		return e.Limit, "limit"
	}
	return "", ""
}

// Limits against hostile databases: bytes of a record, and how many times as large as its zip a database may be.
const (
	maxRecord = 32 << 20
	maxRatio  = 200
)

// A Source is what the database has of one ecosystem, in all releases.
type Source struct {
	Ecosystem string    `json:"ecosystem"`
	Records   int       `json:"records"`
	Withdrawn int       `json:"withdrawn"` // that are left out
	Newest    time.Time `json:"newest"`    // when a record was last changed
}

type packageKey struct{ ecosystem, name string }

// A database has the records about the packages of a bundle.
type database struct {
	wanted     map[packageKey]bool
	seen       map[string]version // by ID
	kept       map[string]*record // by ID
	ecosystems map[string]bool    // with their releases, which a record names
	sources    map[string]*Source // by family
	files      int
}

type version struct {
	modified  time.Time
	sum       [sha256.Size]byte
	withdrawn bool
	families  []string
}

// load reads databases: zips of OSV, directories with zips, and directories with unpacked records.
func load(ctx context.Context, paths []string, wanted map[packageKey]bool) (*database, error) {
	d := &database{wanted: wanted, seen: map[string]version{}, kept: map[string]*record{}, ecosystems: map[string]bool{}, sources: map[string]*Source{}}
	for _, path := range paths {
		before := d.files
		if err := d.path(ctx, path); err != nil {
			return nil, fmt.Errorf("reading the database %q: %w", path, err)
		}
		if d.files == before {
			return nil, fault.New(fault.Usage, "the database %q has no records", path).Hint("give --db a file all.zip of OSV, or a directory with such files")
		}
	}
	return d, nil
}

// path reads a file, or all zips and records in a directory.
func (d *database) path(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return d.file(ctx, path)
	}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err != nil || entry.IsDir() || ext != ".zip" && ext != ".json" {
			return err
		}
		return d.file(ctx, path)
	})
}

func (d *database) file(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if filepath.Ext(path) == ".json" {
		return d.add(ctx, path, f)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, info.Size())
	if errors.Is(err, zip.ErrFormat) {
		return fmt.Errorf("%q is not a zip file, or not all of it", path)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	unpacked := uint64(0)
	for _, e := range z.File {
		if unpacked += min(e.UncompressedSize64, maxRecord+1); unpacked > maxRatio*uint64(info.Size()) {
			return fmt.Errorf("%q has %d bytes and unpacks to more than %d times as much", path, info.Size(), maxRatio)
		}
	}
	for _, e := range z.File {
		if e.FileInfo().IsDir() || filepath.Ext(e.Name) != ".json" {
			continue
		}
		r, err := e.Open()
		if err == nil {
			err = d.add(ctx, e.Name, r)
			r.Close()
		}
		if err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
	}
	return nil
}

// add reads a record.
func (d *database) add(ctx context.Context, name string, r io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(r, maxRecord+1))
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if len(content) > maxRecord {
		return fmt.Errorf("%q has more than %d bytes", name, maxRecord)
	}
	var rec record
	if err := json.Unmarshal(content, &rec); err != nil {
		return fmt.Errorf("%q is not a record of OSV: %w", name, err)
	}
	switch major, _, _ := strings.Cut(rec.SchemaVersion, "."); {
	case rec.ID == "" || rec.Modified.IsZero():
		return fmt.Errorf("%q is not a record of OSV: it has no id or no time of its change", name)
	case major != "" && major != "0" && major != "1":
		return fault.New(fault.Failure, "%q has version %s of OSV's format, which this release does not know", name, rec.SchemaVersion).Hint("use a newer release of bundle")
	}
	d.files++
	return d.keep(&rec, sha256.Sum256(content))
}

// keep adds a record. Of two with the same ID, the one that was changed last is kept.
func (d *database) keep(rec *record, sum [sha256.Size]byte) error {
	is := version{modified: rec.Modified, sum: sum, withdrawn: rec.Withdrawn != ""}
	for _, a := range rec.Affected {
		if f := family(a.Package.Ecosystem); f != "" && !slices.Contains(is.families, f) {
			is.families = append(is.families, f)
		}
	}
	if was, ok := d.seen[rec.ID]; ok {
		if was.sum == sum || was.modified.After(is.modified) {
			return nil
		}
		if was.modified.Equal(is.modified) {
			return fmt.Errorf("the record %q is there twice, with different contents of the same time", rec.ID)
		}
		d.count(was, -1)
		delete(d.kept, rec.ID)
	}
	d.seen[rec.ID] = is
	d.count(is, 1)
	for _, a := range rec.Affected {
		d.ecosystems[a.Package.Ecosystem] = true
		if d.wanted[packageKey{a.Package.Ecosystem, a.Package.Name}] && rec.Withdrawn == "" {
			d.kept[rec.ID] = rec
		}
	}
	return nil
}

func (d *database) count(v version, n int) {
	for _, f := range v.families {
		s := d.sources[f]
		if s == nil {
			s = &Source{Ecosystem: f}
			d.sources[f] = s
		}
		if v.withdrawn {
			s.Withdrawn += n
		} else {
			s.Records += n
		}
		if v.modified.After(s.Newest) {
			s.Newest = v.modified
		}
	}
}

// word returns a text in a part of a record that each database fills in as it likes.
func word(m map[string]any, name string) string {
	text, _ := m[name].(string)
	return text
}
