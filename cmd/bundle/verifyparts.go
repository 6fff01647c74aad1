package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/bundle/parts"
	"airlift/bundle/repair"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// isPart reports whether path names a part or the list of a split bundle, and returns the
// path of the whole file. A whole bundle may also have such a name.
func isPart(path string) (base string, ok bool) {
	base, number, ok := parts.Parse(path)
	if !ok {
		return "", false
	}
	if f, err := os.Open(path); err == nil && number > 0 {
		defer f.Close()
		if _, _, err := head.Read(f, path); err == nil {
			_, err := os.Stat(parts.ListPath(base))
			return base, err == nil
		}
	}
	return base, true
}

// verifyParts checks the parts that args name: parts of one file, or its list.
func verifyParts(cmd *cobra.Command, args []string, key *signatureFlags) error {
	base, all, numbers := "", false, map[int]bool{}
	for _, path := range args {
		b, n, ok := parts.Parse(path)
		if b = filepath.Clean(b); !ok || base != "" && b != base {
			return fault.New(fault.Usage, "%q is not a part of %s", path, base).Hint("run it once for each file")
		}
		base = b
		numbers[n] = true
		all = all || n == 0
	}
	set, err := parts.Open(base)
	if err != nil {
		return err
	}
	defer set.Close()
	for n := range numbers {
		if n > len(set.Parts) {
			return fault.New(fault.Bundle, "%s does not exist", parts.Path(base, n)).Hint("name an existing part")
		}
	}
	wanted := slices.Clone(set.Parts)
	if !all {
		wanted = slices.DeleteFunc(wanted, func(p parts.Part) bool { return !numbers[p.Number] })
	}
	whole := len(wanted) == len(set.Parts)
	if key.value != "" && !whole {
		return fault.New(fault.Usage, "the signature is of the whole file, so --key needs all parts").Hint("bundle verify " + fault.Word(parts.ListPath(base)) + " --key " + fault.Word(key.value))
	}
	display := progress.New(cmd.ErrOrStderr())
	defer display.Close()
	out := cmd.OutOrStdout()
	content, hash := io.NewSectionReader(set, 0, set.Size()), signature.NewHash()
	f, openErr := bundle.OpenAt(set, set.Size(), base)
	if openErr == nil {
		content = f.Reader()
	}
	if err := checkParts(cmd.Context(), out, display, set, wanted, content, hash); err != nil || !whole {
		return err
	}
	if openErr != nil {
		return fmt.Errorf("reading the parts as one file: %w", openErr)
	}
	if key.value != "" {
		if key.comment, err = hash.Verify(base, cmp.Or(key.path, signature.Path(base)), key.key); err != nil {
			return err
		}
	}
	m, err := f.Manifest()
	if err == nil {
		err = key.checkVersion(f)
	}
	if err != nil {
		return err
	}
	display.Close()
	key.print(out)
	what := "a bundle with Kubernetes "
	if m.Additional() {
		what = "an additional bundle for Kubernetes "
	}
	fmt.Fprintf(out, "All %d parts are complete. Together they are %s%s, of %s.\n", len(set.Parts), what, m.KubernetesVersion, progress.Bytes(set.Size()))
	return nil
}

// checkParts compares parts with the list, and also all of them together if they are the whole file. It
// reads each once, from content, and writes them to hash. It prints a line for each damaged one, and the
// damaged bytes if they can be found.
func checkParts(ctx context.Context, out io.Writer, display *progress.Display, set *parts.Set, wanted []parts.Part, content io.ReaderAt, hash io.Writer) error {
	var failed []parts.Part
	sum := sha256.New()
	var failures []error
	for _, p := range wanted {
		item := display.Item("verifying "+p.Path, p.Size)
		err := set.Copy(ctx, io.MultiWriter(sum, hash), content, p, item.Add)
		if err == nil {
			item.Done("verified")
			continue
		}
		item.Failed()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, err)
		if !p.Missing() {
			failed = append(failed, p)
		}
		fmt.Fprintf(out, "%v\n", err)
	}
	if len(failed) > 0 {
		printPartDamage(ctx, out, display, set, failed)
	}
	display.Close()
	switch {
	case len(failures) == 0 && len(wanted) == len(set.Parts):
		return set.CheckWhole(sum.Sum(nil))
	case len(failures) == 0:
		return nil
	case len(failures) == 1:
		return failures[0]
	}
	return fault.New(fault.Bundle, "%d of %d parts are damaged or missing: %w", len(failures), len(wanted), failures[0]).Hint(fault.Hint(failures[0]))
}

// printPartDamage lists the damaged bytes of parts. It needs the digests, which are at the
// end of the last part.
func printPartDamage(ctx context.Context, out io.Writer, display *progress.Display, set *parts.Set, failed []parts.Part) {
	c := repair.Copy{Name: set.Base, Size: set.Size(), ReaderAt: set}
	item := display.Item("looking for damage in the parts of "+set.Base, repair.ScanSize(c))
	report, err := repair.Scan(ctx, c, item.Add)
	item.Failed()
	if err != nil {
		fmt.Fprintf(out, "The damaged bytes cannot be listed without the digests at the end of the last part.\n")
		return
	}
	for _, p := range failed {
		offset := set.Offset(p)
		for _, r := range report.Ranges {
			first, last := max(r.First, offset), min(r.Last, offset+p.Size-1)
			if first > last {
				continue
			}
			fmt.Fprintf(out, "  %s: bytes %d to %d of the part, %d to %d of the file (%s)%s\n", p.Path, first-offset, last-offset, first, last, r.What, unchecked(set, r))
		}
	}
}

// unchecked explains a range that only seems to be damaged because a part is missing.
func unchecked(set *parts.Set, r repair.Range) string {
	for _, p := range set.Parts {
		if size := set.Offset(p) + set.PartSize(); p.Missing() && r.First < size && r.Last >= set.Offset(p) {
			return ", or not checked: " + p.Path + " is missing"
		}
	}
	return ""
}
