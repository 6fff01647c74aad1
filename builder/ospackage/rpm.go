package ospackage

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
)

const rpmMagic = "\xed\xab\xee\xdb"

// Limits of rpm for a header: entries, and bytes of their data. The largest packages have some hundred thousand files.
const (
	maxIndex  = 1 << 16
	maxData   = 256 << 20
	maxValues = 1 << 20 // of one entry, and files of a package
)

// Tags of the header, and of the header with signatures.
const (
	tagName, tagVersion, tagRelease, tagEpoch, tagArch, tagSourceRPM       = 1000, 1001, 1002, 1003, 1022, 1044
	tagProvideName, tagProvideFlags, tagProvideVersion                     = 1047, 1112, 1113
	tagRequireFlags, tagRequireName, tagRequireVersion                     = 1048, 1049, 1050
	tagConflictFlags, tagConflictName, tagConflictVersion                  = 1053, 1054, 1055
	tagObsoleteName, tagObsoleteFlags, tagObsoleteVersion                  = 1090, 1114, 1115
	tagDirIndexes, tagBaseNames, tagDirNames                               = 1116, 1117, 1118
	tagFileModes, tagFileDigests, tagFileLinks, tagFileFlags               = 1030, 1035, 1036, 1037
	tagFileUsers, tagFileGroups                                            = 1039, 1040
	sigSize, sigLongSize                                                   = 1000, 270
	sigDSA, sigRSA, sigOpenPGP, sigLegacyPGP, sigLegacyGPG                 = 267, 268, 278, 1002, 1005
	flagLess, flagGreater, flagEqual, flagMissingOK, flagRPMLib      int64 = 2, 4, 8, 1 << 19, 1 << 24
)

// A header is an index of rpm: values by their tags.
type header map[uint32]value

type entry struct{ Tag, Kind, Offset, Count uint32 }

// kindBinary is the kind of a value that is bytes.
const kindBinary = 7

type value struct {
	kind, count uint32
	data        []byte // from its offset to the next value
}

// readRPM reads the lead, which has nothing of use, the header with signatures and the header.
func readRPM(r io.Reader) (*Package, error) {
	var lead [96]byte
	if _, err := io.ReadFull(r, lead[:]); err != nil {
		return nil, errTruncated
	}
	signatures, size, err := readHeader(r)
	if err == nil && size%8 != 0 { // it is padded
		_, err = io.CopyN(io.Discard, r, 8-size%8)
	}
	if err != nil {
		return nil, complete(err)
	}
	h, size, err := readHeader(r)
	if err != nil {
		return nil, complete(err)
	}
	payload, err := io.Copy(io.Discard, r)
	if err != nil {
		return nil, err
	}
	want := signatures.ints(sigSize)
	if len(want) == 0 {
		want = signatures.ints(sigLongSize)
	}
	if len(want) == 1 && want[0] != size+payload {
		return nil, errTruncated
	}
	p, err := fromHeader(h)
	if err != nil {
		return nil, err
	}
	for _, tag := range []uint32{sigOpenPGP, sigRSA, sigDSA, sigLegacyGPG, sigLegacyPGP} {
		if v, ok := signatures[tag]; ok && p.Signature == "" {
			p.Signature = signatureOf(v.bytes())
		}
	}
	return p, nil
}

// complete explains the end of a file in a header.
func complete(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

// readHeader returns a header and its size in bytes.
func readHeader(r io.Reader) (header, int64, error) {
	var intro struct{ Magic, Reserved, Entries, Size uint32 }
	if err := binary.Read(r, binary.BigEndian, &intro); err != nil {
		return nil, 0, err
	}
	if intro.Magic != 0x8eade801 || intro.Entries > maxIndex || intro.Size > maxData {
		return nil, 0, errors.New("it is damaged: it has no header of rpm")
	}
	index := make([]entry, intro.Entries)
	if err := binary.Read(r, binary.BigEndian, index); err != nil {
		return nil, 0, err
	}
	var data bytes.Buffer // it grows with what is there, whatever the size is
	if _, err := io.CopyN(&data, r, int64(intro.Size)); err != nil {
		return nil, 0, err
	}
	// No byte belongs to two values, so all of them together need no more memory than the header.
	slices.SortStableFunc(index, func(a, b entry) int { return cmp.Compare(a.Offset, b.Offset) })
	h := header{}
	for n, e := range index {
		end := intro.Size
		if n+1 < len(index) {
			end = index[n+1].Offset
		}
		switch {
		case e.Offset > intro.Size || end > intro.Size:
			return nil, 0, errors.New("it is damaged: a value of its header is outside of it")
		case e.Offset == end && intro.Size > 0:
			return nil, 0, errors.New("it is damaged: a value of its header is where another one is")
		case e.Kind != kindBinary && e.Count > maxValues:
			return nil, 0, fmt.Errorf("a value of its header has %d parts: more than %d are refused", e.Count, maxValues)
		}
		h[e.Tag] = value{e.Kind, e.Count, data.Bytes()[e.Offset:end]}
	}
	return h, 16 + 16*int64(intro.Entries) + int64(intro.Size), nil
}

// bytes returns a value of the kind binary, or texts in base64.
func (v value) bytes() []byte {
	if v.kind != kindBinary {
		var all []byte
		for _, text := range v.texts() {
			data, _ := base64.StdEncoding.DecodeString(text)
			all = append(all, data...)
		}
		return all
	}
	return v.data[:min(int64(v.count), int64(len(v.data)))]
}

// texts returns a text, or several.
func (v value) texts() (list []string) {
	if v.kind != 6 && v.kind != 8 && v.kind != 9 {
		return nil
	}
	rest := v.data
	for range v.count {
		text, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return list
		}
		list, rest = append(list, string(text)), after
	}
	return list
}

func (h header) text(tag uint32) string {
	if list := h[tag].texts(); len(list) > 0 {
		return list[0]
	}
	return ""
}

func (h header) ints(tag uint32) (list []int64) {
	v := h[tag]
	size := map[uint32]int{3: 2, 4: 4, 5: 8}[v.kind]
	for n := range int(min(v.count, math.MaxInt32)) {
		if size == 0 || (n+1)*size > len(v.data) {
			return list
		}
		part := v.data[n*size : (n+1)*size]
		switch size {
		case 2:
			list = append(list, int64(binary.BigEndian.Uint16(part)))
		case 4:
			list = append(list, int64(binary.BigEndian.Uint32(part)))
		default:
			list = append(list, int64(binary.BigEndian.Uint64(part)))
		}
	}
	return list
}

// relations returns a list of capabilities, whose flags are given to keep.
func (h header) relations(names, flags, versions uint32, keep func(flags int64, name string) bool) (list []relation, err error) {
	name, flag, version := h[names].texts(), h.ints(flags), h[versions].texts()
	if len(name) != len(flag) || len(name) != len(version) || len(name) != int(h[names].count) {
		return nil, errors.New("it is damaged: a list of capabilities in its header is not complete")
	}
	for n := range name {
		if !keep(flag[n], name[n]) {
			continue
		}
		op := ""
		if version[n] != "" {
			op = map[int64]string{flagLess: "<", flagLess | flagEqual: "<=", flagEqual: "=", flagGreater | flagEqual: ">=", flagGreater: ">"}[flag[n]&(flagLess|flagGreater|flagEqual)]
		}
		r := relation{name: name[n], op: op}
		if op != "" {
			r.version = version[n]
		}
		list = append(list, r)
	}
	return list, nil
}

// fromHeader returns the package that a header describes.
func fromHeader(h header) (*Package, error) {
	if h.text(tagSourceRPM) == "" {
		return nil, errors.New("it is a source package")
	}
	p := &Package{Format: RPM, Name: h.text(tagName), Version: h.text(tagVersion) + "-" + h.text(tagRelease), Arch: h.text(tagArch), files: map[string]owned{}}
	if epoch := h.ints(tagEpoch); len(epoch) > 0 && epoch[0] != 0 {
		p.Version = fmt.Sprintf("%d:%s", epoch[0], p.Version)
	}
	p.Source, p.SourceVersion = sourceOf(h.text(tagSourceRPM))
	all := func(int64, string) bool { return true }
	// What rpm itself must be able to do, the host's rpm checks.
	needed := func(flags int64, name string) bool {
		return flags&(flagMissingOK|flagRPMLib) == 0 && !strings.HasPrefix(name, "rpmlib(")
	}
	var errs [4]error
	var requires []relation
	requires, errs[0] = h.relations(tagRequireName, tagRequireFlags, tagRequireVersion, needed)
	p.provides, errs[1] = h.relations(tagProvideName, tagProvideFlags, tagProvideVersion, all)
	p.conflicts, errs[2] = h.relations(tagConflictName, tagConflictFlags, tagConflictVersion, all)
	p.obsoletes, errs[3] = h.relations(tagObsoleteName, tagObsoleteFlags, tagObsoleteVersion, all)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, r := range requires {
		p.requires = append(p.requires, clause{r})
	}
	p.provides = append(p.provides, relation{name: p.Name, op: "=", version: p.Version})
	dirs, indexes, bases := h[tagDirNames].texts(), h.ints(tagDirIndexes), h[tagBaseNames].texts()
	modes, flags, digests, links := h.ints(tagFileModes), h.ints(tagFileFlags), h[tagFileDigests].texts(), h[tagFileLinks].texts()
	users, groups := h[tagFileUsers].texts(), h[tagFileGroups].texts()
	for n, base := range bases {
		if n >= len(indexes) || indexes[n] >= int64(len(dirs)) {
			return nil, errors.New("it is damaged: its list of files is not complete")
		}
		name := path.Join(dirs[indexes[n]], base)
		if n >= len(modes) || n >= len(flags) || n >= len(digests) || n >= len(links) || n >= len(users) || n >= len(groups) {
			p.files[name] = owned{}
			continue
		}
		// As rpm compares them. A ghost is not in the package.
		o := owned{dir: modes[n]&0o170000 == 0o040000, same: fmt.Sprintf("%o %s %s %s%s", modes[n], users[n], groups[n], digests[n], links[n])}
		if flags[n]&flagGhost != 0 {
			o.same = ghost
		}
		p.files[name] = o
	}
	return p, nil
}

// ghost is what packages agree on about a file that is only listed.
const (
	ghost           = "ghost"
	flagGhost int64 = 1 << 6
)

// sourceOf splits the file name of a source package, NAME-VERSION-RELEASE.src.rpm.
func sourceOf(file string) (name, version string) {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(file, ".rpm"), ".src"), ".nosrc")
	parts := strings.Split(name, "-")
	if len(parts) < 3 {
		return name, ""
	}
	return strings.Join(parts[:len(parts)-2], "-"), strings.Join(parts[len(parts)-2:], "-")
}
