package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"sync/atomic"

	"airlift/internal/progress"
)

// sendFunctions are for both scripts of Send. Hosts have one of three commands for sha256.
const sendFunctions = `size() { wc -c <"$1" | tr -d ' '; }
sum() { { sha256sum <"$1" || openssl dgst -sha256 <"$1" || busybox sha256sum <"$1"; } 2>/dev/null | sed 's/.*= *//; s/ .*//'; }
`

// findScript prints "in place", or the size and the sha256 of the partial copy, and the free KiB. Partial copies of other
// content go. A user who can write to the directory could put a link there for root to follow.
const findScript = `( umask 077
[ ! -d "$file" ] || { echo "is a directory" >&2; exit 1; }
mkdir -p "$dir" || exit
others= ; set -- $(ls -ldn "$dir/")
case $1 in ?????w*|????????w*) others=can ;; esac
[ "$3" = 0 ] || [ "$3" = "$(id -u)" ] && [ -z "$others" ] || { echo "users other than root can write to $dir" >&2; exit 1; }
if [ -f "$file" ] && [ "$(size "$file")" = "$want_size" ] && [ "$(sum "$file")" = "$want_sum" ]; then
  chmod "$mode" "$file" && echo in place; exit
fi
for old in "$partials"*; do [ "$old" = "$partial" ] || rm -f "$old"; done
[ -f "$partial" ] || : >"$partial" || exit
set -- $(df -Pk "$dir" | tail -n 1)
echo "$(size "$partial") $(sum "$partial") $4" )`

// receiveScript appends its input to the partial copy, and gives it its name. sync without a file is for hosts whose sync
// has no arguments. In a running binary the rename gives the new content to the next start.
const receiveScript = `( [ "$from" != 0 ] || : >"$partial" || exit
cat >>"$partial" || exit
[ "$(size "$partial")" = "$want_size" ] || { echo "the copy was cut" >&2; exit 1; }
[ "$(sum "$partial")" = "$want_sum" ] || { rm -f "$partial"; echo "the copy has another sha256: the file changed meanwhile, or a disk is damaged" >&2; exit 1; }
chmod "$mode" "$partial" && { sync "$partial" 2>/dev/null || sync; } && mv -f "$partial" "$file" && { sync "$dir" 2>/dev/null || sync; } )`

func (c *conn) Send(ctx context.Context, f File, progress func(inPlace int64)) (int64, error) {
	if progress == nil {
		progress = func(int64) {}
	}
	from, inPlace, err := c.find(ctx, f)
	if err != nil {
		return 0, err
	}
	progress(from)
	if inPlace {
		return 0, nil
	}
	var sent atomic.Int64
	rest := io.TeeReader(io.NewSectionReader(f.Content, from, f.Size-from), counter(func(n int) { progress(from + sent.Add(int64(n))) }))
	err = c.script(ctx, f, fmt.Sprintf("from=%d\n%s", from, receiveScript), rest, -1, io.Discard)
	return sent.Load(), err
}

// find returns how many bytes of the file the host has.
func (c *conn) find(ctx context.Context, f File) (from int64, inPlace bool, err error) {
	found := &tail{}
	if err := c.script(ctx, f, findScript, nil, 0, found); err != nil {
		return 0, false, err
	}
	if found.String() == "in place" {
		return f.Size, true, nil
	}
	var size, free int64
	var sum string
	if _, err := fmt.Sscan(found.String(), &size, &sum, &free); err != nil {
		return 0, false, c.refused(Disk, "try it on the host: df -Pk "+quote(path.Dir(f.Path)), "looking for %s: unexpected output %q: %w", f.Path, found.String(), err)
	}
	if 0 <= size && size <= f.Size {
		prefix := sha256.New()
		if _, err := io.Copy(prefix, io.NewSectionReader(f.Content, 0, size)); err != nil {
			return 0, false, fmt.Errorf("reading the file for %s: %w", f.Path, err)
		}
		if hex.EncodeToString(prefix.Sum(nil)) == sum {
			from = size
		}
	}
	// A partial copy with other content is truncated before the host receives.
	if need, have := f.Size-from, free<<10+size-from; need > have {
		return 0, false, c.refused(Disk, "free space on the host, or give it another disk: df -h "+quote(path.Dir(f.Path)),
			"copying %s: it needs %s, and %s has %s free", f.Path, progress.Bytes(need), path.Dir(f.Path), progress.Bytes(have))
	}
	return from, false, nil
}

// script runs one of the scripts.
func (c *conn) script(ctx context.Context, f File, script string, input io.Reader, length int64, output io.Writer) error {
	partials := path.Join(path.Dir(f.Path), "."+path.Base(f.Path)+".partial-")
	variables := fmt.Sprintf("file=%s dir=%s partials=%s partial=%s want_size=%d want_sum=%s mode=%o\n", quote(f.Path), quote(path.Dir(f.Path)),
		quote(partials), quote(partials+f.SHA256), f.Size, quote(f.SHA256), f.Mode)
	messages := &tail{}
	code, err := c.execute(ctx, c.root, job{command: variables + sendFunctions + script, input: input, length: length, stdout: output, stderr: messages})
	if err != nil {
		return fmt.Errorf("copying %s: %w", f.Path, err)
	}
	if code != 0 {
		dir := quote(path.Dir(f.Path))
		return c.refused(Disk, "see the directory and its disk on the host: ls -ld "+dir+"; df -h "+dir, "copying %s: %s", f.Path, messages)
	}
	return nil
}

// A counter counts what is written to it.
type counter func(n int)

func (c counter) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}
