package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"airlift/images/store"
)

// Environment variables with the number of stacks that TestLayersEqualContainerd compares
// on each containerd, and with the first seed.
const (
	stacksEnv = "AIRLIFT_STORE_STACKS"
	seedEnv   = "AIRLIFT_STORE_SEED"
)

// TestLayersEqualContainerd unpacks random stacks of two or three layers, and compares each
// snapshot, inode by inode and with every attribute, with the result of containerd's diff
// service for the same layers. If containerd rejects a layer, Airlift must reject it. The
// bundled containerd can unpack layers before their parents; Debian's cannot.
//
//	AIRLIFT_STORE_STACKS=5000 AIRLIFT_STORE_SEED=1 go test -run TestLayersEqualContainerd ./images/store
func TestLayersEqualContainerd(t *testing.T) {
	stacks, seed := 40, 1
	for env, n := range map[string]*int{stacksEnv: &stacks, seedEnv: &seed} {
		if text := os.Getenv(env); text != "" {
			*n = must(strconv.Atoi(text))
		}
	}
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		d.stop()
		if err := os.MkdirAll(d.path("root"), 0o711); err != nil {
			t.Fatal(err)
		}
		inMemory(t, d.path("root"))
		d.start()
		const atOnce = 50 // so that containerd's database stays small
		refused := 0
		for i := 0; i < stacks; i += atOnce {
			var seeds []uint64
			for n := range min(atOnce, stacks-i) {
				seeds = append(seeds, uint64(seed+i+n))
			}
			refused += compareStacks(t, d, seeds)
			if t.Failed() {
				return
			}
		}
		t.Logf("%d stacks from seed %d: %d are equal, %d are refused by both", stacks, seed, stacks-refused, refused)
		if refused > stacks*2/3 {
			t.Errorf("containerd refuses too many: the stacks show little")
		}
	})
}

// inMemory mounts a tmpfs, if it supports the attributes of images. The result does not
// depend on the disk, but the duration does.
func inMemory(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(dir, "user.note", nil, 0); err != nil { // before Linux 6.6
		t.Logf("on the disk: a tmpfs has no user attributes here (%v)", err)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// compareStacks compares the stacks of the given seeds, and returns how many of them were
// rejected.
func compareStacks(t *testing.T, d *daemon, seeds []uint64) (refused int) {
	t.Helper()
	s := d.connect()
	defer s.Close()
	c := d.client("oracle")
	defer c.Close()
	ctx := t.Context()
	lease, err := c.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	var p imageSet
	images := map[uint64]v1.Image{}
	for _, seed := range seeds {
		img := randomStack(t, seed).image(t, fmt.Sprintf("/%d", seed))
		ref := fmt.Sprintf("registry.example.com/stack:%d", seed)
		oracleErr := unpackWithContainerd(leases.WithLease(ctx, lease.ID), c, d.snapshotter, img)
		if oracleErr == nil {
			images[seed] = img
			p.add(t, ref, img, nil)
			continue
		}
		refused++
		var one imageSet
		one.add(t, ref, img, nil)
		im, err := s.NewImporter(ctx, one.images, store.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := one.feed(ctx, im, one.entries); err == nil {
			t.Errorf("seed %d: imported, containerd says %v\n%s", seed, oracleErr, randomStack(t, seed))
		}
		if err := im.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	importAll(t, s, &p)
	for _, seed := range slices.Sorted(maps.Keys(images)) {
		ours := d.unpacked("k8s.io", images[seed])
		for i, want := range d.unpacked("oracle", images[seed]) {
			if !maps.Equal(ours[i], want) {
				t.Errorf("seed %d: layer %d of\n%s", seed, i, randomStack(t, seed))
				compareTrees(t, ours[i], want)
			}
		}
	}
	if err := s.RemoveImages(ctx, refs(p.images)); err != nil {
		t.Fatal(err)
	}
	if err := c.LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
	return refused
}

// unpackWithContainerd unpacks an image's layers with containerd, as for a pull.
func unpackWithContainerd(ctx context.Context, c *client.Client, snapshotter string, img v1.Image) error {
	sn := c.SnapshotService(snapshotter)
	var chain []digest.Digest
	for _, l := range must(img.Layers()) {
		b := bytes.NewBuffer(nil)
		r := must(l.Uncompressed())
		must(b.ReadFrom(r))
		r.Close()
		desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(b.Bytes()), Size: int64(b.Len())}
		if err := content.WriteBlob(ctx, c.ContentStore(), desc.Digest.String(), b, desc); err != nil {
			return err
		}
		parent := ""
		if len(chain) > 0 {
			parent = identity.ChainID(chain).String()
		}
		chain = append(chain, desc.Digest)
		name := identity.ChainID(chain).String()
		if _, err := sn.Stat(ctx, name); err == nil {
			continue // two stacks begin with the same layers
		}
		mounts, err := sn.Prepare(ctx, "oracle-"+name, parent)
		if err != nil {
			return err
		}
		if _, err = c.DiffService().Apply(ctx, desc, mounts); err == nil {
			err = sn.Commit(ctx, name, "oracle-"+name)
		}
		if err != nil {
			_ = sn.Remove(ctx, "oracle-"+name)
			return err
		}
	}
	return nil
}

// unpacked describes the directories of an image's snapshots: for overlayfs the layer's own
// files, including whiteouts.
func (d *daemon) unpacked(namespace string, img v1.Image) []map[string]string {
	d.t.Helper()
	var trees []map[string]string
	for _, dir := range d.snapshotDirs(namespace, img) {
		trees = append(trees, rawTree(d.t, dir))
	}
	return trees
}

// snapshotDirs returns the directory of each of an image's snapshots, the lowest first.
func (d *daemon) snapshotDirs(namespace string, img v1.Image) (dirs []string) {
	d.t.Helper()
	c := d.client(namespace)
	defer c.Close()
	ctx := d.t.Context()
	sn := c.SnapshotService(d.snapshotter)
	var chain []digest.Digest
	for _, id := range must(img.ConfigFile()).RootFS.DiffIDs {
		chain = append(chain, digest.Digest(id.String()))
		mounts, err := sn.View(ctx, "look", identity.ChainID(chain).String(), snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "test"}))
		if err != nil {
			d.t.Fatal(err)
		}
		dirs = append(dirs, topDir(d.t, mounts))
		if err := sn.Remove(ctx, "look"); err != nil {
			d.t.Fatal(err)
		}
	}
	return dirs
}

// topDir is the highest directory of a read-only mount.
func topDir(t testing.TB, mounts []mount.Mount) string {
	t.Helper()
	if mounts[0].Type == "bind" {
		return mounts[0].Source
	}
	for _, o := range mounts[0].Options {
		if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
			return strings.Split(lower, ":")[0]
		}
	}
	t.Fatalf("no directory in %v", mounts)
	return ""
}

// rawTree is tree for a snapshot's own directory: with the number of links, and without the
// times of files that the unpacking created, such as whiteouts.
func rawTree(t testing.TB, root string) map[string]string {
	t.Helper()
	files := tree(t, root)
	for name := range files {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() && !info.ModTime().Before(began) {
			files[name] = strings.Replace(files[name], info.ModTime().UTC().Format(time.RFC3339Nano), "import", 1)
		}
		files[name] += fmt.Sprintf(" size=%d nlink=%d", info.Size(), info.Sys().(*syscall.Stat_t).Nlink)
		if info.IsDir() { // its size depends on its earlier entries
			files[name] = strings.Replace(files[name], fmt.Sprintf(" size=%d ", info.Size()), " ", 1)
		}
		if info.Mode()&fs.ModeType == 0 || info.IsDir() {
			continue
		}
		// tree lists which names are the same regular file.
		if st := info.Sys().(*syscall.Stat_t); st.Nlink > 1 {
			for _, other := range sortedKeys(files) {
				o, err := os.Lstat(filepath.Join(root, other))
				if err == nil && other < name && os.SameFile(info, o) {
					files[name] += " is=" + other
				}
			}
		}
	}
	return files
}

// A stack is layers on top of each other, the lowest first.
type stack [][]file

func (s stack) image(t testing.TB, command string) v1.Image {
	var layers []v1.Layer
	for _, entries := range s {
		layers = append(layers, rawLayer(t, entries))
	}
	return image(t, command, layers...)
}

// rawLayer is layer without defaults.
func rawLayer(t testing.TB, entries []file) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range entries {
		h := f.Header
		h.Size = int64(len(f.data))
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return tarLayer(t, buf.Bytes())
}

func (s stack) String() string {
	var b strings.Builder
	for i, entries := range s {
		fmt.Fprintf(&b, "layer %d:\n", i)
		for _, f := range entries {
			fmt.Fprintf(&b, "\t%c %q -> %q mode=%o %d:%d dev=%d:%d %q %v %q\n", f.Typeflag, f.Name, f.Linkname, f.Mode, f.Uid, f.Gid,
				f.Devmajor, f.Devminor, f.data[:min(len(f.data), 20)], f.ModTime.UTC().Format(time.RFC3339Nano), f.PAXRecords)
		}
	}
	return b.String()
}

// randomStack returns a stack with few names, so that layers and entries interact: a
// directory that is a link in another layer, or not listed; a file instead of a directory;
// a name twice.
func randomStack(t testing.TB, seed uint64) stack {
	t.Helper()
	g := generator{Rand: rand.New(rand.NewPCG(seed, seed)), kinds: map[string]byte{}}
	s := make(stack, 2+g.IntN(5)/4) // one in five has three
	for i := range s {
		g.layer, g.here = i, map[string]byte{}
		for range 1 + g.IntN(9) {
			s[i] = append(s[i], g.entry())
		}
	}
	return s
}

// A generator creates entries that can be unpacked in most cases: it records what exists,
// and avoids most conflicts.
type generator struct {
	*rand.Rand
	layer       int
	kinds, here map[string]byte // kind by name: in all layers, in this layer
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) name() string {
	name := pick(g, "a", "b", "c", "d")
	for g.IntN(5) < 3 {
		name += "/" + pick(g, "a", "b", "c", "d")
	}
	return name
}

// place returns a name for an entry: all its parents are directories or links, and for a
// whiteout the name does not exist in this layer.
func (g *generator) place(whiteout bool) string {
	for {
		name := g.name()
		if g.IntN(40) == 0 {
			return name
		}
		fits := !whiteout || g.here[name] == 0
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			switch g.kinds[dir] {
			case 0, tar.TypeDir:
			case tar.TypeSymlink: // it may point to a file, or to itself
				fits = fits && g.IntN(3) == 0
			default:
				fits = false
			}
		}
		if fits {
			return name
		}
	}
}

// note records the kind of a name.
func (g *generator) note(name string, kind byte) {
	for _, known := range []map[string]byte{g.kinds, g.here} {
		if kind != tar.TypeDir {
			maps.DeleteFunc(known, func(k string, _ byte) bool { return strings.HasPrefix(k, name+"/") })
		}
		known[name] = kind
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if known[dir] == 0 {
				known[dir] = tar.TypeDir
			}
		}
	}
}

func (g *generator) entry() file {
	f := file{Header: tar.Header{
		Mode: pick(g, int64(0o755), 0o644, 0o700, 0o711, 0, 0o1777, 0o2770, 0o4755, 0o6711),
		Uid:  pick(g, 0, 0, 7, 1000, 65534, 3_000_000), Gid: pick(g, 0, 0, 8, 1000, 65534, 3_000_000),
		ModTime: time.Unix(g.Int64N(1_700_000_000), g.Int64N(1_000_000_000)),
	}}
	f.Name = g.place(false)
	switch n := g.IntN(20); {
	case n < 6:
		f.Typeflag = tar.TypeDir
		f.PAXRecords = g.attributes()
		if g.IntN(10) == 0 {
			f.PAXRecords["SCHILY.xattr.system.posix_acl_default"] = defaultACL
		}
	case n < 11:
		f.Typeflag = tar.TypeReg
		f.PAXRecords = g.attributes()
		f.data = pick(g, "", "one", "another", strings.Repeat("long ", 1000))
		if g.IntN(5) == 0 {
			f.PAXRecords["SCHILY.xattr.security.capability"] = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
		}
	case n < 14:
		f.Typeflag = tar.TypeSymlink
		f.Linkname = pick(g, g.name(), "/"+g.name(), "../"+g.name(), "..", ".", "/", "no/where", "/no/where", "../../../"+g.name())
	case n < 16:
		f.Typeflag = tar.TypeLink
		f.Linkname = g.name()
		var files []string
		for name, kind := range g.here {
			if kind != tar.TypeDir && kind != tar.TypeSymlink && name != f.Name && !strings.HasPrefix(name, f.Name+"/") {
				files = append(files, name)
			}
		}
		if slices.Sort(files); len(files) > 0 && g.IntN(10) > 0 {
			f.Linkname = pick(g, files...)
		} else if g.IntN(10) > 0 {
			f.Typeflag, f.Linkname = tar.TypeFifo, ""
		}
	case n < 18 && g.layer > 0:
		f.Typeflag = tar.TypeReg
		f.Name = g.place(true)
		if g.IntN(3) == 0 {
			f.Name = path.Join(path.Dir(f.Name), ".wh..wh..opq")
			return f
		}
		g.note(f.Name, tar.TypeChar)
		f.Name = path.Join(path.Dir(f.Name), ".wh."+path.Base(f.Name))
		return f
	default:
		f.Typeflag = pick(g, byte(tar.TypeFifo), tar.TypeChar, tar.TypeBlock)
		if f.Typeflag != tar.TypeFifo {
			f.Devmajor, f.Devminor = int64(1+g.IntN(300)), g.Int64N(300)
		}
	}
	g.note(f.Name, f.Typeflag)
	if g.IntN(10) == 0 {
		f.Name = pick(g, "./", "/", "a/../", "a//../", "../") + f.Name
	}
	if f.Typeflag == tar.TypeDir {
		f.Name += pick(g, "", "/")
	}
	return f
}

func (g *generator) attributes() map[string]string {
	records := map[string]string{}
	if g.IntN(3) == 0 {
		records["SCHILY.xattr.user."+pick(g, "note", "other")] = pick(g, "one", "two", "three")
	}
	return records
}

// defaultACL gives new files in a directory other permissions than the umask: user rwx,
// group r-x, others none.
var defaultACL = func() string {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][2]uint16{{1, 7}, {4, 5}, {0x20, 0}} {
		b = binary.LittleEndian.AppendUint16(b, e[0])
		b = binary.LittleEndian.AppendUint16(b, e[1])
		b = binary.LittleEndian.AppendUint32(b, 0xffffffff)
	}
	return string(b)
}()

// A directory that a layer reaches through its own link has the owner and mode from the
// lower layers, and so have its parents.
func TestParentsBehindLink(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		private := func(name string) file {
			return file{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o700, Uid: 1000, Gid: 1000}, ""}
		}
		img := image(t, "/linked", layer(t, private("p/"), private("p/q/"), private("p/q/r/")),
			layer(t, file{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "p/q/r"}, ""}, text("a/f", "in a private directory")))
		var p imageSet
		p.add(t, "registry.example.com/linked:1", img, nil)
		importAll(t, d.connect(), &p)
		got := d.contents("k8s.io", img)
		for _, name := range []string{"p", "p/q", "p/q/r"} {
			if want := "mode=40700 uid=1000 gid=1000 "; !strings.HasPrefix(got[name], want) {
				t.Errorf("%s is %s, want %s", name, got[name], want)
			}
		}
	})
}
