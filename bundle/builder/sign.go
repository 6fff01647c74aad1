package builder

import (
	"context"
	"fmt"
	"os"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/bundle/signature"
	"airlift/internal/fault"
)

// sign prepares the signature of the written bundle, if there is a key.
func (o *output) sign(ctx context.Context, f *bundle.File) error {
	if o.Key == nil {
		return nil
	}
	o.report.Phase(events.Sign)
	item := o.report.Work("signing "+o.Output, f.Size())
	text, _, err := signature.Of(ctx, f, *o.Key, item.Add)
	if err == nil {
		err = o.prepare("signature", signature.Path(o.Output), text)
	}
	if err != nil {
		item.Failed()
		return fmt.Errorf("signing the bundle: %w", err)
	}
	item.Done("signed, key " + o.Key.ID())
	return nil
}

// checkSignature finds a signature that cannot be written before the downloads start, and a signed
// file that this build would replace by an unsigned file, or by a file signed with another key.
func (d Destination) checkSignature() error {
	path := signature.Path(d.Output)
	if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
		return fault.New(fault.Usage, "cannot write the signature: %q is not a regular file", path).Hint("remove it, or choose another --output")
	}
	if d.Key != nil {
		return d.Key.MayReplace(path)
	}
	if signed, err := signature.IsSigned(d.Output); err != nil || !signed {
		return err
	}
	return fault.New(fault.Usage, "%q is signed: only a file that is signed too may replace it", d.Output).
		Hint("add --sign-key airlift.key, or choose another path with --output; to replace it by a file without a signature, first remove the signature: rm " + fault.Word(path))
}
